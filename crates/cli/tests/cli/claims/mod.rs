//! Limits by claims of tokens, through every transport of two servers on one Redis.

mod token_signer;
mod transports;

use tollgate_testkit::nginx::Nginx;
use tollgate_testkit::redis::{RedisServer, ServerProgram};

use self::token_signer::TokenSigner;
use self::transports::AskedTransport;
use crate::harness::tollgate;
use crate::serve::{PolicyFile, ServerProcess, response};

const NGINX: &str = "error_log stderr notice;
events {}
http {
    access_log off;
    server { listen 127.0.0.1:8000; location / { return 200; } }
}
";
/// Later than any run of this test.
const LATER: u64 = 4_102_444_800;
/// Long ago.
const EXPIRED: u64 = 1_700_000_000;

fn claims(audience: &str, exp: u64) -> String {
    format!(r#"{{"sub":"ada","aud":"{audience}","exp":{exp}}}"#)
}

/// A node of the fleet with all listeners. The deadline is long, so that a busy machine does not change decisions.
fn serve(redis: &RedisServer, nginx: &Nginx, policy: &PolicyFile) -> ServerProcess {
    let mut command = tollgate(&["serve", "--listen=127.0.0.1:0", "--redis-deadline=5s"]);
    command
        .args(["--listen-grpc=127.0.0.1:0", "--listen-resp=127.0.0.1:0"])
        .args(["--listen-admin=127.0.0.1:0", "--listen-gateway=127.0.0.1:0"])
        .arg(format!("--upstream=http://{}", nginx.address()))
        .arg("--config")
        .arg(&policy.0)
        .env("TOLLGATE_FLEET_SECRET", "the secret of this fleet")
        .env("TOLLGATE_REDIS", redis.url());
    ServerProcess::start(command)
}

/// How many tokens of a server had this outcome.
fn tokens(server: &ServerProcess, outcome: &str) -> u64 {
    let (_, admin) = server
        .printed
        .split_once("admin listener on http://")
        .unwrap();
    let metrics = response(admin.lines().next().unwrap().parse().unwrap(), "/metrics").unwrap();
    let name = format!("tollgate_tokens_total{{outcome=\"{outcome}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap_or_else(|| panic!("no {name}in {metrics}"))
        .parse()
        .unwrap()
}

/// A user has one quota, whichever transport and server is asked. All requests whose claims are absent share another one.
#[test]
fn a_claim_is_one_key_in_every_transport_of_a_fleet_and_bad_tokens_have_none() {
    let signer = TokenSigner::new();
    let transports = AskedTransport::ALL;
    let policy = PolicyFile::new(
        "claims",
        &format!(
            "jwt: {{ keys: [{}], audiences: api }}\nlimits:\n  \
             - {{ name: per-user, key: claim.sub, missing: shared, rate: {}/h }}\n",
            signer.jwk(),
            2 * transports.len(),
        ),
    );
    let (redis, nginx) = (
        RedisServer::start(ServerProgram::Redis),
        Nginx::running(NGINX),
    );
    let servers = [(); 2].map(|()| serve(&redis, &nginx, &policy));
    let ada = signer.sign(&claims("api", LATER));
    for expected in [true, false] {
        for (number, server) in servers.iter().enumerate() {
            for transport in transports {
                let is_admitted = transport.is_admitted(server, &ada);
                assert_eq!(is_admitted, expected, "{transport:?} of server {number}");
            }
        }
    }
    let bad = [
        ("expired", signer.sign(&claims("api", EXPIRED))),
        ("audience", signer.sign(&claims("another", LATER))),
        ("algorithm", signer.unsigned(&claims("api", LATER))),
        (
            "algorithm",
            signer.sign_with_public_key(&claims("api", LATER)),
        ),
    ];
    // Ada's quota is exhausted, so a request that is admitted is not charged to her.
    let [server, other] = &servers;
    for ((reason, token), transport) in bad.iter().zip(transports) {
        let before = tokens(server, reason);
        let is_admitted = transport.is_admitted(server, token);
        assert!(is_admitted, "{reason} is believed by {transport:?}");
        assert_eq!(tokens(server, reason), before + 1, "{reason}");
    }
    assert_eq!(tokens(server, "verified"), 1, "later ones are cached");
    assert_eq!(tokens(other, "verified"), 1);
    // They share a quota with each other: four of eight are left.
    let left = transports.map(|transport| transport.is_admitted(other, &bad[0].1));
    assert_eq!(left, [true; 4]);
    assert!(!AskedTransport::HttpCheck.is_admitted(other, &bad[1].1));
}

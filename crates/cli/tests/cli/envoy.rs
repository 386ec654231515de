//! `tollgate serve` behind a real Envoy with the configuration of `examples/envoy`: what Envoy does while Tollgate is killed,
//! frozen or stopped, and that limits work again when Tollgate is back.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tollgate_testkit::certificates::{CertificateAndKey, CertificateAuthority};
use tollgate_testkit::envoy::{Envoy, Upstream, UpstreamReply, Version, with_ports};
use tollgate_testkit::process::{Process, TempFolder};

use crate::harness::tollgate;

/// Longer than any step takes, so only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(60);

const ENVOY: &str = include_str!("../../../../examples/envoy/envoy.yaml");
const LIMITS: &str = include_str!("../../../../examples/envoy/ratelimit.yaml");

/// The limits of the example with windows of a year, so that no window ends during a test.
fn limits() -> String {
    LIMITS.replace("unit: hour", "unit: year")
}

/// Starts Tollgate with the limits and waits until it listens.
fn serve(grpc: &str) -> Process {
    serve_in(TempFolder::new("tollgate").unwrap(), grpc)
}

fn serve_in(folder: TempFolder, grpc: &str) -> Process {
    serve_with(folder, grpc, &[])
}

fn serve_with(folder: TempFolder, grpc: &str, arguments: &[&str]) -> Process {
    let file = folder.write("ratelimit.yaml", &limits()).unwrap();
    let mut command = tollgate(&["serve", "--listen=off", "--listen-resp=off"]);
    command
        .args(["--listen-grpc", grpc])
        .args(arguments)
        .arg("--config")
        .arg(file);
    let process = Process::start("tollgate", &mut command, folder).unwrap();
    process.until_it_says("listening on").unwrap();
    process
}

/// The address in the startup message.
fn printed_address(said: &str) -> String {
    let mut lines = said.lines();
    let line = lines.find_map(|line| line.strip_prefix("listening on "));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    let address = line.split_once("://").map_or(line, |(_, address)| address);
    address.to_owned()
}

struct EnvoyFixture {
    server: Process,
    /// The address for a restarted Tollgate. The port stays reserved meanwhile: its connections are in TIME_WAIT.
    grpc: String,
    envoy: Envoy,
    edge: SocketAddr,
    _upstream: Upstream,
}

impl EnvoyFixture {
    /// Envoy with a changed example, and Tollgate on a free port.
    fn new(change: impl Fn(&str) -> String) -> Self {
        Self::before(serve("127.0.0.1:0"), &change(ENVOY))
    }

    /// Envoy in front of a given Tollgate.
    fn before(server: Process, bootstrap: &str) -> Self {
        let grpc = printed_address(&server.log());
        let upstream = Upstream::answering(|_| UpstreamReply::new(200));
        let mut ports = vec![(9901, 0), (10000, 0), (3000, upstream.address().port())];
        if let Ok(address) = grpc.parse::<SocketAddr>() {
            ports.push((8081, address.port()));
        }
        let envoy = Envoy::start(Version::V1_40, &with_ports(bootstrap, &ports));
        Self {
            server,
            grpc,
            edge: envoy.listener("edge"),
            envoy,
            _upstream: upstream,
        }
    }

    /// The status of the response, and the remaining quota if Envoy asked Tollgate.
    fn get(&self, user: &str) -> (u16, Option<u64>) {
        let mut stream = TcpStream::connect(self.edge).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let request = format!(
            "GET /api HTTP/1.1\r\nhost: test\r\nx-user: {user}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let left = answer
            .lines()
            .find_map(|line| line.strip_prefix("x-ratelimit-remaining: "))
            .map(|left| left.trim().parse().unwrap());
        (status, left)
    }

    /// Sends requests of new users until Tollgate decides one.
    fn until_limited(&self, users: &str) {
        let mut user = 0;
        let limited = self.server.until("a limited answer", || {
            user += 1;
            let (status, left) = self.get(&format!("{users}{user}"));
            left.map(|left| (status, left))
        });
        assert_eq!(limited.unwrap(), (200, 2));
    }

    fn errors(&self) -> u64 {
        self.envoy.counted("cluster.upstream.ratelimit.error")
    }
}

/// A timeout that a busy machine does not reach, so that only a missing Tollgate is unreachable.
fn with_long_timeout(example: &str) -> String {
    let changed = example.replace("timeout: 0.02s", "timeout: 30s");
    assert_ne!(changed, example);
    changed
}

#[test]
fn while_it_is_killed_requests_go_through_and_when_it_is_back_they_are_limited() {
    let mut rig = EnvoyFixture::new(with_long_timeout);
    for answer in [(200, 2), (200, 1), (200, 0), (429, 0)] {
        assert_eq!(rig.get("bob"), (answer.0, Some(answer.1)));
    }
    rig.server.kill();
    for _ in 0..5 {
        assert_eq!(rig.get("bob"), (200, None));
    }
    let name = "cluster.upstream.ratelimit.failure_mode_allowed";
    assert_eq!((rig.errors(), rig.envoy.counted(name)), (5, 5));
    rig.server = serve(&rig.grpc);
    rig.until_limited("back");
}

#[test]
fn while_it_is_killed_requests_are_refused_with_failure_mode_deny() {
    let mut rig = EnvoyFixture::new(|example| {
        let strict = example.replace("failure_mode_deny: false", "failure_mode_deny: true");
        assert_ne!(strict, example);
        with_long_timeout(&strict)
    });
    assert_eq!(rig.get("bob"), (200, Some(2)));
    rig.server.kill();
    assert_eq!(rig.get("bob"), (500, None));
    rig.server = serve(&rig.grpc);
    rig.until_limited("back");
}

/// A frozen process accepts connections and never answers, so only Envoy's timeout ends a call.
#[test]
fn while_it_is_frozen_envoy_gives_up_in_time_and_thawed_it_answers_again() {
    let rig = EnvoyFixture::new(str::to_owned);
    rig.until_limited("before");
    let before = rig.errors();
    rig.server.freeze().unwrap();
    // Enough requests that Envoy's resets after the thaw look like a rapid-reset attack.
    for frozen in 1..=80 {
        assert_eq!(rig.get("bob"), (200, None));
        assert_eq!(rig.errors(), before + frozen);
    }
    rig.server.signal("CONT").unwrap();
    rig.until_limited("after");
}

#[test]
fn after_a_graceful_stop_envoy_uses_the_next_server() {
    let mut rig = EnvoyFixture::new(with_long_timeout);
    assert_eq!(rig.get("bob"), (200, Some(2)));
    rig.server.signal("TERM").unwrap();
    assert_eq!(rig.server.wait().unwrap().code(), Some(0));
    assert!(rig.server.log().contains("stopped"), "{}", rig.server.log());
    assert_eq!(rig.get("bob"), (200, None));
    rig.server = serve(&rig.grpc);
    rig.until_limited("next");
}

#[test]
fn envoy_can_use_a_unix_socket() {
    let folder = TempFolder::new("tollgate").unwrap();
    let socket = folder.path().join("grpc.sock").display().to_string();
    let there = "socket_address: { address: 127.0.0.1, port_value: 8081 }";
    let changed = with_long_timeout(ENVOY).replace(there, &format!("pipe: {{ path: {socket} }}"));
    let grpc = format!("unix:{socket}");
    let rig = EnvoyFixture::before(serve_in(folder, &grpc), &changed);
    for answer in [(200, 2), (200, 1), (200, 0), (429, 0)] {
        assert_eq!(rig.get("bob"), (answer.0, Some(answer.1)));
    }
}

/// The example with its TLS lines uncommented, and certificates in the folder of the test.
fn with_tls(folder: &TempFolder) -> String {
    let mut changed = String::new();
    for line in with_long_timeout(ENVOY).lines() {
        let hidden = line.strip_prefix("    #");
        // Comments for people have a space after the `#`.
        let hidden = hidden.filter(|rest| rest.starts_with("  ") || !rest.starts_with(' '));
        changed += &hidden.map_or_else(|| line.to_owned(), |rest| format!("    {rest}"));
        changed.push('\n');
    }
    assert_eq!(changed.matches("    transport_socket:").count(), 1);
    changed.replace("/etc/envoy/tls", &folder.path().display().to_string())
}

#[test]
fn mutual_tls_works_and_a_client_without_a_certificate_is_refused() {
    let (authority, other) = (
        CertificateAuthority::new("ours"),
        CertificateAuthority::new("theirs"),
    );
    let served = TempFolder::new("tollgate").unwrap();
    let shown = authority.server("tollgate");
    let files = [
        ("--tls-cert", "server.pem", &shown.certificate),
        ("--tls-key", "server.key", &shown.key),
        ("--tls-client-ca", "authority.pem", &authority.pem()),
    ]
    .map(|(option, name, text)| {
        let path = served.write(name, text).unwrap();
        format!("{option}={}", path.display())
    });
    let arguments = files.each_ref().map(String::as_str);
    let server = serve_with(served, "127.0.0.1:0", &arguments);
    let envoys = |client: &CertificateAndKey| {
        let folder = TempFolder::new("certificates").unwrap();
        for (name, text) in [
            ("envoy.pem", &client.certificate),
            ("envoy.key", &client.key),
            ("authority.pem", &authority.pem()),
        ] {
            folder.write(name, text).unwrap();
        }
        folder
    };
    let known = envoys(&authority.client("envoy"));
    let rig = EnvoyFixture::before(server, &with_tls(&known));
    for answer in [(200, 2), (200, 1), (200, 0), (429, 0)] {
        assert_eq!(rig.get("bob"), (answer.0, Some(answer.1)));
    }
    let unknown = envoys(&other.client("envoy"));
    let rig = EnvoyFixture::before(rig.server, &with_tls(&unknown));
    assert_eq!(rig.get("carol"), (200, None));
    assert_eq!(rig.errors(), 1);
}

/// A reload keeps counts and admits nothing extra.
#[test]
fn limits_are_reloaded_while_envoy_sends_requests() {
    let folder = TempFolder::new("tollgate").unwrap();
    let file = folder.path().join("ratelimit.yaml");
    let rig = EnvoyFixture::before(serve_in(folder, "127.0.0.1:0"), &with_long_timeout(ENVOY));
    for left in [2, 1, 0] {
        assert_eq!(rig.get("bob"), (200, Some(left)));
    }
    let more = limits().replace("requests_per_unit: 3 }", "requests_per_unit: 900 }");
    assert_ne!(more, limits());
    std::fs::write(file, more).unwrap();
    rig.server.signal("HUP").unwrap();
    let mut refused = 0;
    let left = rig.server.until("another limit", || {
        let (status, left) = rig.get("bob");
        refused += u64::from(status == 429);
        assert!(left.is_some(), "{status}: it was not asked");
        (status == 200).then_some(left?)
    });
    // As in envoyproxy/ratelimit, denied requests count too.
    assert_eq!(left.unwrap() + refused, 900 - 4);
}

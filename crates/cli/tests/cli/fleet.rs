//! `tollgate serve --redis`: several processes share one quota, and invalid settings are refused.

use tollgate_testkit::redis::{RedisServer, ServerProgram};

use crate::harness::{run_output, tollgate};
use crate::serve::{PolicyFile, ServerProcess, get, policy};

const SECRET: (&str, &str) = ("TOLLGATE_FLEET_SECRET", "the secret of this fleet");

/// A node of a fleet. The deadline is long, so that a busy machine does not change decisions.
fn served(address: &str, policy: &PolicyFile) -> ServerProcess {
    let mut command = tollgate(&["serve", "--listen=127.0.0.1:0", "--redis-deadline=5s"]);
    command.arg("--config").arg(&policy.0);
    command
        .env(SECRET.0, SECRET.1)
        .env("TOLLGATE_REDIS", address);
    ServerProcess::start(command)
}

fn status(served: &ServerProcess) -> String {
    let status = get(served.address, "/v1/check?key=alice").unwrap();
    status.strip_prefix("HTTP/1.1 ").unwrap()[..3].to_owned()
}

#[test]
fn processes_on_one_redis_share_one_quota_that_survives_them() {
    let redis = RedisServer::start(ServerProgram::Redis);
    let policy = PolicyFile::new("fleet", &policy("3/h"));
    let (one, other) = (served(&redis.url(), &policy), served(&redis.url(), &policy));
    assert_eq!([status(&one), status(&other), status(&one)], ["200"; 3]);
    assert_eq!([status(&one), status(&other)], ["429"; 2]);
    let (ended, _) = one.stop("TERM");
    assert!(ended.success());
    let again = served(&redis.url(), &policy);
    assert_eq!(status(&again), "429", "Redis keeps the count");
}

/// Shares of 5 and 3 at once, and 12 in common. Nothing is refilled while the test runs.
const SHARED_QUOTA: &str =
    "limits: [{ name: teams, rate: 20/h, shares: { by: header.x-team, red: 50%, blue: 30% } }]";

#[test]
fn i01_three_processes_lend_the_share_of_an_idle_team_and_serve_its_owner_at_once() {
    let redis = RedisServer::start(ServerProgram::Redis);
    let policy = PolicyFile::new("shares", SHARED_QUOTA);
    let nodes = [(); 3].map(|()| served(&redis.url(), &policy));
    // How many of so many requests are admitted, one after the other and each by another process.
    let admitted = |team: &str, tries: usize| {
        let path = format!("/v1/check?header.x-team={team}");
        let nodes = nodes.iter().cycle().take(tries);
        let statuses = nodes.map(|node| get(node.address, &path).unwrap());
        statuses
            .filter(|status| status == "HTTP/1.1 200 OK")
            .count()
    };
    // 3 of its share, which are charged in common too, and 9 that red does not use.
    assert_eq!(admitted("blue", 20), 12);
    assert_eq!(admitted("strangers", 4), 0, "nothing is left to borrow");
    assert_eq!(admitted("red", 10), 5, "its share is guaranteed");
    assert_eq!(admitted("blue", 4), 0);
}

#[test]
fn it_starts_without_redis_and_uses_redis_once_it_is_reachable() {
    let place = RedisServer::start(ServerProgram::Redis).address();
    let policy = PolicyFile::new("alone", &policy("1000/h"));
    let one = served(&format!("redis://{place}"), &policy);
    one.wait_for("shared store is unreachable; starting without it");
    assert_eq!(status(&one), "200");
    assert_eq!(
        get(one.address, "/readyz").as_deref(),
        Some("HTTP/1.1 200 OK")
    );
    let _redis = RedisServer::start_at(ServerProgram::Redis, place);
    one.wait_for("shared store recovered");
    assert_eq!(status(&one), "200");
}

#[test]
fn a_missing_secret_and_an_invalid_address_are_refused_without_showing_the_password() {
    let refused = |arguments: &[&str], environment: &[(&str, &str)]| {
        let mut command = tollgate(&["serve", "--listen=127.0.0.1:0", "--listen-resp=off"]);
        command.args(arguments).envs(environment.iter().copied());
        let (code, _, said) = run_output(command.output().unwrap());
        assert_ne!(code, Some(0), "{said}");
        assert!(!said.contains("sesame"), "{said}");
        said
    };
    let address = "redis://me:sesame@127.0.0.1:1";
    let said = refused(&["--redis", address], &[]);
    assert!(
        said.contains("--fleet-secret-file or TOLLGATE_FLEET_SECRET"),
        "{said}"
    );
    let said = refused(&["--redis", "redis+what://me:sesame@a"], &[SECRET]);
    assert!(
        said.contains("--redis: ") && said.contains("address"),
        "{said}"
    );
    let missing = ["--redis", address, "--redis-password-file", "/no/such/file"];
    let said = refused(&missing, &[SECRET]);
    assert!(
        said.contains("--redis-password-file file=/no/such/file"),
        "{said}"
    );
    // `ps` shows the command line to every user, but not the environment.
    let warning = "the password in --redis is on the command line";
    assert!(said.contains(warning), "{said}");
    let environment = [SECRET, ("TOLLGATE_REDIS", address)];
    let said = refused(&missing[2..], &environment);
    assert!(
        said.contains("/no/such/file") && !said.contains(warning),
        "{said}"
    );
    // Every user could read the password, and nobody was told.
    use std::os::unix::fs::PermissionsExt as _;
    let file = PolicyFile::new("redis-password", "open sesame");
    let path = file.0.to_str().unwrap();
    let files = [
        ["--redis-password-file", path],
        ["--redis-sentinel-password-file", path],
    ];
    for (mode, is_warned) in [(0o644, true), (0o600, false)] {
        std::fs::set_permissions(&file.0, std::fs::Permissions::from_mode(mode)).unwrap();
        for [flag, path] in files {
            let said = refused(&[flag, path, "--redis-ca", "/no/such/ca"], &environment);
            let warning = "secret file is readable by every user";
            assert_eq!(said.contains(warning), is_warned, "{flag}: {said}");
        }
    }
    let said = refused(&["--redis-ca", "ca.pem"], &[]);
    assert!(said.contains("--redis <ADDRESS>"), "{said}");
    let help = run_output(
        tollgate(&["serve", "--help"])
            .env("TOLLGATE_REDIS", address)
            .output()
            .unwrap(),
    );
    assert!(!help.1.contains("sesame"), "{}", help.1);
}

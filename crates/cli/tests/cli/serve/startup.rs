//! Startup and shutdown of `tollgate serve`: the startup message, the demonstration policy, signals, open files.

use std::net::TcpStream;
use std::process::Command;

use super::{PolicyFile, ServerProcess, get, policy};
use crate::harness::{output, tollgate};

#[test]
fn it_prints_its_address_enforces_the_policy_and_stops_on_a_signal() {
    for signal in ["TERM", "INT"] {
        let policy = PolicyFile::new(signal, &policy("2/h"));
        let served = ServerProcess::with_policy(&policy);
        let printed = format!("listening on http://{}\n\n", served.address);
        assert_eq!(served.printed, printed, "no tour beside a policy");
        for expected in ["200 OK", "200 OK", "429 Too Many Requests"] {
            let status = get(served.address, "/v1/check?key=alice");
            assert_eq!(status, Some(format!("HTTP/1.1 {expected}")));
        }
        let (status, last) = served.stop(signal);
        assert_eq!(status.code(), Some(0), "{last}");
        assert!(last.contains("stopped cut=0"), "{last}");
    }
}

#[test]
fn without_a_policy_it_uses_the_demonstration_policy() {
    let served = ServerProcess::start(tollgate(&[
        "serve",
        "--listen=127.0.0.1:0",
        "--listen-resp=off",
        "--listen-grpc=off",
    ]));
    assert!(
        !served.printed.contains("per-key"),
        "no tour without a terminal: {}",
        served.printed
    );
    let line = served.wait_for("server started");
    let expected = format!(
        "server started version=\"{}\" policy=\"demonstration\" limits=6 http=\"http://{}\"",
        env!("CARGO_PKG_VERSION"),
        served.address
    );
    assert!(line.ends_with(&expected), "{line}");
    let status = get(served.address, "/v1/check?key=carol&cost=20");
    assert_eq!(status.as_deref(), Some("HTTP/1.1 200 OK"));
    let status = get(served.address, "/v1/check?key=carol&cost=20");
    assert_eq!(status.as_deref(), Some("HTTP/1.1 429 Too Many Requests"));
}

#[test]
fn settings_may_come_from_the_environment() {
    let policy = PolicyFile::new("environment", &policy("1/h"));
    let mut command = tollgate(&["serve"]);
    command
        .env("TOLLGATE_LISTEN", "127.0.0.1:0")
        .env("TOLLGATE_LISTEN_RESP", "off")
        .env("TOLLGATE_CONFIG", &policy.0);
    let served = ServerProcess::start(command);
    let line = served.wait_for("server started");
    let policy = format!("policy=\"{}\" limits=1 ", policy.0.display());
    assert!(line.contains(&policy), "{line}");
}

/// The log of two servers could not be compared: the digest was keyed by a random secret.
#[test]
fn the_digest_of_a_policy_is_what_sha256sum_prints() {
    let policy = PolicyFile::new("digest", &policy("2/h"));
    let served = ServerProcess::with_policy(&policy);
    let line = served.wait_for("policy loaded");
    let printed = Command::new("sha256sum").arg(&policy.0).output().unwrap();
    let (half, _) = std::str::from_utf8(&printed.stdout).unwrap().split_at(32);
    assert!(line.contains(&format!("hash={half}")), "{line}");
}

#[test]
fn misspelt_variables_are_warned_of_without_their_values() {
    let mut command = tollgate(&["serve", "--listen=127.0.0.1:0", "--listen-resp=off"]);
    command
        .env("TOLLGATE_REDIS_PASWORD", "opensesame")
        .env("TOLLGATE_PORT", "tcp://10.0.0.1:8080")
        .env("TOLLGATE_SERVICE_HOST", "10.0.0.1");
    let served = ServerProcess::start(command);
    let line = served.wait_for("unknown variable is ignored");
    assert!(
        line.contains(
            "variable=\"TOLLGATE_REDIS_PASWORD\" did_you_mean=\"TOLLGATE_REDIS_PASSWORD\""
        ),
        "{line}"
    );
    assert!(!line.contains("opensesame"), "{line}");
    // The warnings come first; those of Kubernetes are not among them.
    let line = served.wait_for("");
    assert!(line.contains("server started"), "{line}");
}

#[test]
fn a_policy_file_may_be_named_without_a_flag() {
    let policy = PolicyFile::new("positional", &policy("2/h"));
    let mut command = tollgate(&["serve", "--listen=127.0.0.1:0", "--listen-resp=off"]);
    // As for every setting, the command line wins over the variable.
    command.arg(&policy.0).env("TOLLGATE_CONFIG", "other.yaml");
    let served = ServerProcess::start(command);
    let line = served.wait_for("policy loaded");
    assert!(line.contains(&policy.0.display().to_string()), "{line}");
    let (code, _, stderr) = output(&["serve", "a.yaml", "--config=b.yaml"]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("error: two policies are named"), "{stderr}");
}

#[test]
fn version_and_help() {
    let (code, stdout, _) = output(&["--version"]);
    let version = concat!("tollgate ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!((code, stdout.as_str()), (Some(0), version));
    let (code, stdout, _) = output(&["serve", "--help"]);
    assert_eq!(code, Some(0));
    for option in [
        "--config",
        "--listen",
        "--listen-grpc",
        "--listen-resp",
        "--keys",
        "--trusted-proxies",
        "--listen-admin",
        "--admin-operate-token-file",
        "--log-format",
        "TOLLGATE_CONFIG",
        "TOLLGATE_LOG",
    ] {
        assert!(stdout.contains(option), "{stdout}");
    }
}

/// Without free file descriptors every accept fails. The accept loop must neither end nor spin.
#[test]
fn it_survives_running_out_of_file_descriptors() {
    let mut command = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_tollgate");
    let script = "ulimit -n 32 && exec \"$0\" serve --listen 127.0.0.1:0 --listen-resp 127.0.0.1:0 --listen-grpc off --listen-admin off";
    command.args(["-c", script, program]);
    let served = ServerProcess::start(command);
    let flood: Vec<_> = (0..40)
        .map(|_| TcpStream::connect(served.address).unwrap())
        .collect();
    served.wait_for("could not accept a connection");
    drop(flood);
    let status = get(served.address, "/healthz");
    assert_eq!(status.as_deref(), Some("HTTP/1.1 200 OK"));
    let (status, last) = served.stop("TERM");
    assert_eq!(status.code(), Some(0));
    assert!(!last.contains("accept_errors=0"), "{last}");
}

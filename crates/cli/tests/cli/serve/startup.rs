//! Startup and shutdown of `tollgate serve`: the startup message, the demonstration policy, signals, open files.

use std::net::TcpStream;
use std::process::Command;

use super::{PolicyFile, ServerProcess, get, policy};
use crate::harness::{output, tollgate};

#[test]
fn it_prints_the_policy_enforces_it_and_stops_on_a_signal() {
    for signal in ["TERM", "INT"] {
        let policy = PolicyFile::new(signal, &policy("2/h"));
        let served = ServerProcess::with_policy(&policy);
        let limit = "demo: every request; for each header.x-api-key; at most 2 at once, then one every 30 min";
        assert!(served.printed.contains(limit), "{}", served.printed);
        let command = format!("http://{}/v1/check?key=alice", served.address);
        assert!(served.printed.contains(&command), "{}", served.printed);
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
        served.printed.contains("per-key: every request;"),
        "{}",
        served.printed
    );
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
    assert!(
        served.printed.contains("demo: every request;"),
        "{}",
        served.printed
    );
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

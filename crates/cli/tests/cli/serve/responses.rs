//! Responses of `tollgate serve`: HTTP and Redis clients share a limit, and `--headers` chooses the header fields.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use super::{DEADLINE, PolicyFile, ServerProcess, get, policy, response};
use crate::harness::tollgate;

/// One limit decides for both, and the command of the tour works.
#[test]
fn http_and_redis_clients_share_a_limit() {
    let policy = PolicyFile::new("redis", &policy("2/h"));
    let mut command = tollgate(&[
        "serve",
        "--listen=127.0.0.1:0",
        "--listen-resp=127.0.0.1:0",
        "--listen-grpc=off",
    ]);
    command.arg("--config").arg(&policy.0);
    let served = ServerProcess::start(command);
    let (_, address) = served.printed.split_once("listening on redis://").unwrap();
    let address: SocketAddr = address.lines().next().unwrap().parse().unwrap();
    let status = get(served.address, "/v1/check?key=alice");
    assert_eq!(status.as_deref(), Some("HTTP/1.1 200 OK"));
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let commands = "CL.THROTTLE user1 15 30 60 1\r\nTG.CHECK header.x-api-key alice\r\nQUIT\r\n";
    stream.write_all(commands.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(
        reply.starts_with("*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n"),
        "{reply}"
    );
    assert!(
        reply.contains("$4\r\ndemo\r\n$9\r\nremaining\r\n:0\r\n"),
        "{reply}"
    );
    let (status, last) = served.stop("TERM");
    assert_eq!(status.code(), Some(0), "{last}");
    assert!(last.contains("stopped cut=0"), "{last}");
}

#[test]
fn headers_chooses_the_header_fields() {
    let policy = PolicyFile::new("dialects", &policy("1/h"));
    let mut command = tollgate(&["serve", "--headers", "github,draft-11", "--retry-jitter=5m"]);
    command
        .env("TOLLGATE_LISTEN", "127.0.0.1:0")
        .env("TOLLGATE_LISTEN_RESP", "off")
        .env("TOLLGATE_CONFIG", &policy.0)
        .env("TOLLGATE_HEADERS", "the flag overrides this");
    let served = ServerProcess::start(command);
    let admitted = response(served.address, "/v1/check?key=carol").unwrap();
    for line in [
        "x-ratelimit-limit: 1\r\n",
        "x-ratelimit-resource: demo\r\n",
        "ratelimit-policy: \"demo\";q=1;w=3600;pk=:",
    ] {
        assert!(admitted.contains(line), "{line}: {admitted}");
    }
    let denied = response(served.address, "/v1/check?key=carol").unwrap();
    let retry = denied.split("retry-after: ").nth(1).unwrap();
    let retry: u64 = retry.split("\r\n").next().unwrap().parse().unwrap();
    // An hour plus the jitter, minus the time since the first request.
    assert!(retry <= 3_900, "{denied}");
}

/// `--words` and `TOLLGATE_WORDS` are the former names of `--headers` and `TOLLGATE_HEADERS`. Remove this test with them.
#[test]
fn the_former_names_of_headers_are_still_accepted() {
    let policy = PolicyFile::new("former-names", &policy("1/h"));
    let serve = |arguments: &[&str]| {
        let mut command = tollgate(&["serve", "--listen=127.0.0.1:0"]);
        command.args(arguments).env("TOLLGATE_CONFIG", &policy.0);
        command
    };
    let has_github_fields = |command: Command| {
        let served = ServerProcess::start(command);
        let response = response(served.address, "/v1/check?key=carol").unwrap();
        response.contains("x-ratelimit-resource: demo\r\n")
    };
    assert!(has_github_fields(serve(&["--words=github"])));
    let mut former = serve(&[]);
    former.env("TOLLGATE_WORDS", "github");
    let served = ServerProcess::start(former);
    let warning = served.wait_for("variable was renamed");
    assert!(warning.contains("TOLLGATE_HEADERS"), "{warning}");
    drop(served);
    let mut both = serve(&[]);
    both.env("TOLLGATE_WORDS", "none")
        .env("TOLLGATE_HEADERS", "github");
    assert!(has_github_fields(both), "the new variable wins");
}

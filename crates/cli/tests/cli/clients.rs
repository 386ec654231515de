//! The programs of `examples/clients` ask a real server: they are admitted, wait as `Retry-After` says, give up where waiting does not
//! help, and give their place back. Go is in `with_peers`, because its compiler is large.

use std::net::SocketAddr;
use std::process::Command;

use serde_json::Value;
use tollgate_testkit::peer_programs::program;

use crate::documentation::blocks;
use crate::harness::{repository, run_output, tollgate};
use crate::operators::{ask, get};
use crate::serve::{PolicyFile, ServerProcess};

const POLICY: &str = "
deny:
  - match: { header.x-api-key: never }
limits:
  - name: in-flight
    key: header.x-api-key
    concurrency: 1
    lease: 10m
  - name: now-and-then
    match: { header.x-api-key: slow }
    key: header.x-api-key
    rate: 20/min
    burst: 1
";

/// How often a client may start so slowly that the quota is back before it asks.
const ATTEMPTS: u32 = 5;

/// How many places a key has left, of one.
fn places(server: SocketAddr, key: &str) -> Option<u64> {
    let (_, body) = get(server, &format!("/v1/status?key={key}"));
    let status: Value = serde_json::from_str(&body).unwrap();
    let limits = status["limits"].as_array().unwrap();
    let limit = limits.iter().find(|limit| limit["name"] == "in-flight");
    limit.unwrap()["remaining"].as_u64()
}

/// Asks as a client that gives nothing back.
fn acquire(server: SocketAddr, key: &str) {
    let body = format!("{{\"key\": \"{key}\"}}");
    ask(server, "POST /v1/acquire HTTP/1.1\r\n", &body);
}

/// Runs a client with each kind of key. `command` starts it; the key comes last.
pub(crate) fn a_client_waits_and_gives_its_place_back(
    language: &str,
    command: impl Fn() -> Command,
) {
    let policy = PolicyFile::new(&format!("client-{language}"), POLICY);
    let mut serve = tollgate(&["serve", "--listen=127.0.0.1:0", "--config"]);
    serve.arg(&policy.0);
    let server = ServerProcess::start(serve);
    let url = format!("http://{}", server.address);
    let run = |key: &str| {
        let mut client = command();
        client.arg(key).env("TOLLGATE_URL", &url);
        run_output(client.output().unwrap())
    };
    let done = "the work is done\n";
    assert_eq!(run("alice"), (Some(0), done.to_owned(), String::new()));
    assert_eq!(
        places(server.address, "alice"),
        Some(1),
        "it was given back"
    );
    // Negative control: a client that does not release keeps its place.
    acquire(server.address, "bob");
    assert_eq!(places(server.address, "bob"), Some(0));
    let (code, stdout, stderr) = run("never");
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(
        stderr.contains("denied: the policy refuses such requests"),
        "{stderr}"
    );
    // Two clients one after the other: the second waits, unless the machine was so slow that its turn had come.
    let waited = (0..ATTEMPTS).any(|_| {
        assert_eq!(run("slow").0, Some(0));
        let (code, stdout, stderr) = run("slow");
        assert_eq!(code, Some(0), "{stdout}{stderr}");
        let lines: Vec<&str> = stdout.lines().collect();
        match lines.as_slice() {
            ["the work is done"] => false,
            [denied, "the work is done"] => {
                assert!(
                    denied.starts_with("denied by now-and-then - waiting "),
                    "{denied}"
                );
                true
            }
            other => panic!("{other:?}"),
        }
    });
    assert!(waited, "it was never denied");
    assert_eq!(places(server.address, "slow"), Some(1));
}

fn example(name: &str) -> std::path::PathBuf {
    repository().join("examples/clients").join(name)
}

#[test]
fn the_python_example_waits_and_gives_its_place_back() {
    a_client_waits_and_gives_its_place_back("python", || {
        let mut command = Command::new(program("python3"));
        command.arg(example("python.py"));
        command
    });
}

#[test]
fn the_node_example_waits_and_gives_its_place_back() {
    a_client_waits_and_gives_its_place_back("node", || {
        let mut command = Command::new(program("node"));
        command.arg(example("node.mjs"));
        command
    });
}

#[test]
fn the_documentation_shows_the_python_example() {
    let page = std::fs::read_to_string(repository().join("docs/http.md")).unwrap();
    let shown = blocks(&page)
        .into_iter()
        .find(|block| block.language == "python");
    let example = std::fs::read_to_string(example("python.py")).unwrap();
    assert_eq!(shown.unwrap().text, example);
}

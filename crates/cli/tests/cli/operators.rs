//! The admin listener and the log of a running server. Secrets are never logged.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use serde_json::Value;

use crate::documentation::{blocks, commands, words};
use crate::harness::{repository, tollgate};
use crate::serve::{DEADLINE, PolicyFile, ServerProcess};

const READ: &str = "read-4eC39HqLyjWDarjtT1zdp7dc";
const OPERATE: &str = "operate-4eC39HqLyjWDarjtT1zdp7dc";
const WRONG: &str = "wrong-9f8e7d6c5b4a39281706f5e4";
const KEY: &str = "sk_live_4eC39HqLyjWDarjtT1zdp7dc";

/// A server with an admin listener on a free port.
fn serving(arguments: &[&str]) -> (ServerProcess, SocketAddr) {
    let mut command = tollgate(&["serve", "--listen=127.0.0.1:0", "--listen-resp=127.0.0.1:0"]);
    command.args(["--listen-admin=127.0.0.1:0"]).args(arguments);
    started(command)
}

/// Starts a server, and returns it with the address of its admin listener.
pub(crate) fn started(command: Command) -> (ServerProcess, SocketAddr) {
    let served = ServerProcess::start(command);
    let (_, address) = served
        .printed
        .split_once("admin listener on http://")
        .unwrap();
    let address = address.lines().next().unwrap().parse().unwrap();
    (served, address)
}

/// Sends a request. Returns the status and the body of the response.
pub(crate) fn ask(address: SocketAddr, head: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let length = body.len();
    let request = format!(
        "{head}host: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

pub(crate) fn get(address: SocketAddr, path: &str) -> (u16, String) {
    ask(address, &format!("GET {path} HTTP/1.1\r\n"), "")
}

/// Does what curl would do with these arguments.
fn curl(address: SocketAddr, words: &[String]) -> String {
    let (mut method, mut fields, mut body, mut path) = ("GET", String::new(), "", "");
    let mut rest = words.iter().map(String::as_str);
    let mut chosen = None;
    while let Some(word) = rest.next() {
        match word {
            "curl" | "-s" => {}
            "-X" => chosen = rest.next(),
            "--json" => {
                method = "POST";
                fields += "content-type: application/json\r\naccept: application/json\r\n";
                body = rest.next().unwrap();
            }
            url => path = url.strip_prefix("http://127.0.0.1:8088").expect(url),
        }
    }
    let method = chosen.unwrap_or(method);
    ask(
        address,
        &format!("{method} {path} HTTP/1.1\r\n{fields}"),
        body,
    )
    .1
}

#[test]
fn the_commands_of_the_admin_page_print_what_it_shows() {
    let policy = repository().join("policies/demo.yaml");
    let (_served, admin) = serving(&["--config", policy.to_str().unwrap()]);
    let page = std::fs::read_to_string(repository().join("docs/admin.md")).unwrap();
    let mut compared = 0;
    for block in blocks(&page)
        .iter()
        .filter(|block| block.language == "console")
    {
        for (command, shown) in commands(block) {
            let answer = curl(admin, &words(&command));
            assert_eq!(answer.trim_end(), shown.trim_end(), "{command}");
            compared += 1;
        }
    }
    assert!(compared >= 15, "{compared}");
}

#[test]
fn a_reachable_admin_listener_requires_a_token() {
    let files = [
        PolicyFile::new("read-token", READ),
        PolicyFile::new("operate-token", OPERATE),
    ];
    let mut command = tollgate(&["serve", "--listen=127.0.0.1:0", "--listen-resp=off"]);
    command.arg("--listen-admin=0.0.0.0:0");
    command.arg("--admin-read-token-file").arg(&files[0].0);
    command.env("TOLLGATE_ADMIN_OPERATE_TOKEN_FILE", &files[1].0);
    let (served, admin) = started(command);
    let admin = SocketAddr::from(([127, 0, 0, 1], admin.port()));
    let warned = served.wait_for("secret file is readable by every user");
    assert!(!warned.contains(READ), "{warned}");
    let shown = |token: &str| {
        let head = format!("GET /v1/state HTTP/1.1\r\nauthorization: Bearer {token}\r\n");
        ask(admin, &head, "").0
    };
    assert_eq!(get(admin, "/v1/state").0, 401);
    assert_eq!((shown(READ), shown(OPERATE), shown(WRONG)), (200, 200, 401));
    assert_eq!(get(admin, "/readyz").0, 200);
}

/// A load balancer must learn that a server stops before the server is gone.
#[test]
fn while_it_stops_readyz_returns_503() {
    let (served, admin) = serving(&[]);
    assert_eq!(get(admin, "/readyz").0, 200);
    // A request in progress keeps the server from ending.
    let mut open = TcpStream::connect(served.address).unwrap();
    open.set_read_timeout(Some(DEADLINE)).unwrap();
    let head = "POST /v1/check HTTP/1.1\r\nhost: test\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n";
    open.write_all(head.as_bytes()).unwrap();
    let mut first = [0; 1];
    open.read_exact(&mut first).unwrap();
    served.signal("TERM");
    served.wait_for("stopping");
    assert_eq!(get(admin, "/readyz").0, 503);
    assert_eq!(get(admin, "/healthz").0, 200);
    open.write_all(b"{}").unwrap();
    let (status, last) = served.stop("TERM");
    assert_eq!(status.code(), Some(0), "{last}");
}

/// Sends the key in every place where a client of the API can put one.
fn send_secrets_to_api(address: SocketAddr) {
    for _ in 0..3 {
        get(address, &format!("/v1/check?key={KEY}"));
    }
    let json = format!(
        r#"{{"attributes": {{"header.x-api-key": "{KEY}", "header.authorization": "{KEY}"}}}}"#
    );
    ask(address, "POST /v1/check HTTP/1.1\r\n", &json);
    ask(
        address,
        "POST /v1/check HTTP/1.1\r\n",
        &format!("{{\"{KEY}\": "),
    );
    let forwarded = format!(
        "GET /auth/traefik HTTP/1.1\r\nx-forwarded-method: GET\r\nx-forwarded-uri: /{KEY}?{KEY}\r\nx-forwarded-host: a\r\nx-forwarded-for: 192.0.2.7\r\nx-api-key: {KEY}\r\ncookie: {KEY}\r\n"
    );
    ask(address, &forwarded, "");
    ask(
        address,
        &format!("GET /{KEY} HTTP/1.1\r\nauthorization: {KEY}\r\n"),
        "",
    );
}

fn send_secrets_to_resp(printed: &str) {
    let (_, redis) = printed.split_once("listening on redis://").unwrap();
    let mut redis = TcpStream::connect(redis.lines().next().unwrap()).unwrap();
    redis.set_read_timeout(Some(DEADLINE)).unwrap();
    let sent = format!(
        "TG.CHECK header.x-api-key {KEY}\r\nCL.THROTTLE {KEY} 0 1 60\r\nAUTH {KEY}\r\nNONSENSE {KEY}\r\nQUIT\r\n"
    );
    redis.write_all(sent.as_bytes()).unwrap();
    redis.read_to_string(&mut String::new()).unwrap();
}

/// Sends the key with valid and invalid tokens.
fn send_secrets_to_admin(admin: SocketAddr) {
    for token in [READ, OPERATE, WRONG] {
        for (method, path, body) in [
            ("GET", "/v1/state", String::new()),
            ("PUT", "/v1/overrides", r#", "quota": "3/h""#.to_owned()),
            ("DELETE", "/v1/overrides", String::new()),
            ("PUT", "/v1/blocks", String::new()),
            ("DELETE", "/v1/blocks", String::new()),
            ("POST", "/v1/resets", String::new()),
        ] {
            let head = format!(
                "{method} {path} HTTP/1.1\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n"
            );
            let body = format!(
                r#"{{"limit": "demo", "key": ["{KEY}"]{body}, "who": "ada", "why": "test"}}"#
            );
            ask(admin, &head, &body);
        }
    }
}

/// Checks that the events are logged and that no line contains a secret.
fn assert_without_secrets(log: &[String], printed: &str) {
    let all = log.join("\n");
    // Negative control: the events are logged, with keys as digests.
    for (words, at_least) in [
        ("\"denied\"", 4),
        ("\"who\":\"ada (127.0.0.1)\"", 5),
        ("of limit `demo`", 5),
    ] {
        assert!(all.matches(words).count() >= at_least, "{words}: {all}");
    }
    let denied = log.iter().find(|line| line.contains("\"denied\"")).unwrap();
    let denied: Value = serde_json::from_str(denied).unwrap();
    let digest = denied["key"].as_str().unwrap();
    assert!(
        all.contains(&format!("#{digest}")),
        "the same key has the same digest: {all}"
    );
    for line in log {
        assert!(
            serde_json::from_str::<Value>(line).unwrap().is_object(),
            "{line}"
        );
    }
    for secret in [KEY, READ, OPERATE, WRONG] {
        assert!(!all.contains(secret), "{all}");
        assert!(!printed.contains(secret), "{printed}");
    }
}

/// S-39. Logs everything at level trace, and sends secrets in every place.
#[test]
fn s39_no_key_and_no_token_is_ever_logged() {
    let policy = format!(
        "limits:\n  - name: demo\n    key: header.x-api-key\n    rate: 1/h\n    overrides: [{{ key: [\"{KEY}x\"], rate: 2/h }}]\n"
    );
    let policy = PolicyFile::new("secrets", &policy);
    let file = policy.0.to_str().unwrap();
    let mut command = tollgate(&["serve", "--listen=127.0.0.1:0", "--listen-resp=127.0.0.1:0"]);
    command.args(["--listen-admin=127.0.0.1:0", "--config", file]);
    command.args([
        "--log-format=json",
        "--log-level=trace",
        "--log-denials=all",
    ]);
    command.env("TOLLGATE_ADMIN_READ_TOKEN", READ);
    command.env("TOLLGATE_ADMIN_OPERATE_TOKEN", OPERATE);
    let (served, admin) = started(command);
    let printed = served.printed.clone();
    send_secrets_to_api(served.address);
    send_secrets_to_resp(&printed);
    send_secrets_to_admin(admin);
    served.signal("TERM");
    let mut log = Vec::new();
    while !log
        .last()
        .is_some_and(|line: &String| line.contains("\"stopped\""))
    {
        log.push(served.log.recv_timeout(DEADLINE).unwrap());
    }
    assert_without_secrets(&log, &printed);
}

#[test]
fn a_log_that_is_off_is_silent() {
    let (served, admin) = serving(&["--log-level=off"]);
    assert_eq!(get(admin, "/healthz").0, 200);
    served.signal("TERM");
    // The log closes when the program ends.
    assert!(served.log.recv_timeout(DEADLINE).is_err());
}

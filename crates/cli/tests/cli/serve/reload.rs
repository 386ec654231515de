//! Policy reload of `tollgate serve`: by a changed file and by SIGHUP.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::thread;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::{DEADLINE, PolicyFile, ServerProcess, get, policy, response};
use crate::harness::tollgate;

/// A file whose open waits for a writer, which never comes.
fn make_fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

/// The response to an operator's request.
pub(super) fn send(address: SocketAddr, method: &str, target: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let head = format!("{method} {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    let fields = format!(
        "content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream
        .write_all(format!("{head}{fields}{body}").as_bytes())
        .unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn a_changed_policy_is_loaded_and_an_invalid_one_is_not() {
    let file = PolicyFile::new("reload", &policy("1/h"));
    let served = ServerProcess::with_policy(&file);
    let ask = |cost: u32, key: &str| {
        let target = format!("/v1/check?key={key}&cost={cost}");
        get(served.address, &target).unwrap()
    };
    assert!(ask(2, "a").contains("429"));
    file.write(&policy("2/h"));
    while !ask(2, "b").contains("200") {
        served.wait_for("policy loaded");
    }
    file.write("limits: [");
    served.wait_for("policy reload failed, keeping the current policy");
    assert!(ask(2, "c").contains("200"));
    let (status, _) = served.stop("TERM");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn sighup_reloads_the_policy_even_if_it_did_not_change() {
    let file = PolicyFile::new("signal", &policy("1/h"));
    let served = ServerProcess::with_policy(&file);
    served.signal("HUP");
    let line = served.wait_for("generation=2");
    assert!(line.contains("policy loaded"), "{line}");
    let (status, _) = served.stop("TERM");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_fifo_as_policy_is_refused_at_startup() {
    let file = PolicyFile::new("fifo-start", "");
    std::fs::remove_file(&file.0).unwrap();
    make_fifo(&file.0);
    let mut command = tollgate(&["serve", "--listen=127.0.0.1:0", "--config"]);
    let (send, ended) = sync_channel(1);
    command.arg(&file.0);
    thread::spawn(move || send.send(command.output().unwrap()).unwrap());
    let output = ended.recv_timeout(DEADLINE).expect("it must not wait");
    assert!(!output.status.success());
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.contains("it is a FIFO, not a regular file"),
        "{message}"
    );
}

/// The policy's path became a FIFO. Its open waited for a writer under the lock of the reload status: metrics, the kill switch and
/// admin health waited for that lock, and SIGTERM for the thread.
#[test]
fn s40_a_policy_that_becomes_a_fifo_stops_nothing() {
    let file = PolicyFile::new("fifo-running", &policy("1/h"));
    let mut command = tollgate(&["serve", "--listen=127.0.0.1:0"]);
    command.env("TOLLGATE_LISTEN_ADMIN", "127.0.0.1:0");
    command.arg("--config").arg(&file.0);
    let served = ServerProcess::start(command);
    let admin = "admin listener on http://";
    let admin: SocketAddr = served
        .printed
        .lines()
        .find_map(|line| line.strip_prefix(admin))
        .unwrap()
        .parse()
        .unwrap();
    let fifo = file.0.with_extension("fifo");
    make_fifo(&fifo);
    std::fs::rename(&fifo, &file.0).unwrap();
    served.wait_for("policy reload failed, keeping the current policy");
    served.wait_for("it is a FIFO, not a regular file");
    let metrics = response(admin, "/metrics").unwrap();
    assert!(metrics.starts_with("HTTP/1.1 200"), "{metrics}");
    assert!(get(admin, "/healthz").unwrap().contains("200"));
    let reload = send(
        admin,
        "POST",
        "/v1/reload",
        r#"{"who":"ada","why":"a test"}"#,
    );
    assert!(reload.starts_with("HTTP/1.1 422"), "{reload}");
    let target = "/v1/check?key=a&cost=2";
    assert!(get(served.address, target).unwrap().contains("429"));
    let switch = r#"{"limit":"*","to":"off","who":"ada","why":"a test"}"#;
    let switched = send(admin, "PUT", "/v1/switches", switch);
    assert!(switched.starts_with("HTTP/1.1 200"), "{switched}");
    assert!(get(served.address, target).unwrap().contains("200"));
    let (status, _) = served.stop("TERM");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_reload_that_removes_most_limits_is_a_warning() {
    let limit = |name: &str| format!("  - name: {name}\n    rate: 1/h\n");
    let file = PolicyFile::new(
        "most",
        &format!("{}{}", policy("1/h"), limit("b") + &limit("c")),
    );
    let served = ServerProcess::with_policy(&file);
    file.write(&policy("2/h"));
    let line = served.wait_for("policy reload removed most limits");
    assert!(line.contains("WARN"), "{line}");
    assert!(
        line.contains("removed=2") && line.contains("before=3") && line.contains("after=1"),
        "{line}"
    );
    let (status, _) = served.stop("TERM");
    assert_eq!(status.code(), Some(0));
}

//! `tollgate serve --state`: what survives a restart and a crash of the real program.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use super::reload::send;
use super::{PolicyFile, ServerProcess, get, response};
use crate::harness::tollgate;

/// A folder that is deleted when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = format!("tollgate-cli-state-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn state(&self) -> PathBuf {
        self.0.join("state")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// One limit for each algorithm, all by API key.
const POLICY: &str = "limits:
  - { name: bucket, match: { path: /bucket }, key: header.x-api-key, rate: 3/day }
  - { name: leaky, match: { path: /leaky }, key: header.x-api-key, rate: 3/day, burst: 3, algorithm: leaky_bucket }
  - { name: fixed, match: { path: /fixed }, key: header.x-api-key, rate: 3/day, algorithm: fixed_window }
  - { name: window, match: { path: /window }, key: header.x-api-key, rate: 3/day, algorithm: sliding_window }
  - { name: log, match: { path: /log }, key: header.x-api-key, rate: 3/day, algorithm: sliding_log }
  - { name: jobs, match: { path: /jobs }, key: header.x-api-key, concurrency: 1 }
";
const PATHS: [&str; 5] = ["bucket", "leaky", "fixed", "window", "log"];

fn command(folder: &Folder, policy: &PolicyFile, arguments: &[&str]) -> Command {
    let mut command = tollgate(&["serve", "--listen=127.0.0.1:0", "--state"]);
    command.arg(folder.state()).arg("--config").arg(&policy.0);
    command.args(arguments);
    command.env("TOLLGATE_LISTEN_ADMIN", "127.0.0.1:0");
    command
}

fn admin(served: &ServerProcess) -> SocketAddr {
    let line = served.printed.lines();
    let mut address = line.filter_map(|line| line.strip_prefix("admin listener on http://"));
    address.next().unwrap().parse().unwrap()
}

/// How many saves had this outcome.
fn saves(served: &ServerProcess, outcome: &str) -> u64 {
    let metrics = response(admin(served), "/metrics").unwrap();
    let name = format!("tollgate_state_saves_total{{outcome=\"{outcome}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap().parse().unwrap()
}

/// The answer to a check, or to an acquire, which has a ticket.
fn ask(address: SocketAddr, target: &str, path: &str, key: &str) -> String {
    let body = format!(r#"{{"attributes":{{"path":"/{path}","header.x-api-key":"{key}"}}}}"#);
    send(address, "POST", target, &body)
}

fn is_admitted(address: SocketAddr, path: &str, key: &str) -> bool {
    let answer = ask(address, "/v1/check", path, key);
    assert!(
        answer.starts_with("HTTP/1.1 200") || answer.starts_with("HTTP/1.1 429"),
        "{answer}"
    );
    answer.starts_with("HTTP/1.1 200")
}

/// A restart for a deployment reset every daily quota, opened every block and forgot every permit.
#[test]
fn a_graceful_restart_is_exact_for_every_algorithm_and_keeps_blocks_and_tickets() {
    let folder = Folder::new("graceful");
    let policy = PolicyFile::new("state-graceful", POLICY);
    let first = ServerProcess::start(command(&folder, &policy, &["--state-interval=1h"]));
    for path in PATHS {
        assert!(is_admitted(first.address, path, "a"), "{path}");
        assert!(
            (0..3).all(|_| is_admitted(first.address, path, "b")),
            "{path}"
        );
    }
    let job = ask(first.address, "/v1/acquire", "jobs", "a");
    let ticket = job.split("\"ticket\":\"").nth(1).unwrap();
    let ticket = ticket.split('"').next().unwrap().to_owned();
    assert!(!is_admitted(first.address, "jobs", "a"));
    let block = r#"{"limit":"bucket","key":["c"],"who":"ada","why":"a test"}"#;
    let blocked = send(admin(&first), "PUT", "/v1/blocks", block);
    assert!(blocked.starts_with("HTTP/1.1 200"), "{blocked}");
    assert_eq!(first.stop("TERM").0.code(), Some(0));

    use std::os::unix::fs::PermissionsExt as _;
    let mode = fs::metadata(folder.state()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Another number of keys is migrated.
    let second = ServerProcess::start(command(&folder, &policy, &["--keys=5000"]));
    second.wait_for("state loaded");
    for path in PATHS {
        assert!(!is_admitted(second.address, path, "b"), "{path}");
        assert!(
            (0..2).all(|_| is_admitted(second.address, path, "a")),
            "{path}"
        );
        assert!(!is_admitted(second.address, path, "a"), "{path}");
    }
    assert!(
        !is_admitted(second.address, "bucket", "c"),
        "it is still blocked"
    );
    assert!(
        !is_admitted(second.address, "jobs", "a"),
        "the permit is still held"
    );
    let report = format!(r#"{{"ticket":"{ticket}"}}"#);
    let reported = send(second.address, "POST", "/v1/release", &report);
    assert!(reported.starts_with("HTTP/1.1 200"), "{reported}");
    assert!(is_admitted(second.address, "jobs", "a"), "it was released");
    let state = response(admin(&second), "/v1/state").unwrap();
    assert!(state.contains("\"was_damaged\":false"), "{state}");

    // A second process must not use the same file.
    let output = command(&folder, &policy, &[]).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(
        message.contains("another process uses the state file"),
        "{message}"
    );
    assert_eq!(second.stop("TERM").0.code(), Some(0));
}

#[test]
fn after_a_crash_the_last_save_counts() {
    let folder = Folder::new("crash");
    let policy = PolicyFile::new("state-crash", POLICY);
    let first = ServerProcess::start(command(&folder, &policy, &["--state-interval=100ms"]));
    assert!((0..3).all(|_| is_admitted(first.address, "bucket", "a")));
    let saves = || saves(&first, "saved");
    // The save after the next began when all requests had been decided.
    let before = saves();
    while saves() < before + 2 {
        std::thread::yield_now();
    }
    first.signal("KILL");
    drop(first);
    let second = ServerProcess::start(command(&folder, &policy, &[]));
    assert!(!is_admitted(second.address, "bucket", "a"));
    assert_eq!(second.stop("TERM").0.code(), Some(0));
}

#[test]
fn a_damaged_file_is_kept_aside_and_reported_or_refused() {
    let folder = Folder::new("damaged");
    let policy = PolicyFile::new("state-damaged", POLICY);
    fs::write(folder.state(), "tollstat and then nothing that makes sense").unwrap();
    let required = command(&folder, &policy, &["--state-required"]).output();
    let message = String::from_utf8(required.unwrap().stderr).unwrap();
    assert!(
        message.contains("--state-required: the state file"),
        "{message}"
    );
    assert!(folder.state().exists(), "it stays where it is");

    let served = ServerProcess::start(command(&folder, &policy, &[]));
    served.wait_for("state file damaged; starting without state");
    assert!(folder.0.join("state.damaged").exists());
    let metrics = response(admin(&served), "/metrics").unwrap();
    assert!(
        metrics.contains("\ntollgate_state_damaged 1\n"),
        "{metrics}"
    );
    let state = response(admin(&served), "/v1/state").unwrap();
    assert!(state.contains("\"was_damaged\":true"), "{state}");
    assert!(get(served.address, "/healthz").unwrap().contains("200"));
    assert_eq!(served.stop("TERM").0.code(), Some(0));
    assert!(folder.state().exists(), "the last save made a new one");
}

#[test]
fn a_folder_that_cannot_be_written_to_and_a_fleet_are_refused() {
    let policy = PolicyFile::new("state-refused", POLICY);
    let missing = Folder(PathBuf::from("/nowhere/at/all"));
    let output = command(&missing, &policy, &[]).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.contains("cannot lock /nowhere/at/all/state.lock"),
        "{message}"
    );
    let folder = Folder::new("fleet");
    let with_redis = command(&folder, &policy, &["--redis=redis://127.0.0.1:1"]).output();
    let message = String::from_utf8(with_redis.unwrap().stderr).unwrap();
    assert!(message.contains("cannot be used with"), "{message}");
}

/// `ulimit -f` made the first save end the process with SIGXFSZ.
#[test]
fn a_limit_of_file_sizes_makes_saves_fail_and_the_server_goes_on() {
    let folder = Folder::new("xfsz");
    let policy = PolicyFile::new("state-xfsz", POLICY);
    let served = ServerProcess::start(command(&folder, &policy, &["--state-interval=100ms"]));
    let limited = Command::new("prlimit")
        .args(["--pid", &served.id().to_string(), "--fsize=16"])
        .status();
    assert!(limited.unwrap().success());
    while saves(&served, "failed") == 0 {
        std::thread::yield_now();
    }
    served.wait_for("state not saved");
    assert!(is_admitted(served.address, "bucket", "a"));
    assert_eq!(served.stop("TERM").0.code(), Some(0));
}

/// A disk error counted as damage: the intact file was renamed, and every quota began anew. A read of this file fails with EIO.
#[test]
fn a_state_file_that_cannot_be_read_is_left_alone_and_the_server_does_not_start() {
    let folder = Folder::new("unreadable");
    let policy = PolicyFile::new("state-unreadable", POLICY);
    std::os::unix::fs::symlink("/proc/self/mem", folder.state()).unwrap();
    let output = command(&folder, &policy, &[]).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(message.contains("cannot read the state file"), "{message}");
    assert!(folder.state().is_symlink(), "it was not renamed");
}

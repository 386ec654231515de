//! `tollgate load` on a real server: every request is sent and counted, and no other machine is loaded by mistake.

use std::io::Read as _;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use crate::harness::{Folder, output, run_output, tollgate};
use crate::serve::{PolicyFile, ServerProcess};

#[test]
fn it_counts_what_a_real_server_admits_and_limits() {
    let policy = "limits: [{ name: per-key, key: header.x-api-key, rate: 1/h, burst: 7 }]";
    let policy = PolicyFile::new("load", policy);
    let mut serve = tollgate(&["serve", "--listen=127.0.0.1:0", "--config"]);
    serve.arg(&policy.0);
    let server = ServerProcess::start(serve);
    let url = format!("http://{}/v1/check?key=secret", server.address);
    let folder = Folder::new();
    let (code, report) = folder.json(&["load", &url, "--rate=200/s", "--duration=200ms", "-q"]);
    assert_eq!(code, Some(0), "{report}");
    assert_eq!(report["sent"], 40);
    assert_eq!(report["statuses"]["200"], 7, "the burst: {report}");
    assert_eq!(report["statuses"]["429"], 33, "{report}");

    // Each request another client: nobody is limited.
    let url = format!("http://{}/v1/check?key=user-{{n}}", server.address);
    let arguments = [
        "load",
        &url,
        "--steps=100/s:100ms,400/s:50ms",
        "--html=load.html",
    ];
    let (code, text, told) = folder.run(&arguments);
    assert_eq!(code, Some(0), "{told}");
    assert!(text.contains("admitted") && text.contains("30"), "{text}");
    let page = std::fs::read_to_string(folder.path().join("load.html")).unwrap();
    assert!(page.contains("<svg") && !page.contains("secret"), "{page}");
}

#[test]
fn a_server_that_is_not_there_fails_every_request_and_the_exit_code_says_so() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", free.local_addr().unwrap());
    drop(free);
    let folder = Folder::new();
    let (code, report) = folder.json(&["load", &url, "--rate=50/s", "--duration=100ms", "-q"]);
    assert_eq!(code, Some(1), "{report}");
    assert_eq!(report["errors"], 5, "{report}");
    assert_eq!(report["errors_by_kind"]["no connection"], 5, "{report}");
}

/// Only the requests under way were counted, so that a server that answers nothing seemed to keep one request waiting, not fifty.
#[test]
fn an_interrupted_run_counts_the_requests_that_were_due() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", server.local_addr().unwrap());
    let folder = Folder::new();
    let line = "x - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 0\n";
    folder.write("access.log", line.repeat(50).as_bytes());
    let arguments = ["load", &url, "--from-log=access.log", "--speed=1e9"];
    let arguments = [&arguments[..], &["--max-in-flight=1", "--json"]].concat();
    let mut command = tollgate(&arguments);
    command.current_dir(folder.path()).stdout(Stdio::piped());
    let child = command.spawn().unwrap();
    let (mut stream, _) = server.accept().unwrap();
    stream.read_exact(&mut [0; 16]).unwrap();
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-s", "INT", &id]).status();
    assert!(sent.unwrap().success());
    let (code, text, _) = run_output(child.wait_with_output().unwrap());
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(code, Some(1), "{report}");
    assert_eq!(
        (&report["sent"], &report["unsent"]),
        (&1.into(), &50.into())
    );
    assert_eq!(report["interrupted"], true);
}

/// The report of a run was lost if its page could not be written.
#[test]
fn a_page_that_cannot_be_written_is_named_before_the_run() {
    let arguments = [
        "load",
        "http://127.0.0.1:1/",
        "--duration=1h",
        "--html=missing/load.html",
    ];
    let (code, text, told) = Folder::new().run(&arguments);
    assert_ne!(code, Some(0));
    assert_eq!(text, "");
    assert!(told.contains("--html missing/load.html"), "{told}");
}

/// A run takes at most six hours. One by a log took as long as the log.
#[test]
fn a_log_of_a_day_is_not_replayed_in_real_time() {
    let folder = Folder::new();
    let line = |day| format!("x - - [{day}/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 0\n");
    let log = folder.path().join("access.log");
    std::fs::write(log, line(17) + &line(18)).unwrap();
    let arguments = ["load", "http://127.0.0.1:1/", "--from-log=access.log"];
    for speed in ["--speed=1", "--speed=1e-300"] {
        let (code, _, told) = folder.run(&[&arguments[..], &[speed]].concat());
        assert_eq!(code, Some(2), "{told}");
        assert!(told.contains("6 hours; a higher --speed"), "{told}");
    }
    let (code, text, told) = folder.run(&[&arguments[..], &["--speed=1e9"]].concat());
    assert_eq!(code, Some(1), "{told}");
    assert!(text.contains("2 sent"), "{text}");
}

#[test]
fn another_machine_is_not_loaded_unless_it_is_named_twice() {
    for url in ["http://example.com/", "http://192.0.2.1:80/"] {
        let (code, _, told) = output(&["load", url]);
        assert_eq!(code, Some(2), "{told}");
        assert!(told.contains("--yes-really"), "{told}");
    }
}

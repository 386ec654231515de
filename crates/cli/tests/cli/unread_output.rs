//! A server whose output nobody reads: it decides, obeys operators and ends all the same.

use std::io::{PipeReader, Read as _, Write as _};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Child, ExitStatus};
use std::sync::mpsc;
use std::thread;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::fcntl_setpipe_size;

use crate::harness::{Folder, tollgate};
use crate::serve::DEADLINE;

/// What the attacked server's stderr had room for.
const PIPE_BYTES: usize = 4_096;
/// Requests that are sent together before their answers are read.
const BATCH: usize = 100;

/// A server on unix sockets, because one that cannot write cannot tell its ports.
struct QuietServer {
    child: Child,
    folder: Folder,
    /// Held open and not read.
    stderr: Option<PipeReader>,
    _stdout: PipeReader,
}

/// A pipe of 4 KiB that is full.
fn full_pipe() -> (PipeReader, std::io::PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    fcntl_setpipe_size(&writer, PIPE_BYTES).unwrap();
    let flags = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    while writer.write(b"noise\n").is_ok() {}
    fcntl_setfl(&writer, flags).unwrap();
    (reader, writer)
}

impl QuietServer {
    /// Starts it and waits until it says, to the service manager, that it is ready.
    fn start() -> Self {
        let folder = Folder::with(&[(
            "policy.yaml",
            "limits: [{ name: once, key: header.x-api-key, rate: 1/d }]",
        )]);
        let notify = folder.path().join("notify");
        let manager = UnixDatagram::bind(&notify).unwrap();
        manager.set_read_timeout(Some(DEADLINE)).unwrap();
        let ((stdout, stdout_end), (stderr, stderr_end)) = (full_pipe(), full_pipe());
        let mut command = tollgate(&["serve", "--config=policy.yaml", "--log-denials=all"]);
        command
            .args(["--listen=unix:api.sock", "--listen-admin=unix:admin.sock"])
            .args(["--listen-grpc=off", "--listen-resp=off"])
            .env("NOTIFY_SOCKET", &notify)
            .current_dir(folder.path())
            .stdout(stdout_end)
            .stderr(stderr_end);
        let server = Self {
            child: command.spawn().unwrap(),
            folder,
            stderr: Some(stderr),
            _stdout: stdout,
        };
        let mut word = [0; 64];
        let len = manager.recv(&mut word).expect("ready");
        assert_eq!(&word[..len], b"READY=1");
        server
    }

    fn connect(&self, socket: &str) -> UnixStream {
        let stream = UnixStream::connect(self.folder.path().join(socket)).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
    }

    /// The status and the body of one answer.
    fn ask(&self, socket: &str, head: &str, body: &str) -> (u16, String) {
        let mut stream = self.connect(socket);
        let length = body.len();
        let request = format!(
            "{head} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (
            head.split(' ').nth(1).unwrap().parse().unwrap(),
            body.to_owned(),
        )
    }

    /// Sends requests of a client that has nothing left, and answers how many were refused.
    fn denied(&self) -> usize {
        let mut stream = self.connect("api.sock");
        let one = "GET /v1/check?key=greedy HTTP/1.1\r\nhost: localhost\r\n\r\n";
        let last = one.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
        let all = one.repeat(BATCH - 1) + &last;
        stream.write_all(all.as_bytes()).unwrap();
        let mut answers = String::new();
        stream.read_to_string(&mut answers).unwrap();
        answers.matches("HTTP/1.1 429 ").count()
    }

    /// Log lines that were dropped, as the metrics tell.
    fn dropped_lines(&self) -> u64 {
        let (status, page) = self.ask("admin.sock", "GET /metrics", "");
        assert_eq!(status, 200);
        let name = "tollgate_log_lines_dropped_total ";
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        line.expect(&page).parse().unwrap()
    }

    /// Denies until lines are dropped: a thousand denials are logged in a second, and some 1,000 lines fit. Every request
    /// is answered.
    fn fill_the_log(&self) {
        let (status, _) = self.ask("api.sock", "GET /v1/check?key=greedy", "");
        assert_eq!(status, 200);
        while self.dropped_lines() == 0 {
            for _ in 0..10 {
                assert_eq!(self.denied(), BATCH);
            }
        }
    }

    /// Ends it, and waits for the end.
    fn stop(mut self) -> ExitStatus {
        let id = self.child.id().to_string();
        let sent = std::process::Command::new("kill")
            .args(["-s", "TERM", &id])
            .status();
        assert!(sent.unwrap().success());
        wait(&mut self.child)
    }
}

/// Waits for the end of a program on a thread, so that the wait has a deadline.
fn wait(child: &mut Child) -> ExitStatus {
    let (ended, end) = mpsc::sync_channel(1);
    thread::scope(|scope| {
        let id = child.id();
        scope.spawn(move || ended.send(child.wait()));
        match end.recv_timeout(DEADLINE) {
            Ok(status) => status.unwrap(),
            Err(_) => {
                let id = id.to_string();
                let killed = std::process::Command::new("kill")
                    .args(["-s", "KILL", &id])
                    .status();
                panic!("it does not end; killed: {killed:?}");
            }
        }
    })
}

impl Drop for QuietServer {
    fn drop(&mut self) {
        // Already gone is as good.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The attack: `tollgate serve 2>&1 | something that hangs`. With a pipe of 4 KiB and one logged denial a second, every
/// listener and the kill switch hung after 16 s, because each thread of the runtime was in a write to stderr; `/healthz` said
/// 200 until then. With the pipe full from the start, the server did not even begin to serve.
#[test]
fn output_that_nobody_reads_holds_up_no_decision_no_operator_and_not_the_end() {
    let server = QuietServer::start();
    server.fill_the_log();
    for socket in ["api.sock", "admin.sock"] {
        let health = server.ask(socket, "GET /healthz", "");
        assert_eq!(health, (200, "ok\n".to_owned()));
    }
    // The kill switch.
    let off = r#"{"limit": "*", "to": "off", "who": "ada", "why": "nobody reads the log"}"#;
    let (status, body) = server.ask("admin.sock", "PUT /v1/switches", off);
    assert_eq!(status, 200, "{body}");
    let (status, _) = server.ask("api.sock", "GET /v1/check?key=greedy", "");
    assert_eq!(status, 200);
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn once_somebody_reads_the_log_says_how_many_lines_are_missing() {
    let mut server = QuietServer::start();
    server.fill_the_log();
    let mut stderr = server.stderr.take().unwrap();
    let (sender, lines) = mpsc::sync_channel(64);
    thread::spawn(move || {
        let mut text = String::new();
        let mut piece = [0; 4_096];
        while let Ok(len @ 1..) = stderr.read(&mut piece) {
            text.push_str(&String::from_utf8_lossy(&piece[..len]));
            let (whole, rest) = text.rsplit_once('\n').unwrap_or(("", &text));
            let missing = whole
                .lines()
                .find(|line| line.contains("log lines dropped"));
            // Nobody listens once the test is over.
            missing.map(|line| sender.send(line.to_owned()).ok());
            text = rest.to_owned();
        }
    });
    let line = lines.recv_timeout(DEADLINE).expect("a line that says so");
    let (_, count) = line.split_once("lines=").expect(&line);
    assert!(count.trim().parse::<u64>().unwrap() > 0, "{line}");
    assert_eq!(server.stop().code(), Some(0));
}

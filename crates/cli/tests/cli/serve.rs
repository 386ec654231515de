//! `tollgate serve` as people run it: what it prints, what it answers, how it stops.
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use crate::harness::{output, tollgate};

/// Far above what anything here takes; only a hang reaches it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A running `tollgate serve`, killed when the test ends, however it ends.
pub(crate) struct ServerProcess {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) printed: String,
    pub(crate) log: Receiver<String>,
}

impl ServerProcess {
    /// Starts `command` and waits until it has printed its address and the rest of its welcome.
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        // Tests run side by side, and each usual port is there once. An argument says otherwise.
        let set: Vec<_> = command
            .get_envs()
            .map(|(name, _)| name.to_owned())
            .collect();
        for name in [
            "TOLLGATE_LISTEN_GRPC",
            "TOLLGATE_LISTEN_RESP",
            "TOLLGATE_LISTEN_ADMIN",
        ] {
            if !set.iter().any(|one| one == name) {
                command.env(name, "off");
            }
        }
        let mut child = command.spawn().unwrap();
        let stdout = lines(child.stdout.take().unwrap());
        let mut served = Self {
            log: lines(child.stderr.take().unwrap()),
            child,
            address: SocketAddr::from(([0, 0, 0, 0], 0)),
            printed: String::new(),
        };
        // An empty line ends it.
        while served.printed.matches("curl ").count() < 3 || !served.printed.ends_with("\n\n") {
            let line = stdout.recv_timeout(DEADLINE).expect("the whole welcome");
            let http = ["listening on http://", "listening on https://"];
            if let Some(address) = http.iter().find_map(|start| line.strip_prefix(start)) {
                served.address = address.parse().unwrap();
            }
            served.printed += &line;
            served.printed.push('\n');
        }
        served
    }

    /// By the policy in a file, over HTTP alone.
    fn with_policy(file: &PolicyFile) -> Self {
        let mut command = tollgate(&["serve", "--listen=127.0.0.1:0", "--config"]);
        command.arg(&file.0);
        Self::start(command)
    }

    /// Waits until the log says `text`, and returns that line.
    pub(crate) fn wait_for(&self, text: &str) -> String {
        loop {
            let line = self.log.recv_timeout(DEADLINE).expect(text);
            if line.contains(text) {
                return line;
            }
        }
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(sent.unwrap().success());
    }

    /// Sends a signal and waits for the end: how it ended, and the last line of its log.
    pub(crate) fn stop(mut self, signal: &str) -> (ExitStatus, String) {
        self.signal(signal);
        let last = self.wait_for("stopped");
        (self.child.wait().unwrap(), last)
    }
}

/// The lines that a program writes, as it writes them, so that waiting for one can have a deadline.
fn lines(output: impl Read + Send + 'static) -> Receiver<String> {
    // More lines than any test's program writes; a full channel only makes the program wait.
    let (sender, receiver) = mpsc::sync_channel(1_024);
    thread::spawn(move || {
        let written = BufReader::new(output).lines().map_while(Result::ok);
        written
            .map(|line| sender.send(line))
            .all(|sent| sent.is_ok())
    });
    receiver
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Already gone is as good.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The status line of the answer to a GET, or nothing if the connection ended without one.
pub(crate) fn get(address: SocketAddr, target: &str) -> Option<String> {
    answer(address, target)?.lines().next().map(str::to_owned)
}

/// All that is answered.
fn answer(address: SocketAddr, target: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(DEADLINE)).ok()?;
    let request = format!("GET {target} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

#[test]
fn it_says_what_it_does_does_it_and_stops_when_told() {
    for signal in ["TERM", "INT"] {
        let policy = PolicyFile::new(signal, &policy("2/h"));
        let served = ServerProcess::with_policy(&policy);
        let words = "demo: every request; for each header.x-api-key; at most 2 at once, then one every 30 min";
        assert!(served.printed.contains(words), "{}", served.printed);
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

/// The same limit answers both, and the commands that the welcome names work.
#[test]
fn redis_clients_are_answered_beside_http_ones() {
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
    let command = format!(
        "redis-cli -p {} CL.THROTTLE user1 15 30 60 1",
        address.port()
    );
    assert!(served.printed.contains(&command), "{}", served.printed);
    let status = get(served.address, "/v1/check?key=alice");
    assert_eq!(status.as_deref(), Some("HTTP/1.1 200 OK"));
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let commands = "CL.THROTTLE user1 15 30 60 1\r\nTG.CHECK header.x-api-key alice\r\nQUIT\r\n";
    stream.write_all(commands.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n"),
        "{answer}"
    );
    assert!(
        answer.contains("$4\r\ndemo\r\n$9\r\nremaining\r\n:0\r\n"),
        "{answer}"
    );
    let (status, last) = served.stop("TERM");
    assert_eq!(status.code(), Some(0), "{last}");
    assert!(last.contains("stopped cut=0"), "{last}");
}

/// A policy file that is gone when the test is over.
pub(crate) struct PolicyFile(pub(crate) PathBuf);

impl PolicyFile {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let name = format!("tollgate-cli-{}-{name}.yaml", std::process::id());
        let written = Self(std::env::temp_dir().join(name));
        written.write(text);
        written
    }

    pub(crate) fn write(&self, text: &str) {
        std::fs::write(&self.0, text).unwrap();
    }
}

impl Drop for PolicyFile {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

/// One limit on every API key.
pub(crate) fn policy(rate: &str) -> String {
    format!("limits:\n  - name: demo\n    key: header.x-api-key\n    rate: {rate}\n")
}

#[test]
fn without_a_policy_it_demonstrates_and_says_what_to_try() {
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
fn clients_are_told_in_the_dialects_that_the_operator_chose() {
    let policy = PolicyFile::new("dialects", &policy("1/h"));
    let mut command = tollgate(&["serve", "--headers", "github,draft-11", "--retry-jitter=5m"]);
    command
        .env("TOLLGATE_LISTEN", "127.0.0.1:0")
        .env("TOLLGATE_LISTEN_RESP", "off")
        .env("TOLLGATE_CONFIG", &policy.0)
        .env("TOLLGATE_HEADERS", "a flag comes before this");
    let served = ServerProcess::start(command);
    let answer = answer(served.address, "/v1/check?key=carol").unwrap();
    for line in [
        "x-ratelimit-limit: 1\r\n",
        "x-ratelimit-resource: demo\r\n",
        "ratelimit-policy: \"demo\";q=1;w=3600;pk=:",
    ] {
        assert!(answer.contains(line), "{line}: {answer}");
    }
    let refused = self::answer(served.address, "/v1/check?key=carol").unwrap();
    let retry = refused.split("retry-after: ").nth(1).unwrap();
    let retry: u64 = retry.split("\r\n").next().unwrap().parse().unwrap();
    // An hour, less what has passed since, and the jitter.
    assert!(retry <= 3_900, "{refused}");
}

#[test]
fn a_policy_that_is_wrong_is_shown_with_its_line() {
    let wrong = PolicyFile::new("wrong", &policy("10/sce"));
    let file = wrong.0.display().to_string();
    let (code, stdout, stderr) = output(&[
        "serve",
        "--listen=127.0.0.1:0",
        "--listen-resp=off",
        "--listen-grpc=off",
        "--config",
        &file,
    ]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    let expected = format!("error: there is 1 problem with the policy\n\n{file}:4:11: ");
    assert!(stderr.starts_with(&expected), "{stderr}");
    assert!(stderr.contains("4 |     rate: 10/sce"), "{stderr}");
}

#[test]
fn a_policy_that_changes_is_put_in_force_and_a_wrong_one_changes_nothing() {
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
    served.wait_for("the last good one stays");
    assert!(ask(2, "c").contains("200"));
    let (status, _) = served.stop("TERM");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_signal_reads_the_policy_again_whether_or_not_it_changed() {
    let file = PolicyFile::new("signal", &policy("1/h"));
    let served = ServerProcess::with_policy(&file);
    served.signal("HUP");
    let line = served.wait_for("generation=2");
    assert!(line.contains("policy loaded"), "{line}");
    let (status, _) = served.stop("TERM");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_port_that_is_taken_is_an_error_that_says_so() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, stdout, stderr) = output(&["serve", "--listen", &address]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    let expected = format!(
        "error: cannot listen on {address}: another program uses it; choose another address with --listen\n"
    );
    // A machine that allows few open files is warned about them first.
    assert!(stderr.ends_with(&expected), "{stderr}");
    let free = [
        "serve",
        "--listen=127.0.0.1:0",
        "--listen-grpc=off",
        "--listen-resp",
    ];
    let (code, stdout, stderr) = output(&[free[0], free[1], free[2], free[3], &address]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(
        stderr.ends_with("choose another address with --listen-resp\n"),
        "{stderr}"
    );
}

#[test]
fn wrong_arguments_are_named() {
    let cases = [
        ("--config=/nowhere.yaml", "the file cannot be read"),
        (
            "--trusted-proxies=10.0.0.1/8",
            "it has bits beyond its length; 10.0.0.0/8 has not",
        ),
        ("--keys=0", "keys: 0 is not valid: it must be at least 1"),
        (
            "--listen=8080",
            "invalid value '8080' for '--listen <ADDRESS>'",
        ),
        (
            "--listen-resp=on",
            "it must be an address with a port (127.0.0.1:8080, [::1]:8080), `unix:` and a path, or `off`",
        ),
        (
            "--headers=draft-12",
            "there is no such dialect; there are draft-11, next, draft-07, draft-06, draft-03, envoy, x-ratelimit, \
             x-ratelimit-epoch, x-ratelimit-epoch-ms, discord, github, and none",
        ),
        (
            "--headers=draft-11,draft-07",
            "it writes `ratelimit` differently from draft-11; choose one of the two",
        ),
        (
            "--headers=none,github",
            "it means no dialect, so it must stand alone",
        ),
        (
            "--retry-jitter=10",
            "`10` has no unit of time; for seconds write `10s`",
        ),
        ("--retry-jitter=61m", "it must be at most 1h"),
        (
            "--listen-admin=0.0.0.0:0",
            "can be reached from other machines and has no tokens",
        ),
        (
            "--admin-read-token-file=/nowhere",
            "cannot read secret file=/nowhere",
        ),
        (
            "--log-level=loud",
            "it must be off, error, warn, info, debug or trace",
        ),
        ("--log-format=xml", "[possible values: text, json]"),
        ("--log-denials=few", "it must be off, sampled or all"),
        ("--confg=a.yaml", "unexpected argument '--confg' found"),
    ];
    for (argument, expected) in cases {
        let (code, stdout, stderr) = output(&["serve", argument]);
        assert!(matches!(code, Some(1 | 2)) && stdout.is_empty(), "{code:?}");
        assert!(stderr.contains(expected), "{stderr}");
    }
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

/// Out of file descriptors every accept fails. A loop that gave up, or spun, would not be there afterwards.
#[test]
fn it_outlives_running_out_of_file_descriptors() {
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

//! One server process of a fleet. Must not know: its clients, which fault is injected.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tollgate_testkit::process::{Process, TempFolder};
use tollgate_testkit::redis::ShimmedClock;

use crate::harness::{program, tollgate};

/// Longer than any step takes, so only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(30);
const SECRET: &str = "what the fleet of a test shares";

/// Settings in which one server differs from the others.
#[derive(Clone, Copy, Default)]
pub(super) struct ServerOverrides<'a> {
    /// A wall clock that the test controls.
    pub(super) clock: Option<&'a ShimmedClock>,
    /// Another secret than the fleet secret.
    pub(super) secret: Option<&'a str>,
    /// Another program than the one under test, such as that of the previous version.
    pub(super) program: Option<&'a Path>,
}

/// A running `tollgate serve --redis`; it ends when this is dropped.
pub(super) struct Server {
    process: Process,
    pub(super) http: SocketAddr,
    admin: SocketAddr,
}

impl Server {
    /// Starts one of `nodes` servers on free ports, with this policy and further settings.
    pub(super) fn start(redis: &str, nodes: usize, policy: &str, settings: &[&str]) -> Self {
        Self::start_with_overrides(ServerOverrides::default(), redis, nodes, policy, settings)
    }

    /// The same with its own clock or secret.
    pub(super) fn start_with_overrides(
        nature: ServerOverrides<'_>,
        redis: &str,
        nodes: usize,
        policy: &str,
        settings: &[&str],
    ) -> Self {
        let folder = TempFolder::new("fleet").unwrap();
        let policy = folder.write("policy.yaml", policy).unwrap();
        let arguments = ["serve", "--config"];
        let mut command = match nature.program {
            Some(path) => program(path, &arguments),
            None => tollgate(&arguments),
        };
        command
            .arg(policy)
            .args(["--redis", redis])
            .arg(format!("--fleet-nodes={nodes}"))
            .args(settings)
            .env("TOLLGATE_FLEET_SECRET", nature.secret.unwrap_or(SECRET));
        if let Some(clock) = nature.clock {
            clock.wind(&mut command).unwrap();
        }
        Self::run(command, folder)
    }

    /// Starts a server that keeps its state in memory.
    pub(super) fn start_without_redis(policy: &str) -> Self {
        let folder = TempFolder::new("alone").unwrap();
        let policy = folder.write("policy.yaml", policy).unwrap();
        let mut command = tollgate(&["serve", "--config"]);
        command.arg(policy);
        Self::run(command, folder)
    }

    fn run(mut command: Command, folder: TempFolder) -> Self {
        command
            .arg("--log-denials=off")
            .env("TOLLGATE_LISTEN", "127.0.0.1:0")
            .env("TOLLGATE_LISTEN_RESP", "off")
            .env("TOLLGATE_LISTEN_ADMIN", "127.0.0.1:0");
        let process = Process::start("tollgate", &mut command, folder).unwrap();
        let address = |words: &str| {
            process.until_it_says(words).unwrap();
            let log = process.log();
            let (_, rest) = log.split_once(words).unwrap();
            rest.lines().next().unwrap().parse().unwrap()
        };
        Self {
            http: address("listening on http://"),
            admin: address("admin listener on http://"),
            process,
        }
    }

    pub(super) fn kill(&mut self) {
        self.process.kill();
    }

    /// Stops the server with SIGTERM and waits until it has left the fleet.
    pub(super) fn stop(mut self) {
        self.process.signal("TERM").unwrap();
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.process.log());
    }

    pub(super) fn freeze(&self) {
        self.process.freeze().unwrap();
    }

    pub(super) fn thaw(&self) {
        self.process.signal("CONT").unwrap();
    }

    pub(super) fn log(&self) -> String {
        self.process.log()
    }

    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// The sum of a metric over its labels.
    pub(super) fn metric(&self, name: &str) -> f64 {
        let text = get(self.admin, "/metrics");
        assert!(text.contains("tollgate_"), "{text}");
        let is_it = |line: &&str| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
        };
        let lines = text.lines().filter(is_it);
        let numbers = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
        numbers.sum()
    }

    /// An operator's change.
    pub(super) fn put(&self, target: &str, body: &str) {
        let length = body.len();
        let fields = format!("content-type: application/json\r\ncontent-length: {length}\r\n");
        let answer = send(self.admin, &format!("PUT {target}"), &fields, body);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }

    pub(super) fn is_degraded(&self) -> bool {
        self.metric("tollgate_store_degraded") > 0.0
    }

    /// Whether /readyz returns 200.
    pub(super) fn is_ready(&self) -> bool {
        get(self.http, "/readyz").starts_with("HTTP/1.1 200 ")
    }

    /// The resident memory in bytes.
    pub(super) fn resident(&self) -> u64 {
        let said = std::fs::read_to_string(format!("/proc/{}/statm", self.id())).unwrap();
        let pages: u64 = said.split(' ').nth(1).unwrap().parse().unwrap();
        pages * 4_096
    }
}

fn get(address: SocketAddr, target: &str) -> String {
    send(address, &format!("GET {target}"), "", "")
}

fn send(address: SocketAddr, request: &str, fields: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let request =
        format!("{request} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{fields}\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

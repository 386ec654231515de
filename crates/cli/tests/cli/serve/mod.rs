//! `tollgate serve`: startup, responses, reload and invalid settings. The helpers that start a server are in this file.

mod credits;
mod gateway;
mod gateway_clients;
mod gateway_drain;
mod invalid_settings;
mod overload;
mod overload_fleet;
mod reload;
mod responses;
mod startup;
mod state;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use crate::harness::tollgate;

/// Longer than any step takes, so only a hang reaches it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A running `tollgate serve`. It is killed when the test ends.
pub(crate) struct ServerProcess {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) printed: String,
    pub(crate) log: Receiver<String>,
}

impl ServerProcess {
    /// Starts `command` and waits for the whole startup message.
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        // Tests run in parallel, so servers must not use the default ports. Arguments override the variables.
        let set_variables: Vec<_> = command
            .get_envs()
            .map(|(name, _)| name.to_owned())
            .collect();
        for name in [
            "TOLLGATE_LISTEN_GRPC",
            "TOLLGATE_LISTEN_RESP",
            "TOLLGATE_LISTEN_ADMIN",
        ] {
            if !set_variables.iter().any(|one| one == name) {
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
        // An empty line ends the startup message.
        while !served.printed.ends_with("\n\n") {
            let line = stdout
                .recv_timeout(DEADLINE)
                .expect("the whole startup message");
            let http = ["listening on http://", "listening on https://"];
            if let Some(address) = http.iter().find_map(|start| line.strip_prefix(start)) {
                served.address = address.parse().unwrap();
            }
            served.printed += &line;
            served.printed.push('\n');
        }
        served
    }

    /// Starts a server with a policy file and only the HTTP listener.
    pub(crate) fn with_policy(file: &PolicyFile) -> Self {
        let mut command = tollgate(&["serve", "--listen=127.0.0.1:0", "--config"]);
        command.arg(&file.0);
        Self::start(command)
    }

    /// Waits for a log line that contains `text`, and returns the line.
    pub(crate) fn wait_for(&self, text: &str) -> String {
        loop {
            let line = self.log.recv_timeout(DEADLINE).expect(text);
            if line.contains(text) {
                return line;
            }
        }
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(sent.unwrap().success());
    }

    /// Sends a signal and waits for the end. Returns the exit status and the last log line.
    pub(crate) fn stop(mut self, signal: &str) -> (ExitStatus, String) {
        self.signal(signal);
        let last = self.wait_for("stopped");
        (self.child.wait().unwrap(), last)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // The process may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A temporary policy file. It is deleted when the test ends.
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

/// A policy with one limit per API key.
pub(crate) fn policy(rate: &str) -> String {
    format!("limits:\n  - name: demo\n    key: header.x-api-key\n    rate: {rate}\n")
}

/// The status line of the response to a GET, or `None` if the connection closed without one.
pub(crate) fn get(address: SocketAddr, target: &str) -> Option<String> {
    response(address, target)?.lines().next().map(str::to_owned)
}

/// The whole response to a GET.
pub(crate) fn response(address: SocketAddr, target: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(DEADLINE)).ok()?;
    let request = format!("GET {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).ok()?;
    Some(response)
}

/// Reads the lines of a program on a thread, so that waiting for a line can have a deadline.
fn lines(output: impl Read + Send + 'static) -> Receiver<String> {
    // More lines than any test writes. A full channel only blocks the program.
    let (sender, receiver) = mpsc::sync_channel(1_024);
    thread::spawn(move || {
        let written = BufReader::new(output).lines().map_while(Result::ok);
        written
            .map(|line| sender.send(line))
            .all(|sent| sent.is_ok())
    });
    receiver
}

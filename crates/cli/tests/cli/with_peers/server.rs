//! `tollgate serve` with a policy, on free ports. Must not know: its clients.

use std::net::SocketAddr;

use tollgate_testkit::process::{Process, TempFolder};

use super::client::RawRequest;
use crate::harness::tollgate;

/// A running server. It is killed on drop.
pub(super) struct Server {
    process: Process,
    pub(super) http: SocketAddr,
    pub(super) resp: SocketAddr,
    pub(super) grpc: SocketAddr,
}

impl Server {
    /// Starts a server on free ports.
    pub(super) fn start(policy: &str) -> Self {
        Self::start_with(&[], policy)
    }

    /// Starts a server with this HTTP address.
    pub(super) fn start_at(http: SocketAddr, policy: &str) -> Self {
        Self::start_with(&[&format!("--listen={http}")], policy)
    }

    /// Starts a server with further settings. It trusts only the proxy 127.0.0.1, so that clients can use other loopback
    /// addresses.
    pub(super) fn start_with(settings: &[&str], policy: &str) -> Self {
        let folder = TempFolder::new("server").unwrap();
        let policy = folder.write("policy.yaml", policy).unwrap();
        let mut command = tollgate(&["serve", "--trusted-proxies=127.0.0.1", "--config"]);
        command
            .arg(policy)
            .args(settings)
            .env("TOLLGATE_LISTEN", "127.0.0.1:0")
            .env("TOLLGATE_LISTEN_RESP", "127.0.0.1:0")
            .env("TOLLGATE_LISTEN_GRPC", "127.0.0.1:0")
            .env("TOLLGATE_LISTEN_ADMIN", "127.0.0.1:0");
        let process = Process::start("tollgate", &mut command, folder).unwrap();
        let address = |scheme: &str| {
            let words = format!("listening on {scheme}://");
            process.until_it_says(&words).unwrap();
            let log = process.log();
            let (_, rest) = log.split_once(&words).unwrap();
            rest.lines().next().unwrap().parse().unwrap()
        };
        Self {
            http: address("http"),
            resp: address("redis"),
            grpc: address("grpc"),
            process,
        }
    }

    /// Kills the server. Its port is free afterwards.
    pub(super) fn kill(&mut self) {
        self.process.kill();
    }

    /// Stops the process with SIGSTOP, so that it no longer answers.
    pub(super) fn freeze(&self) {
        self.process.signal("STOP").unwrap();
        // A thread may still answer until the signal is delivered.
        self.until("every thread to stand still", || {
            let threads = std::fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap();
            threads.map(Result::unwrap).all(|thread| {
                let status = std::fs::read_to_string(thread.path().join("status")).unwrap();
                status.contains("\nState:\tT")
            })
        });
    }

    pub(super) fn thaw(&self) {
        self.process.signal("CONT").unwrap();
    }

    /// Stops the server with SIGTERM and returns its log.
    pub(super) fn stop(mut self) -> String {
        self.process.signal("TERM").unwrap();
        let status = self.process.wait().unwrap();
        let log = self.process.log();
        assert!(status.success(), "{status}: {log}");
        log
    }

    pub(super) fn is_well(&self) -> bool {
        RawRequest::get("/healthz")
            .try_ask(self.http)
            .is_some_and(|answer| answer.status == 200)
    }

    /// Waits until a condition of the server holds.
    pub(super) fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let came_true = self.process.until(what, || holds().then_some(()));
        assert_eq!(came_true, Ok(()));
    }

    /// The number of open sockets of the process, listening ones included.
    pub(super) fn sockets(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.process.id());
        let open = std::fs::read_dir(folder).unwrap();
        let is_socket = |path: std::io::Result<std::path::PathBuf>| {
            path.is_ok_and(|path| path.to_string_lossy().starts_with("socket:"))
        };
        open.filter(|file| is_socket(std::fs::read_link(file.as_ref().unwrap().path())))
            .count()
    }
}

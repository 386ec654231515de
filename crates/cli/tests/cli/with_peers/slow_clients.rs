//! slowhttptest: attacks by clients that are slow on purpose, to exhaust the connections of a server.
//!
//! During each attack other clients are served. Afterwards every connection is closed.

use std::process::Command;

use tollgate_testkit::peer_programs;
use tollgate_testkit::process::{Process, TempFolder};

use super::server::Server;

const POLICY: &str = "
limits:
  - name: per-address
    key: ip
    rate: 1000/s
";

/// The message of slowhttptest when the server closed every connection before the attack ended.
const ALL_CLOSED: &str = "No open connections left";

/// An attack of one kind, for at most `seconds`.
struct Attack {
    kind: &'static [&'static str],
    target: &'static str,
    clients: usize,
    seconds: u32,
}

impl Attack {
    fn begin(&self, server: &Server) -> Process {
        let folder = TempFolder::new("slowhttptest").unwrap();
        let clients = self.clients.to_string();
        let mut command = Command::new(peer_programs::program("slowhttptest"));
        command
            .args(self.kind)
            .args(["-c", &clients, "-r", &clients])
            .args(["-l", &self.seconds.to_string()])
            .args(["-u", &format!("http://{}{}", server.http, self.target)])
            .current_dir(folder.path());
        Process::start("slowhttptest", &mut command, folder).unwrap()
    }
}

/// Attacks a server with enough connections. Returns the output of slowhttptest.
fn survives(attack: &Attack) -> String {
    let server = Server::start(POLICY);
    let before = server.sockets();
    let mut clients = attack.begin(&server);
    server.until("most of the slow clients", || {
        server.sockets() >= before + attack.clients / 2
    });
    assert!(server.is_well(), "others are served while it lasts");
    assert!(clients.wait().unwrap().success(), "{}", clients.log());
    assert!(server.is_well(), "and afterwards");
    server.until("every connection to be free", || server.sockets() <= before);
    let log = server.stop();
    assert!(log.contains("panics=0"), "{log}");
    assert!(log.contains("refused_connections=0"), "{log}");
    clients.log()
}

#[test]
fn connections_with_endless_headers_are_closed() {
    let said = survives(&Attack {
        kind: &["-H", "-i", "2"],
        target: "/v1/check",
        clients: 300,
        seconds: 25,
    });
    assert!(said.contains(ALL_CLOSED), "{said}");
}

#[test]
fn connections_with_endless_bodies_are_closed() {
    let said = survives(&Attack {
        kind: &["-B", "-i", "2", "-s", "8000"],
        target: "/v1/check",
        clients: 300,
        seconds: 25,
    });
    assert!(said.contains(ALL_CLOSED), "{said}");
}

/// Each connection pipelines five requests for the longest response and reads slowly.
#[test]
fn clients_that_do_not_read_delay_no_others() {
    survives(&Attack {
        kind: &[
            "-X", "-k", "5", "-w", "10", "-y", "20", "-n", "5", "-z", "32",
        ],
        target: "/openapi.json",
        clients: 300,
        seconds: 15,
    });
}

/// When all connections are in use, further ones are refused. When the slow ones time out, there is room again.
#[test]
fn too_many_slow_clients_block_others_only_until_they_time_out() {
    let server = Server::start_with(&["--max-connections=100"], POLICY);
    let before = server.sockets();
    let attack = Attack {
        kind: &["-H", "-i", "2"],
        target: "/v1/check",
        clients: 300,
        seconds: 20,
    };
    let mut clients = attack.begin(&server);
    server.until("every connection to be in use", || {
        server.sockets() >= before + 100
    });
    server.until("room for another client", || server.is_well());
    assert!(clients.wait().unwrap().success(), "{}", clients.log());
    assert!(server.is_well());
    server.until("every connection to be free", || server.sockets() <= before);
    let log = server.stop();
    assert!(!log.contains("refused_connections=0"), "{log}");
    assert!(log.contains("panics=0"), "{log}");
}

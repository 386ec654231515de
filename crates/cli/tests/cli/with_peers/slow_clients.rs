//! slowhttptest: clients that are slow on purpose, so that a server runs out of connections while it waits for them.
//!
//! Each attack is seen to arrive, others are served while it lasts, and afterwards every connection is free again.

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

/// What slowhttptest says when the server has closed every connection before the attack was over.
const ALL_CLOSED: &str = "No open connections left";

/// Slow clients of one kind; `seconds` bound the attack.
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

/// Lets them at a server with room for more of them, and hands out what slowhttptest says of it.
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
fn heads_that_never_end_are_given_up() {
    let said = survives(&Attack {
        kind: &["-H", "-i", "2"],
        target: "/v1/check",
        clients: 300,
        seconds: 25,
    });
    assert!(said.contains(ALL_CLOSED), "{said}");
}

#[test]
fn bodies_that_never_end_are_given_up() {
    let said = survives(&Attack {
        kind: &["-B", "-i", "2", "-s", "8000"],
        target: "/v1/check",
        clients: 300,
        seconds: 25,
    });
    assert!(said.contains(ALL_CLOSED), "{said}");
}

/// Five answers of the longest kind are asked for on each connection and hardly read.
#[test]
fn answers_that_are_not_read_hold_nobody_up() {
    survives(&Attack {
        kind: &[
            "-X", "-k", "5", "-w", "10", "-y", "20", "-n", "5", "-z", "32",
        ],
        target: "/openapi.json",
        clients: 300,
        seconds: 15,
    });
}

/// Who comes when every place is taken is sent away; when the time of the slow ones is over, there is room again.
#[test]
fn more_slow_clients_than_places_keep_others_out_only_until_their_time_is_over() {
    let server = Server::start_with(&["--max-connections=100"], POLICY);
    let before = server.sockets();
    let attack = Attack {
        kind: &["-H", "-i", "2"],
        target: "/v1/check",
        clients: 300,
        seconds: 20,
    };
    let mut clients = attack.begin(&server);
    server.until("every place to be taken", || {
        server.sockets() >= before + 100
    });
    server.until("room for somebody else", || server.is_well());
    assert!(clients.wait().unwrap().success(), "{}", clients.log());
    assert!(server.is_well());
    server.until("every connection to be free", || server.sockets() <= before);
    let log = server.stop();
    assert!(!log.contains("refused_connections=0"), "{log}");
    assert!(log.contains("panics=0"), "{log}");
}

//! S-23 and S-25: a server runs out of files, or is killed while it holds permits.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use tollgate_testkit::chaos::{ScenarioOutcome, seed};
use tollgate_testkit::history::{
    Allowance, Operation, PermitLimit, RecordedReply, RecordedVerdict, Recorder, conservation,
    recovery,
};
use tollgate_testkit::redis::until;

use super::client::Client;
use super::server::Server;
use super::{
    DEADLINE_SET, LONG_DEADLINE, RECOVERY_TIME, TestFleet, bucket, judge, outcome, run_exclusively,
};

#[test]
fn s_23_a_server_out_of_files_keeps_its_clients_and_its_redis() {
    let _exclusive = run_exclusively();
    let mut fleet = TestFleet::start(1, &[DEADLINE_SET], seed(23));
    let load = fleet.load(3, &["alice", "bob"]);
    load.wait_for_answers(30);
    let id = fleet.servers[0].id().to_string();
    let open = std::fs::read_dir(format!("/proc/{id}/fd")).unwrap().count();
    // A few more than it has open now.
    let most = format!("--nofile={0}:{0}", open + 4);
    let set = Command::new("prlimit").args(["--pid", &id, &most]).status();
    assert!(set.unwrap().success());
    // More connections than it can accept. Existing connections continue.
    let connections: Vec<_> = (0..64)
        .map(|_| std::net::TcpStream::connect(fleet.servers[0].http).unwrap())
        .collect();
    load.wait_for_answers(100);
    // Redis restarts meanwhile, and the reconnect uses freed files.
    fleet.node.kill();
    load.until_decided_without(10);
    fleet.node.restart();
    let healed = tollgate_testkit::clock::monotonic();
    drop(connections);
    load.until_decided_by_the_store(30);
    let history = load.end();
    let took = recovery(&history, healed, RECOVERY_TIME * 2).unwrap();
    let allowed = Allowance::of(bucket()).replayed_outages(1).losses(1);
    let judged = judge(&history, &allowed);
    assert!(fleet.servers[0].is_ready(), "it accepts again");
    outcome("S-23 out of files", &judged).recovered(took).tell();
}

/// The permits of a killed server become free when their leases expire, and no earlier.
#[test]
fn s_25_permits_of_a_killed_server_become_free_with_their_leases() {
    const LEASE: Duration = Duration::from_secs(2);
    let policy = "limits: [{ name: in-flight, key: header.x-api-key, concurrency: 4, lease: 2s }]";
    let _exclusive = run_exclusively();
    let mut fleet = TestFleet::start_with_policy(policy, 2, &[LONG_DEADLINE], seed(25));
    let recorder = Recorder::of_process(1);
    let mut clients: Vec<Client> = fleet
        .servers
        .iter()
        .map(|server| Client::new(server.http))
        .collect();
    let acquire = |client: &mut Client, lease: u64| {
        let pending = recorder.invoke();
        let answer = client.post("/v1/acquire", r#"{"key": "alice"}"#).unwrap();
        assert!(!answer.is_degraded(), "{answer:?}");
        let verdict = answer.to_recorded().verdict;
        recorder.complete(
            &pending,
            Operation::Acquire(lease),
            &[("alice", 1)],
            RecordedReply::only(verdict),
        );
        verdict == RecordedVerdict::Admitted
    };
    for lease in 0..4 {
        assert!(acquire(&mut clients[0], lease));
    }
    assert!(!acquire(&mut clients[1], 10), "all permits are held");
    fleet.servers[0].kill();
    let mut lease = 11;
    for _ in 0..4 {
        until("a permit becomes free when its lease expires", || {
            lease += 1;
            acquire(&mut clients[1], lease)
        });
    }
    lease += 1;
    assert!(!acquire(&mut clients[1], lease), "and no more");
    let places = PermitLimit {
        limit: 4,
        lease: LEASE,
    };
    let most = conservation(&recorder.history(), places).unwrap();
    assert_eq!(most, 4);
    ScenarioOutcome::of("S-25 permits of a killed server").tell();
}

/// A server that is frozen for longer than the idle timeout of 5 s dropped requests that arrived meanwhile: after 6 s, 45 of 50
/// connections were reset, because their timers expired before the system reported their input.
#[test]
fn s_24_requests_to_a_server_that_was_frozen_for_longer_than_its_timeouts_are_answered() {
    let _alone = run_exclusively();
    // In memory: the tasks of a fleet wake so often that input was reported in time even before.
    let policy = "limits: [{ name: one, rate: 1000/s }]";
    let servers = [(); 2].map(|()| Server::start_without_redis(policy));
    let [frozen, other] = servers.each_ref();
    let connect = |server: &Server| {
        let stream = TcpStream::connect(server.http).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream
    };
    let ask = |mut stream: &TcpStream| {
        // Not a health check: after the freeze those fail until the watchdog has decided again.
        let request = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
    };
    let read = |mut stream: &TcpStream| {
        let mut answer = [0; 4_096];
        let len = stream.read(&mut answer).unwrap_or(0);
        String::from_utf8_lossy(&answer[..len]).into_owned()
    };
    let connections: Vec<TcpStream> = (0..50).map(|_| connect(frozen)).collect();
    for connection in &connections {
        ask(connection);
        assert!(read(connection).starts_with("HTTP/1.1 200 "));
    }
    frozen.freeze();
    connections.iter().for_each(ask);
    // A connection without requests to the other server ends by its timeout. Then those of the frozen one are over too.
    assert_eq!(read(&connect(other)), "");
    frozen.thaw();
    let answered = connections
        .iter()
        .filter(|one| read(one).starts_with("HTTP/1.1 200 "));
    assert_eq!(answered.count(), connections.len());
}

//! S-23 and S-25: a server runs out of files, or is killed while it holds permits.

use std::process::Command;
use std::time::Duration;

use tollgate_testkit::chaos::{ScenarioOutcome, seed};
use tollgate_testkit::history::{
    Allowance, Operation, PermitLimit, RecordedReply, RecordedVerdict, Recorder, conservation,
    recovery,
};
use tollgate_testkit::redis::until;

use super::client::Client;
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
        let asked = recorder.ask();
        let answer = client.post("/v1/acquire", r#"{"key": "alice"}"#).unwrap();
        assert!(!answer.is_degraded(), "{answer:?}");
        let verdict = answer.to_recorded().verdict;
        recorder.answered(
            &asked,
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
    let most = conservation(&recorder.so_far(), places).unwrap();
    assert_eq!(most, 4);
    ScenarioOutcome::of("S-25 permits of a killed server").tell();
}

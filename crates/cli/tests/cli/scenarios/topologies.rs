//! S-16 to S-20 with server processes: Sentinel fails over, a cluster loses a node or moves slots, and replicas are never
//! called.

use tollgate_testkit::chaos::{ScenarioOutcome, seed};
use tollgate_testkit::clock::monotonic;
use tollgate_testkit::faults::Proxy;
use tollgate_testkit::history::{
    Allowance, availability, bound, coherence_of_each, recovery, spends,
};
use tollgate_testkit::redis::{RedisCluster, RedisNode, RedisSentinels, ServerProgram, until};

use super::client::Client;
use super::{
    DEADLINE_SET, LIMIT, LONG_DEADLINE, Load, POLICY, PRECISION, RECOVERY_TIME, SLACK, addresses,
    bucket, judge, outcome, run_exclusively, servers, state,
};

/// Without a delay of diskless replication, so that tests are fast.
const PLAIN: [&str; 6] = [
    "--save",
    "",
    "--appendonly",
    "no",
    "--repl-diskless-sync-delay",
    "0",
];

/// The milliseconds after which Sentinel and cluster nodes consider a node down: as short as a busy machine allows.
const DOWN_AFTER: u32 = 1_000;

#[test]
fn s_16_three_servers_follow_their_sentinels_to_another_redis() {
    let _exclusive = run_exclusively();
    let _unused = seed(16);
    let mut set = RedisSentinels::start(ServerProgram::Redis, DOWN_AFTER);
    let servers = servers(&set.url(), POLICY, 3, &[DEADLINE_SET]);
    let load = Load::start(&addresses(&servers), 2, &["alice", "bob"]);
    load.wait_for_answers(100);
    set.servers[0].kill();
    load.until_decided_without(12);
    set.until_primary_is(1);
    let healed = monotonic();
    load.until_decided_by_the_store(40);
    set.servers[0].restart();
    load.wait_for_answers(100);
    // One run ended with a single decision without Redis. The recovery is the time until the last such decision, so a later
    // one by the store has to be in the history.
    load.until_decided_by_the_store(40);
    let history = load.end();
    let took = recovery(&history, healed, RECOVERY_TIME).unwrap();
    // Writes that were not replicated are lost: at most one burst per key.
    let allowed = Allowance::of(bucket()).replayed_outages(1).losses(1);
    let judged = judge(&history, &allowed);
    for server in &servers {
        assert!(!server.is_degraded(), "{}", server.log());
    }
    outcome("S-16 sentinels, three servers", &judged)
        .recovered(took)
        .tell();
}

#[test]
fn s_17_when_a_cluster_node_dies_only_its_keys_are_decided_locally() {
    let _exclusive = run_exclusively();
    let _unused = seed(17);
    let mut cluster = RedisCluster::start(ServerProgram::Redis, DOWN_AFTER);
    let servers = servers(&cluster.url(), POLICY, 2, &[DEADLINE_SET]);
    let names: Vec<String> = (0..12).map(|number| format!("client{number}")).collect();
    let keys: Vec<&str> = names.iter().map(String::as_str).collect();
    let load = Load::start(&addresses(&servers), 2, &keys);
    load.wait_for_answers(120);
    cluster.nodes[0].kill();
    until("servers do without it", || {
        servers.iter().all(super::Server::is_degraded)
    });
    let gone = monotonic();
    load.wait_for_answers(60);
    let meanwhile = load.history();
    let mut after = meanwhile.records.iter().filter(|r| r.invoked >= gone);
    assert!(
        after.any(|record| !record.is_degraded),
        "the other nodes are called as before"
    );
    cluster.take_over(3);
    let healed = monotonic();
    load.until_decided_by_the_store(120);
    let history = load.end();
    let took = recovery(&history, healed, RECOVERY_TIME * 2).unwrap();
    let allowed = Allowance::of(bucket()).replayed_outages(1).losses(1);
    let judged = judge(&history, &allowed);
    outcome("S-17 a cluster's node dies, two servers", &judged)
        .recovered(took)
        .tell();
}

#[test]
fn s_18_three_servers_admit_exactly_the_limit_while_slots_move() {
    let _exclusive = run_exclusively();
    let _unused = seed(18);
    let cluster = RedisCluster::start_with(ServerProgram::Redis, DOWN_AFTER, 0);
    let servers = servers(&cluster.url(), POLICY, 3, &[LONG_DEADLINE]);
    let answer = Client::new(servers[0].http).check("alice").unwrap();
    assert!(answer.status == 200 && !answer.is_degraded(), "{answer:?}");
    let found = |cluster: &RedisCluster| {
        let nodes = cluster.nodes.iter().enumerate();
        let mut states = nodes.filter_map(|(index, node)| Some((index, state(node)?)));
        states.next().unwrap()
    };
    let (mut owner, primed) = found(&cluster);
    let names = cluster.nodes[owner].ask(&["KEYS", "tg2:*"]);
    let name = names.lines().next().unwrap();
    let slot: u16 = cluster.nodes[owner]
        .ask(&["CLUSTER", "KEYSLOT", name])
        .parse()
        .unwrap();
    let load = Load::start(&addresses(&servers), 3, &["alice"]);
    for _ in 0..4 {
        load.wait_for_answers(40);
        let to = (owner + 1) % 3;
        cluster.move_slot(slot, owner, to);
        owner = to;
    }
    load.wait_for_answers(LIMIT);
    let history = load.end();
    let moved = found(&cluster).1 - primed;
    let spent = spends(&history, "alice", bucket(), moved).unwrap();
    let worst = bound(&history, &Allowance::of(bucket())).unwrap();
    assert!(worst.admitted >= LIMIT - 1 - spent.unheard, "{spent:?}");
    coherence_of_each(&history, bucket(), PRECISION).unwrap();
    let speed = availability(&history, SLACK * 40).unwrap();
    for server in &servers {
        assert!(!server.log().contains("CROSSSLOT"), "{}", server.log());
    }
    ScenarioOutcome::of("S-18 slots move, three servers")
        .worst(&worst)
        .speed(speed)
        .lost(0)
        .tell();
}

#[test]
fn s_19_a_split_admits_at_most_twice_and_ends_when_it_is_healed() {
    let _exclusive = run_exclusively();
    let _unused = seed(19);
    let (here, there) = (
        RedisNode::start(ServerProgram::Redis, &PLAIN),
        RedisNode::start(ServerProgram::Redis, &PLAIN),
    );
    let follow = |one: &RedisNode, other: &RedisNode| {
        let port = other.address().port().to_string();
        one.tell(&["REPLICAOF", "127.0.0.1", &port]);
        until("it follows", || {
            one.info("master_link_status").as_deref() == Some("up")
        });
    };
    follow(&there, &here);
    // The proxy of the second server switches to the other side once that is a primary.
    let near = Proxy::to(here.address());
    let far = Proxy::to(here.address());
    let servers = [
        super::Server::start(&near.url(), 2, POLICY, &[DEADLINE_SET]),
        super::Server::start(&far.url(), 2, POLICY, &[DEADLINE_SET]),
    ];
    let load = Load::start(&servers.each_ref().map(|server| server.http), 2, &["alice"]);
    load.wait_for_answers(60);
    there.tell(&["REPLICAOF", "NO", "ONE"]);
    far.lead_to(there.address());
    far.reset();
    load.wait_for_answers(LIMIT);
    // Healed: the old primary becomes a replica and loses its writes, and its server switches over.
    follow(&here, &there);
    near.lead_to(there.address());
    near.reset();
    let healed = monotonic();
    load.wait_for_answers(40);
    load.until_decided_by_the_store(40);
    load.wait_for_answers(LIMIT);
    load.until_decided_by_the_store(40);
    let history = load.end();
    let took = recovery(&history, healed, RECOVERY_TIME).unwrap();
    // One burst for the lost writes, and the local decisions while a server had no primary.
    let allowed = Allowance::of(bucket()).losses(1).replayed_outages(1);
    let worst = bound(&history, &allowed).unwrap();
    let speed = availability(&history, super::DEADLINE + SLACK).unwrap();
    ScenarioOutcome::of("S-19 a split, two servers")
        .worst(&worst)
        .speed(speed)
        .lost(0)
        .recovered(took)
        .tell();
}

#[test]
fn s_20_a_replica_is_never_called_although_it_would_answer() {
    let _exclusive = run_exclusively();
    let _unused = seed(20);
    let (primary, replica) = (
        RedisNode::start(ServerProgram::Redis, &PLAIN),
        RedisNode::start(ServerProgram::Redis, &PLAIN),
    );
    let port = primary.address().port().to_string();
    replica.tell(&["REPLICAOF", "127.0.0.1", &port]);
    until("it follows", || {
        replica.info("master_link_status").as_deref() == Some("up")
    });
    let server = super::Server::start(&replica.url(), 1, POLICY, &[DEADLINE_SET]);
    let mut client = Client::new(server.http);
    for _ in 0..20 {
        let answer = client.check("alice").unwrap();
        assert!(answer.status == 200 && answer.is_degraded(), "{answer:?}");
    }
    assert_eq!(replica.calls("evalsha"), 0);
    until("the log says why", || {
        server.log().contains("it is a replica")
    });
    replica.tell(&["REPLICAOF", "NO", "ONE"]);
    until("it is asked once it is promoted", || {
        !client.check("alice").unwrap().is_degraded()
    });
    ScenarioOutcome::of("S-20 a replica").tell();
}

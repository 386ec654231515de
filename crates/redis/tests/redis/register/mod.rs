//! The register of a fleet on real servers: its nodes, its entries, and their expiry.

use std::time::Duration;

use tollgate_core::Nanos;
use tollgate_redis::{KeyHashSecret, RedisOptions, RedisRegister, RedisStore};
use tollgate_store::StoreErrorKind;
use tollgate_store::register::{
    ENTRY_TTL, FleetName, Heartbeat, MAX_BODY_LEN, MAX_ENTRIES, MAX_NODES, MAX_PUTS, MemberList,
    NodeId, NodeLoad, PutMode, Register, RegisterCursor, RegisterPut, RegisterSnapshot,
    TOMBSTONE_TTL,
};
use tollgate_testkit::redis::{Cluster, Kind, Node, Server};
use tollgate_testkit::register::ModelRegister;

use crate::server_time::{LONG_TIMEOUT, connection};
use crate::topology::wait_until;

/// Long enough that no node expires on a busy machine.
const LIFE: Nanos = Nanos::from_secs(30);

async fn register_with(url: String, secret: [u8; 16]) -> RedisRegister {
    let mut options = RedisOptions::new(url, KeyHashSecret::new(secret));
    options.connect_deadline = LONG_TIMEOUT;
    let store = RedisStore::connect(options).await.unwrap();
    RedisRegister::new(&store, &FleetName::default()).with_deadline(LONG_TIMEOUT)
}

async fn register(url: String) -> RedisRegister {
    register_with(url, *b"tests of a fleet").await
}

fn heartbeat(node: u64) -> Heartbeat {
    Heartbeat {
        node: NodeId(node),
        secret_fingerprint: 1,
        policy_fingerprint: 2,
        generation: 3,
        version: "0.6.0".into(),
        load: NodeLoad::from_numbers([node, 10]),
    }
}

fn set(name: &str, body: &str) -> RegisterPut {
    RegisterPut {
        name: name.into(),
        body: body.as_bytes().into(),
        mode: PutMode::Set,
        expires_in: None,
    }
}

fn remove(name: &str) -> RegisterPut {
    RegisterPut {
        mode: PutMode::Remove,
        ..set(name, "why")
    }
}

fn nodes(members: &MemberList) -> Vec<u64> {
    members
        .nodes
        .iter()
        .map(|node| node.heartbeat.node.0)
        .collect()
}

/// Entries in short form: `name=body`, or `name-` for a tombstone.
fn summary(snapshot: &RegisterSnapshot) -> Vec<String> {
    let summarize = |entry: &tollgate_store::register::RegisterEntry| {
        let body = String::from_utf8_lossy(&entry.body);
        match entry.is_tombstone {
            true => format!("{}-", entry.name),
            false => format!("{}={body}", entry.name),
        }
    };
    snapshot.entries.iter().map(summarize).collect()
}

fn time_to_live(server: &Server) -> Vec<(String, i64)> {
    let mut connection = connection(server);
    let names: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    let ttl = |name: String| {
        let ttl = redis::cmd("PTTL").arg(&name).query(&mut connection);
        (name, ttl.unwrap())
    };
    names.into_iter().map(ttl).collect()
}

#[tokio::test]
async fn nodes_see_each_other_whatever_their_secrets_and_what_they_have_to_do_is_added_up() {
    for kind in Kind::under_test() {
        let server = Server::start(kind);
        let registers = [
            register(server.url()).await,
            register(server.url()).await,
            register_with(server.url(), *b"another secret..").await,
        ];
        for (register, node) in registers.iter().zip(1..) {
            register.heartbeat(&heartbeat(node), LIFE).await.unwrap();
        }
        for (register, node) in registers.iter().zip(1..) {
            let members = register.heartbeat(&heartbeat(node), LIFE).await.unwrap();
            assert_eq!(nodes(&members), [1, 2, 3], "{kind:?}");
            assert_eq!(members.load, NodeLoad::from_numbers([6, 30]));
            assert_eq!(
                members.cursor,
                RegisterCursor::default(),
                "nothing was said yet"
            );
            assert_eq!(members.nodes[0].heartbeat, heartbeat(1));
            assert!(
                members.nodes.iter().all(|node| node.age < LIFE),
                "{members:?}"
            );
        }
        registers[0].leave(NodeId(2)).await.unwrap();
        let members = registers[0].heartbeat(&heartbeat(1), LIFE).await.unwrap();
        assert_eq!(nodes(&members), [1, 3], "who leaves is gone at once");
        for (name, ttl) in time_to_live(&server) {
            assert!(name.starts_with("tg1:{fleet:default}:"), "{name}");
            assert!((1..=30_000).contains(&ttl), "{name} lives for {ttl}");
        }
    }
}

#[tokio::test]
async fn fleets_of_different_names_do_not_see_each_other() {
    let server = Server::start(Kind::Redis);
    let store = RedisStore::connect(RedisOptions::new(server.url(), crate::SECRET))
        .await
        .unwrap();
    let named =
        |name: &str| RedisRegister::new(&store, &name.parse().unwrap()).with_deadline(LONG_TIMEOUT);
    let (one, two) = (named("one"), named("two"));
    one.heartbeat(&heartbeat(1), LIFE).await.unwrap();
    one.put(NodeId(1), 1, &[set("a", "1")]).await.unwrap();
    let members = two.heartbeat(&heartbeat(2), LIFE).await.unwrap();
    assert_eq!(
        (nodes(&members), members.cursor),
        (vec![2], RegisterCursor::default())
    );
}

#[tokio::test]
async fn s_26_a_node_that_is_not_heard_of_is_gone_after_its_life_by_the_servers_clock_alone() {
    let (server, mut clock) =
        Server::start_with_clock(Kind::Redis, Duration::from_secs(1_800_000_000));
    let register = register(server.url()).await;
    let life = Nanos::from_secs(3);
    register.heartbeat(&heartbeat(1), life).await.unwrap();
    register.heartbeat(&heartbeat(2), life).await.unwrap();
    clock.advance(Duration::from_secs(2));
    let members = register.heartbeat(&heartbeat(1), life).await.unwrap();
    assert_eq!(nodes(&members), [1, 2]);
    assert_eq!(members.nodes[1].age, Nanos::from_secs(2));
    clock.advance(Duration::from_secs(1));
    let members = register.heartbeat(&heartbeat(1), life).await.unwrap();
    assert_eq!(nodes(&members), [1], "its life is over");
    // A clock that goes back by a day must not extend the lease of a dead node.
    register.heartbeat(&heartbeat(2), life).await.unwrap();
    clock.set_back(Duration::from_secs(86_400));
    let members = register.heartbeat(&heartbeat(1), life).await.unwrap();
    assert_eq!(nodes(&members), [1]);
}

#[tokio::test]
async fn what_was_said_is_told_to_everybody_once_and_to_newcomers_whole() {
    for kind in Kind::under_test() {
        let server = Server::start(kind);
        let (one, two) = (register(server.url()).await, register(server.url()).await);
        let nothing = one.entries(None).await.unwrap();
        assert_eq!((nothing.is_complete, nothing.entries.len()), (true, 0));
        let changes = [set("a", "1"), set("b", "2"), set("c", "3")];
        let first = one.put(NodeId(1), 1, &changes).await.unwrap();
        assert_eq!(
            two.heartbeat(&heartbeat(2), LIFE).await.unwrap().cursor,
            first
        );
        let snapshot = two.entries(None).await.unwrap();
        assert_eq!(
            (summary(&snapshot), snapshot.cursor),
            (vec!["a=1".into(), "b=2".into(), "c=3".into()], first)
        );
        assert!(snapshot.is_complete);
        let second = two
            .put(NodeId(2), 1, &[set("a", "4"), remove("b")])
            .await
            .unwrap();
        assert!(second.epoch == first.epoch && second.version > first.version);
        let news = one.entries(Some(first)).await.unwrap();
        assert_eq!(
            (summary(&news), news.is_complete),
            (vec!["a=4".into(), "b-".into()], false)
        );
        assert_eq!(news.cursor, second);
        assert_eq!(one.entries(Some(second)).await.unwrap().entries, []);
        for (name, ttl) in time_to_live(&server) {
            let most = i64::try_from(ENTRY_TTL.as_nanos() / 1_000_000).unwrap();
            assert!((1..=most).contains(&ttl), "{name} lives for {ttl}");
        }
    }
}

#[tokio::test]
async fn i02_what_is_put_again_is_not_put_twice() {
    let server = Server::start(Kind::Redis);
    let register = register(server.url()).await;
    let first = register
        .put(NodeId(1), 1, &[set("a", "old")])
        .await
        .unwrap();
    let second = register
        .put(NodeId(2), 1, &[set("a", "new")])
        .await
        .unwrap();
    assert!(second.version > first.version);
    // Node 1 missed the reply. Its repeated put must not overwrite the later one.
    let again = register
        .put(NodeId(1), 1, &[set("a", "old")])
        .await
        .unwrap();
    assert_eq!(again, second);
    assert_eq!(summary(&register.entries(None).await.unwrap()), ["a=new"]);
    register
        .put(NodeId(1), 2, &[set("a", "newest")])
        .await
        .unwrap();
    assert_eq!(
        summary(&register.entries(None).await.unwrap()),
        ["a=newest"]
    );
}

#[tokio::test]
async fn entries_end_and_who_was_away_for_too_long_is_told_everything() {
    let (server, mut clock) =
        Server::start_with_clock(Kind::Redis, Duration::from_secs(1_800_000_000));
    let register = register(server.url()).await;
    let for_a_minute = RegisterPut {
        expires_in: Some(Nanos::MINUTE),
        ..set("short", "1")
    };
    let changes = [for_a_minute, set("long", "2"), set("gone", "3")];
    let early = register.put(NodeId(1), 1, &changes).await.unwrap();
    clock.advance(Duration::from_secs(45));
    let snapshot = register.entries(None).await.unwrap();
    assert_eq!(snapshot.entries[0].expires_in, Some(Nanos::from_secs(15)));
    let late = register.put(NodeId(1), 2, &[remove("gone")]).await.unwrap();
    clock.advance(Duration::from_secs(15));
    let snapshot = register.entries(None).await.unwrap();
    assert_eq!(summary(&snapshot), ["long=2", "gone-"]);
    clock.advance(Duration::from_nanos(TOMBSTONE_TTL.as_nanos()));
    let snapshot = register.entries(Some(early)).await.unwrap();
    assert_eq!(
        (summary(&snapshot), snapshot.is_complete),
        (vec!["long=2".to_owned()], true)
    );
    let snapshot = register.entries(Some(late)).await.unwrap();
    assert_eq!(
        (summary(&snapshot), snapshot.is_complete),
        (vec![], false),
        "who has heard it need not"
    );
}

#[tokio::test]
async fn i15_what_was_said_outlives_all_nodes_and_is_kept_as_long_as_one_is_there() {
    let (server, mut clock) =
        Server::start_with_clock(Kind::Redis, Duration::from_secs(1_800_000_000));
    let register = register(server.url()).await;
    register.put(NodeId(1), 1, &[set("a", "1")]).await.unwrap();
    let day = Duration::from_secs(86_400);
    for _ in 0..3 {
        clock.advance(day * 20);
        assert_eq!(summary(&register.entries(None).await.unwrap()), ["a=1"]);
        register.heartbeat(&heartbeat(1), LIFE).await.unwrap();
    }
    clock.advance(day * 31);
    let snapshot = register.entries(None).await.unwrap();
    assert_eq!(
        (summary(&snapshot), snapshot.cursor),
        (vec![], RegisterCursor::default())
    );
    assert_eq!(time_to_live(&server), [], "nothing is left behind");
}

#[tokio::test]
async fn a_register_that_has_lost_everything_says_so_and_is_filled_with_what_is_absent() {
    let server = Server::start(Kind::Redis);
    let register = register(server.url()).await;
    let before = register.put(NodeId(1), 1, &[set("a", "1")]).await.unwrap();
    let flush = redis::cmd("FLUSHALL").query::<()>(&mut connection(&server));
    flush.unwrap();
    let members = register.heartbeat(&heartbeat(1), LIFE).await.unwrap();
    assert_eq!(members.cursor, RegisterCursor::default());
    register
        .put(NodeId(2), 1, &[set("a", "2"), remove("b")])
        .await
        .unwrap();
    let heal = |name: &str, body: &str| RegisterPut {
        mode: PutMode::SetIfAbsent,
        ..set(name, body)
    };
    let heals = [heal("a", "1"), heal("b", "1"), heal("c", "1")];
    register.put(NodeId(1), 2, &heals).await.unwrap();
    let snapshot = register.entries(Some(before)).await.unwrap();
    assert!(snapshot.is_complete && snapshot.cursor.epoch != before.epoch);
    assert_eq!(summary(&snapshot), ["a=2", "b-", "c=1"]);
}

#[tokio::test]
async fn everything_is_bounded_and_errors_say_by_what() {
    let server = Server::start(Kind::Redis);
    let register = register(server.url()).await;
    register.heartbeat(&heartbeat(5), LIFE).await.unwrap();
    // In one call, so that on a busy machine the first node does not expire before the last one is added.
    let crowd = "local t = redis.call('TIME')[1] * 1000 + 50000 \
        for n = 2, tonumber(ARGV[1]) do \
            redis.call('HSET', KEYS[1], 'node' .. n, 'x') redis.call('ZADD', KEYS[2], t, 'node' .. n) \
        end";
    let mut crowding = redis::cmd("EVAL");
    crowding
        .arg(crowd)
        .arg(2)
        .arg(&["tg1:{fleet:default}:nodes", "tg1:{fleet:default}:lives"]);
    let crowded = crowding
        .arg(MAX_NODES)
        .query::<()>(&mut connection(&server));
    crowded.unwrap();
    let error = register
        .heartbeat(&heartbeat(9_999), LIFE)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    assert!(error.to_string().contains("1024 nodes"), "{error}");
    let members = register.heartbeat(&heartbeat(5), LIFE).await.unwrap();
    assert_eq!(members.count(), MAX_NODES, "who is in stays in");

    let name = |n: usize| format!("override/api/{n:032x}");
    let all: Vec<RegisterPut> = (0..MAX_ENTRIES).map(|n| set(&name(n), "x")).collect();
    let batches = all.chunks(MAX_PUTS);
    for (batch, number) in batches.zip(1..) {
        register.put(NodeId(1), number, batch).await.unwrap();
    }
    let one_more = [set("switch", "x")];
    let error = register.put(NodeId(1), 100, &one_more).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    assert!(
        error
            .to_string()
            .contains("10000 switches, overrides and blocks"),
        "{error}"
    );
    let known = [set(&name(3), "y"), remove(&name(4)), remove("unheard of")];
    register.put(NodeId(1), 100, &known).await.unwrap();
    let snapshot = register.entries(None).await.unwrap();
    assert_eq!(
        snapshot.entries.len(),
        MAX_ENTRIES,
        "on many pages, none twice"
    );
    let large = [set("large", &"x".repeat(MAX_BODY_LEN + 1))];
    let error = register.put(NodeId(1), 101, &large).await.unwrap_err();
    assert!(error.is_callers_fault(), "{error}");
}

#[tokio::test]
async fn large_entries_come_in_replies_of_bounded_size() {
    let server = Server::start(Kind::Redis);
    let register = register(server.url()).await;
    let large: Vec<RegisterPut> = (0..60)
        .map(|n| set(&format!("n{n}"), &"x".repeat(MAX_BODY_LEN)))
        .collect();
    let mark = register.put(NodeId(1), 1, &large).await.unwrap();
    let snapshot = register.entries(None).await.unwrap();
    assert_eq!((snapshot.entries.len(), snapshot.cursor), (60, mark));
    let names: std::collections::HashSet<_> =
        snapshot.entries.iter().map(|entry| &entry.name).collect();
    assert_eq!(names.len(), 60);
}

#[tokio::test]
async fn without_a_server_every_call_ends_and_once_it_is_there_they_work() {
    let mut node = Node::start(Kind::Redis, &["--save", "", "--appendonly", "no"]);
    let register = register(node.url())
        .await
        .with_deadline(Duration::from_millis(500));
    register.heartbeat(&heartbeat(1), LIFE).await.unwrap();
    node.kill();
    let failed = register.heartbeat(&heartbeat(1), LIFE).await.unwrap_err();
    assert!(!failed.is_callers_fault(), "{failed}");
    register.entries(None).await.unwrap_err();
    node.restart();
    wait_until("the register answers again", || async {
        register.heartbeat(&heartbeat(1), LIFE).await.is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_and_on_several_servers_every_node_finds_the_same_place() {
    let _exclusive = crate::topology::exclusive().await;
    let cluster = Cluster::start_with(Kind::Redis, 15_000, 0);
    let shards: Vec<Node> = (0..3)
        .map(|_| Node::start(Kind::Redis, &["--save", "", "--appendonly", "no"]))
        .collect();
    for url in [cluster.url(), crate::topology::shards_url(&shards)] {
        let one = register(url.clone()).await;
        let two = register_with(url.clone(), *b"another secret..").await;
        one.heartbeat(&heartbeat(1), LIFE).await.unwrap();
        one.put(NodeId(1), 1, &[set("a", "1")]).await.unwrap();
        let members = two.heartbeat(&heartbeat(2), LIFE).await.unwrap();
        assert_eq!(nodes(&members), [1, 2], "{url}");
        assert_eq!(summary(&two.entries(None).await.unwrap()), ["a=1"], "{url}");
    }
    let holders = shards.iter().filter(|node| node.ask(&["DBSIZE"]) != "0");
    assert_eq!(holders.count(), 1, "one of them has all of it");
}

/// A copy of all keys, to simulate the promotion of a lagging replica.
fn snapshot(server: &Server) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut connection = connection(server);
    let names: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    let dump = |name: Vec<u8>| {
        let dumped = redis::cmd("DUMP").arg(&name).query(&mut connection);
        (name, dumped.unwrap())
    };
    names.into_iter().map(dump).collect()
}

fn restore(server: &Server, snapshot: &[(Vec<u8>, Vec<u8>)]) {
    let mut connection = connection(server);
    let flushed = redis::cmd("FLUSHALL").query::<()>(&mut connection);
    flushed.unwrap();
    for (name, dumped) in snapshot {
        let mut restore = redis::cmd("RESTORE");
        restore.arg(name).arg(3_600_000).arg(dumped);
        restore.query::<()>(&mut connection).unwrap();
    }
}

#[tokio::test]
async fn s_16_a_register_that_lost_its_end_in_a_failover_says_so_even_if_others_have_put_since() {
    let server = Server::start(Kind::Redis);
    let register = register(server.url()).await;
    let early = register.put(NodeId(1), 1, &[set("a", "1")]).await.unwrap();
    let copy = snapshot(&server);
    let late = register.put(NodeId(1), 2, &[set("b", "2")]).await.unwrap();
    restore(&server, &copy);
    let snapshot = register.entries(Some(late)).await.unwrap();
    assert_eq!(
        (snapshot.lost_after, snapshot.is_complete),
        (Some(early.version), true)
    );
    assert_eq!(summary(&snapshot), ["a=1"]);
    let later = register.put(NodeId(2), 1, &[set("c", "3")]).await.unwrap();
    assert!(later.version > late.version, "no version is given twice");
    let snapshot = register.entries(Some(late)).await.unwrap();
    assert_eq!(snapshot.lost_after, Some(early.version));
    assert_eq!(summary(&snapshot), ["a=1", "c=3"]);
    let snapshot = register.entries(Some(later)).await.unwrap();
    assert_eq!((snapshot.lost_after, snapshot.entries.len()), (None, 0));
}

/// Random numbers that repeat with the seed (splitmix64).
struct SplitMix(u64);

impl SplitMix {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % bound
    }
}

/// Runs the same calls on the register and on the model. Returns the first difference.
async fn compare(seed: u64, real: &RedisRegister, model: &ModelRegister) -> Option<String> {
    let mut rng = SplitMix(seed);
    let mut numbers = [0_u64; 3];
    let mut marks: Vec<(Option<RegisterCursor>, Option<RegisterCursor>)> = vec![(None, None)];
    for step in 0..60 {
        let node = rng.below(3);
        if rng.below(3) == 0 {
            let pick = usize::try_from(rng.below(marks.len() as u64)).unwrap();
            let (since, as_model_has_it) = marks[pick];
            let one = real.entries(since).await.unwrap();
            let two = model.entries_now(as_model_has_it).unwrap();
            let of = |snapshot: &RegisterSnapshot| {
                (
                    summary(snapshot),
                    snapshot.is_complete,
                    snapshot.lost_after.is_some(),
                )
            };
            if of(&one) != of(&two) {
                return Some(format!(
                    "seed {seed}, step {step}: {:?} {:?}",
                    of(&one),
                    of(&two)
                ));
            }
            marks.push((Some(one.cursor), Some(two.cursor)));
            continue;
        }
        let number = &mut numbers[usize::try_from(node).unwrap()];
        // Sometimes repeat the last number.
        *number += u64::from(*number == 0 || rng.below(5) > 0);
        let change = |rng: &mut SplitMix| {
            let how = [PutMode::Set, PutMode::SetIfAbsent, PutMode::Remove]
                [usize::try_from(rng.below(3)).unwrap()];
            RegisterPut {
                mode: how,
                ..set(&format!("n{}", rng.below(4)), &rng.below(100).to_string())
            }
        };
        let changes: Vec<RegisterPut> = (0..=rng.below(3)).map(|_| change(&mut rng)).collect();
        let one = real.put(NodeId(node), *number, &changes).await.unwrap();
        let two = model.put_now(NodeId(node), *number, &changes).unwrap();
        marks.push((Some(one), Some(two)));
    }
    None
}

#[tokio::test]
async fn it_answers_like_the_model_whatever_is_put_in_which_order() {
    for kind in Kind::under_test() {
        let server = Server::start(kind);
        let real = register(server.url()).await;
        for seed in 0..15 {
            let flushed = redis::cmd("FLUSHALL").query::<()>(&mut connection(&server));
            flushed.unwrap();
            let difference = compare(seed, &real, &ModelRegister::default()).await;
            assert_eq!(difference, None, "{kind:?}");
        }
    }
}

#[tokio::test]
async fn control_a_register_that_knows_more_than_the_model_is_noticed() {
    let server = Server::start(Kind::Redis);
    let real = register(server.url()).await;
    real.put(NodeId(9), 1, &[remove("n0")]).await.unwrap();
    let model = ModelRegister::default();
    assert!(compare(1, &real, &model).await.is_some());
}

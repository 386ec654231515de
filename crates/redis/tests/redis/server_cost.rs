//! The server's cost per key and per decision, compared with the widely published script. `cargo xtask bench redis`
//! measures the time.

use redis::Connection;
use tollgate_core::{Rate, TokenBucket};
use tollgate_redis::ReservationRetention;
use tollgate_redis::wire::{ScriptCall, ScriptKind};
use tollgate_store::{IdentifiedLimit, Op, QuotaCheck, StoreKey};
use tollgate_testkit::redis::{RedisServer, ServerProgram, article_script, info};

use crate::SECRET;
use crate::server_time::{connection, numbered_limit, slow_bucket};

/// The number of keys of the reference numbers: the fill level of the server's tables is part of the cost.
const KEYS: u64 = 50_000;

fn load(connection: &mut Connection, text: &str) -> String {
    let load = redis::cmd("SCRIPT").arg("LOAD").arg(text).query(connection);
    load.unwrap()
}

/// A section of `INFO`.
fn info(connection: &mut Connection, section: &str) -> String {
    let info = redis::cmd("INFO").arg(section).query(connection);
    info.unwrap()
}

fn used_memory(connection: &mut Connection) -> f64 {
    info::number(&info(connection, "memory"), "used_memory").unwrap()
}

fn check<'a>(key: &'a [u8], limit: &'a IdentifiedLimit) -> QuotaCheck<'a> {
    QuotaCheck {
        key: StoreKey::new(key).unwrap(),
        limit,
        op: Op::Spend(1),
    }
}

fn ours(digest: &str, key: u64, limit: &IdentifiedLimit) -> redis::Cmd {
    let key = key.to_be_bytes();
    let check = check(&key, limit);
    let request = ScriptCall::new(SECRET, ReservationRetention::default(), &[check], None);
    command(digest, &request.unwrap())
}

/// A decision of a leased limit about a key that is not used often.
fn unleased(digest: &str, key: u64, limit: &IdentifiedLimit) -> redis::Cmd {
    let key = key.to_be_bytes();
    let request = ScriptCall::for_unleased_spend(SECRET, &check(&key, limit), None);
    command(digest, &request.unwrap())
}

fn command(digest: &str, request: &ScriptCall) -> redis::Cmd {
    let mut call = redis::cmd("EVALSHA");
    call.arg(digest).arg(request.keys.len());
    for bytes in request.keys.iter().chain(&request.args) {
        call.arg(bytes);
    }
    call
}

fn published(digest: &str, key: u64, burst: u64) -> redis::Cmd {
    let mut call = redis::cmd("EVALSHA");
    call.arg(digest).arg(1).arg(article_script::key(key));
    call.arg(&article_script::arguments(10.0, burst, 1));
    call
}

fn run(connection: &mut Connection, calls: impl Iterator<Item = redis::Cmd>) {
    let mut pipe = redis::pipe();
    let mut waiting = 0;
    for call in calls {
        pipe.add_command(call).ignore();
        waiting += 1;
        if waiting == 500 {
            pipe.query::<()>(connection).unwrap();
            (pipe, waiting) = (redis::pipe(), 0);
        }
    }
    if waiting > 0 {
        pipe.query::<()>(connection).unwrap();
    }
}

/// What decides about the keys.
#[derive(Clone, Copy, Debug)]
enum Decider {
    Exact,
    Unleased,
    Published,
}

/// Limits have the largest number, so names are as long as they are through the server, where numbers are hashes.
fn bytes_per_key(kind: ServerProgram, decider: Decider) -> f64 {
    let server = RedisServer::start(kind);
    let mut connection = connection(&server);
    let limit = numbered_limit(u16::MAX, slow_bucket(100));
    let text = match decider {
        Decider::Exact => ScriptKind::Spend.script().text,
        Decider::Unleased => ScriptKind::SpendUnleased.script().text,
        Decider::Published => article_script::SCRIPT,
    };
    let digest = load(&mut connection, text);
    let call = |key| match decider {
        Decider::Exact => ours(&digest, key, &limit),
        Decider::Unleased => unleased(&digest, key, &limit),
        Decider::Published => published(&digest, key, 100),
    };
    run(&mut connection, (0..1).map(call));
    let before = used_memory(&mut connection);
    run(&mut connection, (1..=KEYS).map(call));
    (used_memory(&mut connection) - before) / KEYS as f64
}

/// A name of 31 bytes takes 16 bytes more than one of 30. Limits of a server have large numbers, so their names had 31, and those of
/// leased buckets had 31 after that. The server keeps the state of an exact bucket as an integer, which saves an allocation; that of a
/// leased bucket is a string.
#[test]
fn a_token_bucket_takes_at_most_135_bytes_and_a_leased_one_150() {
    for kind in ServerProgram::under_test() {
        let published = bytes_per_key(kind, Decider::Published);
        for (decider, most) in [(Decider::Exact, 135.0), (Decider::Unleased, 150.0)] {
            let ours = bytes_per_key(kind, decider);
            println!(
                "{kind:?}, {decider:?}: {ours:.0} bytes per token bucket, {published:.0} by the published script"
            );
            assert!(ours < published);
            assert!(kind != ServerProgram::Redis || ours <= most, "{ours}");
        }
    }
}

/// Commands that scripts ran since the counters were reset, per call.
fn commands_per_call(connection: &mut Connection, calls: u64) -> f64 {
    let stats = info(connection, "commandstats");
    let inside = ["get", "mget", "set", "time", "hmget", "hmset", "expire"];
    let counts = inside.iter().filter_map(|name| info::command(&stats, name));
    counts.map(|command| command.calls).sum::<u64>() as f64 / calls as f64
}

/// Commands that one call of our script and one of the published script run.
fn commands(burst: u64) -> [f64; 2] {
    let server = RedisServer::start(ServerProgram::Redis);
    let mut connection = connection(&server);
    let bucket = TokenBucket::builder(Rate::per_second(10));
    let limit = numbered_limit(1, bucket.burst(burst).build().unwrap());
    let our_digest = load(&mut connection, ScriptKind::Spend.script().text);
    let their_digest = load(&mut connection, article_script::SCRIPT);
    [true, false].map(|is_ours| {
        // Once to fill or use up, once to count.
        for _ in 0..2 {
            let reset = redis::cmd("CONFIG")
                .arg("RESETSTAT")
                .query::<()>(&mut connection);
            reset.unwrap();
            let calls = (0..250).map(|key| match is_ours {
                true => ours(&our_digest, key, &limit),
                false => published(&their_digest, key, burst),
            });
            run(&mut connection, calls);
        }
        commands_per_call(&mut connection, 250)
    })
}

/// The number of commands is the same on every machine, unlike the time.
#[test]
fn a_decision_runs_fewer_commands_than_the_published_script() {
    for (burst, what) in [(1_000_000, "admit"), (1, "deny")] {
        let [ours, published] = commands(burst);
        assert!(ours < published, "{what}: {ours} commands and {published}");
        assert!(ours > 1.0, "{what}: nothing was counted");
    }
}

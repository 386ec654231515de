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

fn ours(digest: &str, key: u64, limit: &IdentifiedLimit) -> redis::Cmd {
    let key = key.to_be_bytes();
    let check = QuotaCheck {
        key: StoreKey::new(&key).unwrap(),
        limit,
        op: Op::Spend(1),
    };
    let request = ScriptCall::new(SECRET, ReservationRetention::default(), &[check], None).unwrap();
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

fn bytes_per_key(kind: ServerProgram, is_ours: bool) -> f64 {
    let server = RedisServer::start(kind);
    let mut connection = connection(&server);
    let limit = numbered_limit(1, slow_bucket(100));
    let digest = load(
        &mut connection,
        if is_ours {
            ScriptKind::Spend.script().text
        } else {
            article_script::SCRIPT
        },
    );
    let call = |key| {
        if is_ours {
            ours(&digest, key, &limit)
        } else {
            published(&digest, key, 100)
        }
    };
    run(&mut connection, (0..1).map(call));
    let before = used_memory(&mut connection);
    run(&mut connection, (1..=KEYS).map(call));
    (used_memory(&mut connection) - before) / KEYS as f64
}

#[test]
fn a_token_bucket_takes_at_most_135_bytes() {
    let mut of_redis = f64::MAX;
    for kind in ServerProgram::under_test() {
        let (ours, published) = (bytes_per_key(kind, true), bytes_per_key(kind, false));
        println!(
            "{kind:?}: {ours:.0} bytes per token bucket, {published:.0} by the published script"
        );
        assert!(ours < published);
        if kind == ServerProgram::Redis {
            of_redis = ours;
        }
    }
    assert!(of_redis <= 135.0, "{of_redis}");
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

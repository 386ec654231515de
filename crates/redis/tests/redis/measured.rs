//! What a key and a decision cost on the server, beside the script that articles print. Run with `--nocapture` to see the
//! numbers; the test holds them to what is promised.

use redis::Connection;
use tollgate_core::{Rate, TokenBucket};
use tollgate_redis::Remembering;
use tollgate_redis::wire::{Request, Which};
use tollgate_store::{Check, Key, Op, Ruled};
use tollgate_testkit::redis::{Kind, Server};

use crate::SECRET;
use crate::server_time::{connection, ruled, slow_bucket};

/// As many as the reference numbers were taken with: how full the server's tables are is part of the cost.
const KEYS: u64 = 50_000;

/// The token bucket that most articles print: two floats in a hash, three commands and the clock.
const ARTICLE: &str = "
local state = redis.call('HMGET', KEYS[1], 'tokens', 'ts')
local rate, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local tokens, ts = tonumber(state[1]) or burst, tonumber(state[2]) or now
tokens = math.min(burst, tokens + math.max(0, now - ts) * rate)
local allowed = tokens >= cost
if allowed then tokens = tokens - cost end
redis.call('HMSET', KEYS[1], 'tokens', tokens, 'ts', now)
redis.call('EXPIRE', KEYS[1], math.ceil(burst / rate * 2))
return { allowed and 1 or 0, math.floor(tokens) }";

fn load(connection: &mut Connection, text: &str) -> String {
    let load = redis::cmd("SCRIPT").arg("LOAD").arg(text).query(connection);
    load.unwrap()
}

fn used_memory(connection: &mut Connection) -> u64 {
    let info: redis::InfoDict = redis::cmd("INFO").arg("memory").query(connection).unwrap();
    info.get("used_memory").unwrap()
}

/// Microseconds of the server's time per call of a script since the statistics were reset.
fn micros_per_call(connection: &mut Connection) -> f64 {
    let info: redis::InfoDict = redis::cmd("INFO")
        .arg("commandstats")
        .query(connection)
        .unwrap();
    let line: String = info.get("cmdstat_evalsha").unwrap();
    let field = line
        .split(',')
        .find_map(|part| part.strip_prefix("usec_per_call="));
    field.unwrap().parse().unwrap()
}

fn ours(digest: &str, key: u64, ruled: &Ruled) -> redis::Cmd {
    let key = key.to_be_bytes();
    let check = Check {
        key: Key::of(&key).unwrap(),
        ruled,
        op: Op::Spend(1),
    };
    let request = Request::new(SECRET, Remembering::default(), &[check], None).unwrap();
    let mut call = redis::cmd("EVALSHA");
    call.arg(digest).arg(request.keys.len());
    for bytes in request.keys.iter().chain(&request.args) {
        call.arg(bytes.as_slice());
    }
    call
}

fn articles(digest: &str, key: u64, burst: u64) -> redis::Cmd {
    let mut call = redis::cmd("EVALSHA");
    // A key of the same length as ours, so that only the values differ.
    call.arg(digest).arg(1).arg(format!("ratelimit:{key:020}"));
    call.arg(10).arg(burst).arg(1);
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

fn bytes_per_key(kind: Kind, is_ours: bool) -> u64 {
    let server = Server::start(kind);
    let mut connection = connection(&server);
    let ruled = ruled(1, slow_bucket(100));
    let digest = load(
        &mut connection,
        if is_ours {
            Which::Spend.script().text
        } else {
            ARTICLE
        },
    );
    let call = |key| {
        if is_ours {
            ours(&digest, key, &ruled)
        } else {
            articles(&digest, key, 100)
        }
    };
    run(&mut connection, (0..1).map(call));
    let before = used_memory(&mut connection);
    run(&mut connection, (1..=KEYS).map(call));
    (used_memory(&mut connection) - before) / KEYS
}

#[test]
fn a_token_bucket_takes_at_most_135_bytes() {
    let mut of_redis = 0;
    for kind in Kind::under_test() {
        let (ours, articles) = (bytes_per_key(kind, true), bytes_per_key(kind, false));
        println!("{kind:?}: {ours} bytes per token bucket, {articles} by the article's script");
        assert!(ours < articles);
        if kind == Kind::Redis {
            of_redis = ours;
        }
    }
    assert!(of_redis <= 135, "{of_redis}");
}

/// What one call costs the server: the least time over many short interleaved runs, and the commands that it runs.
struct Cost {
    micros: f64,
    commands: f64,
}

/// Commands that scripts ran since the counters were reset, for each of so many calls.
fn commands_per_call(connection: &mut Connection, calls: u64) -> f64 {
    let stats: String = redis::cmd("INFO")
        .arg("commandstats")
        .query(connection)
        .unwrap();
    let inside = ["get", "mget", "set", "time", "hmget", "hmset", "expire"];
    let count = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let calls: u64 = rest.split(',').next()?.parse().ok()?;
        inside.contains(&name).then_some(calls)
    };
    stats.lines().filter_map(count).sum::<u64>() as f64 / calls as f64
}

/// Our script's cost and the article's.
fn costs(burst: u64) -> (Cost, Cost) {
    let server = Server::start(Kind::Redis);
    let mut connection = connection(&server);
    let bucket = TokenBucket::at(Rate::per_second(10));
    let limit = ruled(1, bucket.burst(burst).build().unwrap());
    let our_digest = load(&mut connection, Which::Spend.script().text);
    let their_digest = load(&mut connection, ARTICLE);
    let mut costs = [f64::MAX; 2].map(|micros| Cost {
        micros,
        commands: 0.0,
    });
    for _ in 0..200 {
        for (cost, is_ours) in costs.iter_mut().zip([true, false]) {
            let reset = redis::cmd("CONFIG")
                .arg("RESETSTAT")
                .query::<()>(&mut connection);
            reset.unwrap();
            // Short, so that some of them run without being interrupted.
            let keys = 0..250;
            if is_ours {
                let calls = keys.map(|key| ours(&our_digest, key, &limit));
                run(&mut connection, calls);
            } else {
                let calls = keys.map(|key| articles(&their_digest, key, burst));
                run(&mut connection, calls);
            }
            cost.micros = cost.micros.min(micros_per_call(&mut connection));
            cost.commands = commands_per_call(&mut connection, 250);
        }
    }
    costs.into()
}

/// Time on a shared machine is printed and not judged; how much a script asks of the server is the same everywhere.
#[test]
fn a_decision_asks_less_of_the_server_than_the_articles() {
    for (burst, what) in [(1_000_000, "admit"), (1, "deny")] {
        let (ours, articles) = costs(burst);
        println!(
            "{what}: {:.2} us and {} commands of the server, {:.2} us and {} by the article's script",
            ours.micros, ours.commands, articles.micros, articles.commands
        );
        assert!(ours.commands < articles.commands, "{what}");
        assert!(ours.commands > 1.0, "{what}: nothing was counted");
    }
}

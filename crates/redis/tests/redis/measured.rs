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

fn articles(digest: &str, key: u64) -> redis::Cmd {
    let mut call = redis::cmd("EVALSHA");
    // A key of the same length as ours, so that only the values differ.
    call.arg(digest).arg(1).arg(format!("ratelimit:{key:020}"));
    call.arg(10).arg(100).arg(1);
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
            articles(&digest, key)
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
    for kind in Kind::PROMISED {
        let (ours, articles) = (bytes_per_key(kind, true), bytes_per_key(kind, false));
        println!("{kind:?}: {ours} bytes per token bucket, {articles} by the article's script");
        assert!(ours < articles);
        if kind == Kind::Redis {
            of_redis = ours;
        }
    }
    assert!(of_redis <= 135, "{of_redis}");
}

/// Time on a shared machine is too noisy to promise less in a test; that is for the benchmark. This one prints the least of
/// many interleaved runs, and fails only if ours is out of all proportion.
#[test]
fn a_decision_costs_the_server_about_what_the_articles_does() {
    let server = Server::start(Kind::Redis);
    let mut connection = connection(&server);
    let per_second = TokenBucket::at(Rate::per_second(10))
        .burst(100)
        .build()
        .unwrap();
    let limit = ruled(1, per_second);
    let our_digest = load(&mut connection, Which::Spend.script().text);
    let their_digest = load(&mut connection, ARTICLE);
    let (mut least, mut least_of_theirs) = (f64::MAX, f64::MAX);
    for _ in 0..15 {
        for is_ours in [true, false] {
            let reset = redis::cmd("CONFIG")
                .arg("RESETSTAT")
                .query::<()>(&mut connection);
            reset.unwrap();
            let keys = (0..5_000).map(|n| n % 1_000);
            if is_ours {
                run(
                    &mut connection,
                    keys.map(|key| ours(&our_digest, key, &limit)),
                );
                least = least.min(micros_per_call(&mut connection));
            } else {
                run(
                    &mut connection,
                    keys.map(|key| articles(&their_digest, key)),
                );
                least_of_theirs = least_of_theirs.min(micros_per_call(&mut connection));
            }
        }
    }
    println!(
        "{least:.2} us of the server per decision, {least_of_theirs:.2} us by the article's script"
    );
    assert!(least < 1.5 * least_of_theirs);
}

//! Scenarios with whole server processes: one to three `tollgate serve --redis` behind a fault proxy, asked over HTTP while
//! something goes wrong. What every client was answered is held against the promises and against what Redis has.

mod client;
mod clocks;
mod consistency_modes;
mod link_faults;
mod load;
mod redis_outages;
mod replies;
mod reported_bugs;
mod server;
mod server_faults;
mod sharing;
mod topologies;

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate_testkit::chaos::ScenarioOutcome;
use tollgate_testkit::faults::Proxy;
use tollgate_testkit::history::{
    Allowance, AvailabilityBounds, Bucket, History, WorstWindow, availability, bound, coherence,
    coherence_of_each, denials,
};
use tollgate_testkit::redis::{RedisNode, ServerProgram};

use self::load::Load;
use self::server::Server;

/// What a decision may wait for Redis here: more than the usual 15 ms, because the machine is shared.
const DEADLINE: Duration = Duration::from_millis(100);
const DEADLINE_SET: &str = "--redis-deadline=100ms";
/// Where the store is to decide everything: longer than any machine takes.
const LONG_DEADLINE: &str = "--redis-deadline=10s";
/// What the machine and HTTP may add where it is shared with others; a quiet one adds a few milliseconds. A hang is seconds.
const SLACK: Duration = Duration::from_millis(300);
/// The promise of two seconds, and what the machine adds.
const RECOVERY_TIME: Duration = Duration::from_secs(3);

/// Resets are told in whole milliseconds, and a denial that is remembered counts from when the store was asked: in nanoseconds.
const PRECISION: u64 = 100_000_000;

/// Units in an hour, all of which may be spent at once.
const LIMIT: u64 = 300;
const POLICY: &str = "limits: [{ name: per-key, key: header.x-api-key, rate: 300/h }]";

/// Scenarios run one after the other: each starts several servers, and times are promised.
fn run_exclusively() -> MutexGuard<'static, ()> {
    static HEAVY: Mutex<()> = Mutex::new(());
    HEAVY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One Redis, a proxy before it, and servers that share it.
struct TestFleet {
    node: RedisNode,
    proxy: Proxy,
    servers: Vec<Server>,
}

impl TestFleet {
    /// With so many servers, which are given these settings.
    fn start(count: usize, settings: &[&str], seed: u64) -> Self {
        Self::start_with_policy(POLICY, count, settings, seed)
    }

    fn start_with_policy(policy: &str, count: usize, settings: &[&str], seed: u64) -> Self {
        let node = RedisNode::start(
            ServerProgram::Redis,
            &[
                "--save",
                "",
                "--appendonly",
                "no",
                "--enable-debug-command",
                "yes",
            ],
        );
        let proxy = Proxy::seeded(node.address(), seed);
        let servers = servers(&proxy.url(), policy, count, settings);
        Self {
            node,
            proxy,
            servers,
        }
    }

    fn load(&self, each: usize, keys: &[&str]) -> Load {
        Load::start(&addresses(&self.servers), each, keys)
    }

    /// The state of the only bucket that there is: an instant in nanoseconds.
    fn state(&self) -> u64 {
        state(&self.node).unwrap()
    }

    /// Spends one unit, so that the bucket is not full from now on, and says what Redis has for it.
    fn prime(&self, key: &str) -> u64 {
        let answer = client::Client::new(self.servers[0].http)
            .check(key)
            .unwrap();
        assert!(answer.status == 200 && !answer.is_degraded(), "{answer:?}");
        self.state()
    }
}

fn servers(redis: &str, policy: &str, count: usize, settings: &[&str]) -> Vec<Server> {
    let start = || Server::start(redis, count, policy, settings);
    std::iter::repeat_with(start).take(count).collect()
}

fn addresses(servers: &[Server]) -> Vec<SocketAddr> {
    servers.iter().map(|server| server.http).collect()
}

/// The state of the only bucket on a server, if it has one.
fn state(node: &RedisNode) -> Option<u64> {
    let names = node.ask(&["KEYS", "tg1:*"]);
    let states = names.lines().filter_map(|name| {
        let state = node.try_ask(&["GET", name]).ok()?;
        state.parse().ok()
    });
    let states: Vec<u64> = states.collect();
    assert!(states.len() <= 1, "{names}");
    states.first().copied()
}

fn bucket() -> Bucket {
    Bucket {
        interval: 3_600_000_000_000 / LIMIT,
        burst: LIMIT,
    }
}

/// What holds whatever went wrong: everybody was answered in time, within the bound, and was told what fits together.
fn judge(history: &History, allowance: &Allowance) -> (WorstWindow, AvailabilityBounds) {
    let speed = availability(history, DEADLINE + SLACK).unwrap();
    let worst = bound(history, allowance).unwrap();
    denials(history, allowance.bucket(), 0).unwrap();
    if allowance.beyond() == 0 {
        coherence(history, allowance.bucket(), PRECISION).unwrap();
    } else {
        coherence_of_each(history, allowance.bucket(), PRECISION).unwrap();
    }
    (worst, speed)
}

fn outcome(
    scenario: &'static str,
    (worst, speed): &(WorstWindow, AvailabilityBounds),
) -> ScenarioOutcome {
    ScenarioOutcome::of(scenario)
        .worst(worst)
        .speed(*speed)
        .lost(0)
}

//! Fault scenarios with server processes: `tollgate serve --redis` behind a fault proxy, under load over HTTP. The recorded
//! responses are checked against the guarantees and against the state in Redis.

mod client;
mod clocks;
mod consistency_modes;
mod link_faults;
mod load;
mod previous_version;
mod redis_outages;
mod replies;
mod reported_bugs;
mod server;
mod server_faults;
mod sharing;
mod topologies;
mod with_peers;

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

/// The Redis deadline of the scenarios. It is longer than the default of 15 ms, because test machines are shared.
const DEADLINE: Duration = Duration::from_millis(100);
const DEADLINE_SET: &str = "--redis-deadline=100ms";
/// For scenarios in which the store must decide everything: longer than any machine takes.
const LONG_DEADLINE: &str = "--redis-deadline=10s";
/// The time that HTTP and a shared machine may add. A quiet machine adds a few milliseconds; a hang takes seconds.
const SLACK: Duration = Duration::from_millis(300);
/// The guaranteed recovery of two seconds, plus what the machine adds.
const RECOVERY_TIME: Duration = Duration::from_secs(3);

/// The tolerance of reset times in nanoseconds: resets are in milliseconds, and cached denials count from the store call.
const PRECISION: u64 = 100_000_000;

/// Units per hour, and the burst.
const LIMIT: u64 = 300;
const POLICY: &str = "limits: [{ name: per-key, key: header.x-api-key, rate: 300/h }]";

/// Runs scenarios one after the other, because each starts several servers and checks times.
fn run_exclusively() -> MutexGuard<'static, ()> {
    static HEAVY: Mutex<()> = Mutex::new(());
    HEAVY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One Redis, a fault proxy in front of it, and servers that share it.
struct TestFleet {
    node: RedisNode,
    proxy: Proxy,
    servers: Vec<Server>,
}

impl TestFleet {
    /// Starts `count` servers with these settings.
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

    /// The state of the single bucket: an instant in nanoseconds.
    fn state(&self) -> u64 {
        state(&self.node).unwrap()
    }

    /// Spends one unit, so that the bucket is not full, and returns its state in Redis.
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

/// The state of the single bucket on a Redis, if it has one.
fn state(node: &RedisNode) -> Option<u64> {
    let names = node.ask(&["KEYS", "tg2:*"]);
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

/// Checks what every fault must preserve: timely responses, the bound, and consistent numbers.
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

//! Growth with the way to Redis: how long a decision takes, and what it costs, `exact` and `leased`.
//!
//! The fault proxy of the tests delays replies. Its timer has milliseconds, so the axis shows the round trip that a `PING`
//! takes through it, as measured. Must not know: how a node decides.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate_testkit::faults::Proxy;
use tollgate_testkit::redis::{RedisServer, ServerProgram};

use crate::Failure;
use crate::clock::{Stopwatch, thread_time};
use crate::node::{LONG_DEADLINE, Node, Request};
use crate::options::Options;
use crate::series::Growth;
use crate::stats::Spread;

/// Callers at a time: they share round trips, as those of a server do.
const CALLERS: u64 = 64;
/// Delays of the proxy in microseconds; the first is the proxy alone.
const DELAYS: [u64; 5] = [0, 500, 2_000, 5_000, 9_000];
const PINGS: usize = 15;

const QUOTA: &str = "    rate: 1000000/s\n    burst: 1000000000\n";

pub(crate) fn by_round_trip(options: &Options) -> Result<Vec<Growth>, Failure> {
    // A missing program is told as an error with the command that installs it, before anything is started.
    ServerProgram::Redis.look_up()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(measure(options))
}

async fn measure(options: &Options) -> Result<Vec<Growth>, Failure> {
    let axis = "ms of round trip to Redis";
    let mut times = Growth::new("growth redis time", axis, "ms that a decision takes");
    let mut costs = Growth::new("growth redis", axis, "µs of CPU per decision");
    let server = RedisServer::start(ServerProgram::Redis);
    for (name, consistency) in [
        ("exact", ""),
        ("leased, one hot key", "    consistency: leased\n"),
    ] {
        for delay in DELAYS {
            let proxy = Proxy::to(server.address());
            proxy.change(|toxics| toxics.back.latency = Duration::from_micros(delay));
            let round_trip = round_trip(&proxy.url()).await?;
            let quota = format!("{QUOTA}{consistency}");
            let node = Arc::new(Node::sharing(&quota, &proxy.url(), LONG_DEADLINE).await?);
            let mut background = JoinSet::new();
            background.spawn(node.as_ref().clone().maintain_leases());
            let (mut took, mut cost) = (Vec::new(), Vec::new());
            for round in 0..=options.rounds {
                let [wall, used] = lap(&node, options.calls).await?;
                if round > 0 {
                    took.push(wall);
                    cost.push(used);
                }
            }
            background.shutdown().await;
            times.point(name, round_trip, took);
            costs.point(name, round_trip, cost);
        }
    }
    Ok(vec![times, costs])
}

/// Milliseconds that a decision takes its caller, and microseconds of processor time of this thread for it.
async fn lap(node: &Arc<Node>, calls: usize) -> Result<[f64; 2], Failure> {
    let (used, watch) = (thread_time(), Stopwatch::start());
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let node = Arc::clone(node);
        callers.spawn(async move {
            let request = Request::of(0);
            for _ in 0..calls {
                if !node.ask(&request).await.is_admitted() {
                    return Err("a generous quota denied");
                }
            }
            Ok(())
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended??;
    }
    let (used, wall) = (thread_time().saturating_sub(used), watch.elapsed());
    let calls = f64::from(u32::try_from(calls)?);
    let all = calls * 64.0;
    Ok([
        wall.as_secs_f64() * 1e3 / calls,
        used.as_secs_f64() * 1e6 / all,
    ])
}

/// Milliseconds of a `PING` and its reply, the median of some.
async fn round_trip(url: &str) -> Result<f64, Failure> {
    let client = redis::Client::open(url)?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let mut times = Vec::new();
    for _ in 0..PINGS {
        let watch = Stopwatch::start();
        let reply: String = redis::cmd("PING").query_async(&mut connection).await?;
        if reply != "PONG" {
            return Err(format!("PING was answered {reply}").into());
        }
        times.push(watch.elapsed().as_secs_f64() * 1e3);
    }
    let median = Spread::of(times.into_iter()).median;
    Ok((median * 100.0).round() / 100.0)
}

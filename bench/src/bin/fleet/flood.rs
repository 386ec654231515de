//! Traffic at a hundred times the limit: how often the server is asked, of which almost all would be told no.
//!
//! Must not know: how denials are remembered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Stopwatch;
use crate::goals::Goals;
use crate::node::{LONG_DEADLINE, Node, Request};
use crate::options::Options;
use crate::redis_server::BenchRedis;
use crate::stats::{Spread, Table};
use crate::timed_runs::LoadShape;
use crate::{Failure, number};

const NODES: u64 = 3;
const CALLERS: u64 = 64;
const KEYS: u64 = 10;
/// What each key may have in a second, and at once.
const LIMIT: u64 = 20;
/// How many times the limit is asked for.
const TIMES: u64 = 100;

/// What was asked and admitted.
#[derive(Debug, Default)]
struct FloodCounts {
    asked: AtomicU64,
    admitted: AtomicU64,
}

/// The table of one run.
pub(crate) async fn measure(
    server: &mut BenchRedis,
    options: &Options,
    goals: &mut Goals,
) -> Result<Vec<Table>, Failure> {
    server.empty()?;
    let quota = format!("    rate: {LIMIT}/s\n    burst: {LIMIT}\n");
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        nodes.push(Node::sharing(&quota, &server.url(), LONG_DEADLINE).await?);
    }
    let shape = LoadShape {
        callers: CALLERS,
        // Every key of its own number: callers have pairs of a node and a key.
        calls: KEYS * LIMIT * TIMES * options.seconds,
        keys: KEYS,
    };
    let tally = Arc::new(FloodCounts::default());
    let before = server.done()?;
    let watch = Stopwatch::start();
    let make = |caller: u64| {
        let node = usize::try_from(caller % NODES).ok();
        let node = node.and_then(|node| nodes.get(node)).cloned();
        flood(node, shape, caller, Arc::clone(&tally))
    };
    shape.run(make).await?;
    let lasted = watch.elapsed();
    let scripts = server.done()?.since(before).scripts;
    let asked = tally.asked.load(Ordering::Relaxed);
    let admitted = tally.admitted.load(Ordering::Relaxed);
    // A second that has begun counts.
    let seconds = lasted.as_secs().saturating_add(1);
    let bound = number(admitted * NODES + KEYS * NODES * seconds);
    // What the buckets held, and what has come since.
    let most = KEYS * LIMIT * (seconds + 1);
    if admitted > most {
        return Err(format!("{admitted} were admitted, which is more than {most}").into());
    }
    let title = format!(
        "{TIMES} times the limit: {NODES} nodes, {CALLERS} callers, {KEYS} keys of {LIMIT} a second, {:.1} s",
        lasted.as_secs_f64()
    );
    let mut table = Table::new(
        title,
        &["", "asked", "admitted", "calls to the server", "at most"],
    );
    table.row(vec![
        "all nodes".to_owned(),
        asked.to_string(),
        admitted.to_string(),
        format!("{scripts:.0}"),
        format!("{bound:.0}"),
    ]);
    let part = Spread::of(std::iter::once(scripts / bound));
    let what =
        "calls at a hundred times the limit, of admitted × nodes + one per key, node and second";
    goals.at_most(what, 1.0, Some(part));
    Ok(vec![table])
}

/// One caller, who keeps to its part of the pace.
async fn flood(
    node: Option<Node>,
    shape: LoadShape,
    caller: u64,
    tally: Arc<FloodCounts>,
) -> Result<(), String> {
    let node = node.ok_or("there is no such node")?;
    let watch = Stopwatch::start();
    let mine = shape.calls / shape.callers;
    let pace = number(KEYS * LIMIT * TIMES) / number(shape.callers);
    for call in 0..mine {
        let due = Duration::from_secs_f64(number(call) / pace);
        let early = due.saturating_sub(watch.elapsed());
        if early > Duration::from_millis(1) {
            tokio::time::sleep(early).await;
        }
        // Every caller has its turn at every key, each in another order.
        let verdict = node.ask(&Request::of((call + caller / NODES) % KEYS)).await;
        tally.asked.fetch_add(1, Ordering::Relaxed);
        let admitted = u64::from(verdict.is_admitted());
        tally.admitted.fetch_add(admitted, Ordering::Relaxed);
    }
    Ok(())
}

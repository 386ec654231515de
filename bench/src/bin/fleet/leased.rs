//! `leased`: how seldom the server is asked about a key that everybody uses, what a decision costs then, and that three nodes
//! together admit no more than the limit.
//!
//! Must not know: how slices are accounted for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::clock::Stopwatch;
use crate::goals::Goals;
use crate::node::{LONG_DEADLINE, Node, Request};
use crate::options::Options;
use crate::redis_server::BenchRedis;
use crate::stats::{Spread, Table};
use crate::timed_runs::{LapCost, LoadShape};
use crate::{Failure, number};

/// More than any run spends.
const PLENTY: &str = "    rate: 10000000/s\n    burst: 100000000\n    consistency: leased\n";
/// What all nodes together may admit in a second, and at once.
const LIMIT: u64 = 1_000;
const NODES: u64 = 3;
const CALLERS: u64 = 64;
/// How many decisions a caller makes before it lets the others.
const AT_A_TIME: u64 = 64;

/// Both tables.
pub(crate) async fn measure(
    server: &mut BenchRedis,
    options: &Options,
    goals: &mut Goals,
) -> Result<Vec<Table>, Failure> {
    Ok(vec![
        hot_key(server, options, goals).await?,
        conservation(server, options, goals).await?,
    ])
}

/// A key that is never used up.
async fn hot_key(
    server: &mut BenchRedis,
    options: &Options,
    goals: &mut Goals,
) -> Result<Table, Failure> {
    server.empty()?;
    let node = Node::sharing(PLENTY, &server.url(), LONG_DEADLINE).await?;
    let _tending = tended(std::slice::from_ref(&node));
    let shape = LoadShape {
        callers: CALLERS,
        calls: options.local,
        keys: 1,
    };
    let mut laps: Vec<LapCost> = Vec::new();
    for round in 0..=options.rounds {
        let lap = shape.lap(server, |caller| ask(node.clone(), shape, caller));
        let lap = lap.await?;
        if round > 0 {
            laps.push(lap);
        }
    }
    let of = |part: &dyn Fn(&LapCost) -> f64| Spread::of(laps.iter().map(part));
    let calls = number(shape.calls);
    let fewer = of(&|lap| calls / lap.scripts.max(1.0));
    let millions = of(&|lap| 1.0 / lap.ours);
    let title = format!("leased, one hot key, {CALLERS} callers");
    let head = [
        "",
        "our CPU ns per decision",
        "millions of decisions per second and core",
        "decisions per call to the server",
    ];
    let mut table = Table::new(title, &head);
    table.row(vec![
        "tollgate, leased".to_owned(),
        of(&|lap| lap.ours * 1e3).show(0),
        millions.show(2),
        fewer.show(0),
    ]);
    goals.at_least(
        "leased, one hot key: decisions per call to the server",
        20.0,
        Some(fewer),
    );
    goals.at_least(
        "leased, one hot key: millions of decisions per second and core",
        1.0,
        Some(millions),
    );
    Ok(table)
}

async fn ask(node: Node, shape: LoadShape, caller: u64) -> Result<(), String> {
    let request = Request::of(0);
    for (count, _) in (1_u64..).zip(shape.keys_of(caller)) {
        if !node.ask(&request).await.is_admitted() {
            return Err("a request was denied".to_owned());
        }
        if count % AT_A_TIME == 0 {
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

/// A key that is wanted by far more than can have it.
async fn conservation(
    server: &mut BenchRedis,
    options: &Options,
    goals: &mut Goals,
) -> Result<Table, Failure> {
    server.empty()?;
    let quota = format!("    rate: {LIMIT}/s\n    burst: {LIMIT}\n    consistency: leased\n");
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        nodes.push(Node::sharing(&quota, &server.url(), LONG_DEADLINE).await?);
    }
    let _tending = tended(&nodes);
    let admitted = Arc::new(AtomicU64::new(0));
    let shape = LoadShape {
        callers: CALLERS,
        calls: 0,
        keys: 1,
    };
    let before = server.done()?;
    let watch = Stopwatch::start();
    let span = Duration::from_secs(options.seconds);
    let make = |caller: u64| {
        let node = usize::try_from(caller % NODES).ok();
        let node = node.and_then(|node| nodes.get(node)).cloned();
        flood(node, span, Arc::clone(&admitted))
    };
    shape.run(make).await?;
    let lasted = watch.elapsed();
    let scripts = server.done()?.since(before).scripts;
    let admitted = number(admitted.load(Ordering::Relaxed));
    let most = number(LIMIT) * (1.0 + lasted.as_secs_f64());
    if admitted > most {
        return Err(format!("{admitted} were admitted, which is more than {most:.0}").into());
    }
    let title = format!(
        "leased, one key of {LIMIT} a second, {NODES} nodes, {CALLERS} callers, {:.1} s",
        lasted.as_secs_f64()
    );
    let mut table = Table::new(title, &["", "admitted", "at most", "calls to the server"]);
    table.row(vec![
        "all nodes".to_owned(),
        format!("{admitted:.0}"),
        format!("{most:.0}"),
        format!("{scripts:.0}"),
    ]);
    let part = Spread::of(std::iter::once(admitted / most));
    goals.at_most("leased: admitted, of what may be", 1.0, Some(part));
    Ok(table)
}

async fn flood(node: Option<Node>, span: Duration, admitted: Arc<AtomicU64>) -> Result<(), String> {
    let node = node.ok_or("there is no such node")?;
    let (request, watch) = (Request::of(0), Stopwatch::start());
    while watch.elapsed() < span {
        let verdict = node.ask(&request).await;
        admitted.fetch_add(u64::from(verdict.is_admitted()), Ordering::Relaxed);
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// What a server does beside its decisions, for as long as this is held.
fn tended(nodes: &[Node]) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for node in nodes {
        tasks.spawn(node.clone().maintain_leases());
    }
    tasks
}

//! Without Redis: how long a decision takes while the server falls silent, and how many there are once that is known.
//!
//! Must not know: how a fleet finds out.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::Failure;
use crate::clock::Stopwatch;
use crate::goals::Goals;
use crate::node::{Node, Request};
use crate::options::Options;
use crate::redis_server::BenchRedis;
use crate::stats::{Spread, Table};
use crate::timed_runs::LoadShape;
use crate::usage::processor_time;

/// So much that what stands in for it on one node admits everything.
const QUOTA: &str = "    rate: 1000/s\n    burst: 100000000\n";
/// What a decision may take, at most.
const DEADLINE: Duration = Duration::from_millis(15);
/// How long the server says nothing. It keeps its connections meanwhile: nothing but silence says that it is gone.
const SILENCE: Duration = Duration::from_millis(1_500);
const CALLERS: u64 = 64;
const GOAL: f64 = 0.9;

/// Both tables.
pub(crate) async fn measure(options: &Options, goals: &mut Goals) -> Result<Vec<Table>, Failure> {
    Ok(vec![
        silence(options, goals).await?,
        throughput(options, goals).await?,
    ])
}

/// How long decisions take while the server falls silent.
async fn silence(options: &Options, goals: &mut Goals) -> Result<Table, Failure> {
    let mut server = BenchRedis::start()?;
    let node = Node::sharing(QUOTA, &server.url(), DEADLINE).await?;
    let shape = LoadShape {
        callers: CALLERS,
        calls: options.local,
        keys: options.keys,
    };
    let lasted = Arc::new(Mutex::new(Vec::new()));
    server.fall_silent(SILENCE)?;
    shape
        .run(|caller| timed(node.clone(), shape, caller, Arc::clone(&lasted)))
        .await?;
    let counted = node.fleet()?.totals();
    if counted.openings == 0 || counted.fallback == 0 {
        return Err(format!("nobody noticed that the server was silent: {counted:?}").into());
    }
    let mut lasted = lasted.lock().map_or_else(|_| Vec::new(), |all| all.clone());
    lasted.sort_unstable();
    let at = |share: usize| {
        let last = lasted.len().saturating_sub(1);
        let index = lasted.len().saturating_mul(share) / 10_000;
        lasted.get(index.min(last)).copied().unwrap_or_default()
    };
    let millis = |span: Duration| span.as_secs_f64() * 1e3;
    let title =
        format!("{CALLERS} callers while the server falls silent: milliseconds of a decision");
    let mut table = Table::new(
        title,
        &["", "p50", "p99", "p99.9", "max", "calls to the server"],
    );
    table.row(vec![
        format!("{} decisions", lasted.len()),
        format!("{:.4}", millis(at(5_000))),
        format!("{:.4}", millis(at(9_900))),
        format!("{:.4}", millis(at(9_990))),
        format!("{:.2}", millis(at(10_000))),
        (counted.answered + counted.ambiguous + counted.refused).to_string(),
    ]);
    let part = Spread::of(std::iter::once(millis(at(9_990)) / millis(DEADLINE)));
    goals.at_most(
        "p99.9 while the server falls silent, of the deadline",
        1.0,
        Some(part),
    );
    Ok(table)
}

async fn timed(
    node: Node,
    shape: LoadShape,
    caller: u64,
    all: Arc<Mutex<Vec<Duration>>>,
) -> Result<(), String> {
    let mut lasted = Vec::new();
    for key in shape.keys_of(caller) {
        let request = Request::of(key);
        let watch = Stopwatch::start();
        let verdict = node.ask(&request).await;
        lasted.push(watch.elapsed());
        if !verdict.is_admitted() {
            return Err("a request was denied for want of a store".to_owned());
        }
        // Decisions that wait for nobody would keep the others from beginning.
        tokio::task::yield_now().await;
    }
    all.lock()
        .map_err(|error| error.to_string())?
        .extend(lasted);
    Ok(())
}

/// Decisions of a node whose store is known to be away, beside those of an engine that has none.
async fn throughput(options: &Options, goals: &mut Goals) -> Result<Table, Failure> {
    let title = "One caller, once it is known that the server is away";
    let head = ["", "CPU ns per decision", "of memory's throughput"];
    let mut table = Table::new(title, &head);
    for keys in [1, options.keys] {
        let alone = Node::local(QUOTA)?;
        let away = {
            let server = BenchRedis::start()?;
            Node::sharing(QUOTA, &server.url(), DEADLINE).await?
        };
        let requests: Vec<Request> = (0..keys).map(Request::of).collect();
        let shape = LoadShape {
            callers: 1,
            calls: options.local,
            keys,
        };
        while !away.fleet()?.is_degraded() {
            let _finding_out = away.ask(&Request::of(0)).await;
        }
        let laps = rounds(options.rounds, shape, &requests, (&alone, &away)).await?;
        let what = if keys == 1 {
            "one key".to_owned()
        } else {
            format!("{keys} keys")
        };
        let parts = || Spread::of(laps.iter().map(|[memory, without]| memory / without));
        for (index, name) in ["memory", "server away"].iter().enumerate() {
            let costs = laps.iter().filter_map(|lap| lap.get(index)).copied();
            let part = if index == 0 {
                "1".to_owned()
            } else {
                parts().show(2)
            };
            table.row(vec![
                format!("{name}, {what}"),
                Spread::of(costs).show(0),
                part,
            ]);
        }
        goals.at_least(
            &format!("throughput without the server, {what}, of memory's"),
            GOAL,
            Some(parts()),
        );
    }
    Ok(table)
}

/// Nanoseconds of both, round by round; the first round is not counted.
async fn rounds(
    count: u64,
    shape: LoadShape,
    requests: &[Request],
    (alone, away): (&Node, &Node),
) -> Result<Vec<[f64; 2]>, Failure> {
    let mut laps = Vec::new();
    for round in 0..=count {
        let memory = || {
            lap(shape, requests, async |one| {
                alone.engine().decide(one).is_admitted()
            })
        };
        let without = || {
            lap(shape, requests, async |one| {
                away.ask(one).await.is_admitted()
            })
        };
        let both = if round % 2 == 0 {
            [memory().await?, without().await?]
        } else {
            let without = without().await?;
            [memory().await?, without]
        };
        if round > 0 {
            laps.push(both);
        }
    }
    Ok(laps)
}

/// Nanoseconds of processor time that a decision takes.
async fn lap(
    shape: LoadShape,
    requests: &[Request],
    ask: impl AsyncFn(&Request) -> bool,
) -> Result<f64, Failure> {
    let before = processor_time();
    for key in shape.keys_of(0) {
        let request = requests.get(usize::try_from(key)?);
        if !ask(request.ok_or("there is no such request")?).await {
            return Err("a request was denied".into());
        }
    }
    let used = processor_time().saturating_sub(before);
    Ok(used.as_secs_f64() * 1e9 / crate::number(shape.calls))
}

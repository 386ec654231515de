//! gcl and a step of demand in real time: our gateway beside Envoy, each before an upstream of its own with 12 workers.
//!
//! All contenders run at the same time and get the same arrivals, because the load is small. Clients do not wait for one another,
//! and do not hang up at the deadline. Must not know: how a proxy is set up, HTTP.

mod client;
mod contenders;
mod http1;
mod score;
mod upstream;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use tollgate_bench::overload::{
    ControllerKind, Scenario, Score, WORKERS, gcl, run as simulate, steps,
};

use super::line;
use client::{Arrival, arrivals};
use contenders::Contender;
use score::RealTimeScore;
use upstream::Upstream;

pub(crate) type Failure = Box<dyn std::error::Error>;

/// The server of the simulated study is a hundred times as large.
const DIVISOR: u32 = 100;
/// The workers of an upstream.
const REAL_WORKERS: u32 = WORKERS / DIVISOR;
/// What to run.
pub(crate) struct Options {
    /// Our program.
    pub(crate) tollgate: PathBuf,
    /// Envoy's program. Without it only ours runs.
    pub(crate) envoy: Option<PathBuf>,
    /// Whether a tenth of the time is enough, to see that everything works.
    pub(crate) is_quick: bool,
}

/// Runs all traces. Returns the tables.
pub(crate) fn run(options: &Options) -> Result<String, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let part = if options.is_quick { 0.1 } else { 1.0 };
    let mut table = String::from(
        "| trace | contender | good responses | of the oracle | mean latency | refused | late or failed |\n|---|---|---|---|---|---|---|\n",
    );
    // More demand would measure the processor: all contenders and their clients share the machine.
    for scenario in [gcl(80.0 * part), steps(2.0, 16.0 * part)] {
        let scenario = scenario.scaled_down(DIVISOR);
        let rows = runtime.block_on(contend(options, &scenario))?;
        let oracle = Score::new(&scenario, &simulate(&scenario, ControllerKind::Oracle));
        let oracle_part = ratio(oracle.good, oracle.arrived);
        line(
            &mut table,
            &format!(
                "| {} | oracle, simulated | {} of {} | 100.0 % | {:.0} ms | | |",
                scenario.name,
                oracle.good,
                oracle.arrived,
                1e3 * oracle.latency
            ),
        );
        for (name, score) in rows {
            let part = score.good_part() / oracle_part;
            line(
                &mut table,
                &format!("| {} | {name} | {} |", scenario.name, score.columns(part)),
            );
        }
    }
    Ok(table)
}

/// One trace, for all contenders at the same time.
async fn contend(
    options: &Options,
    scenario: &Scenario,
) -> Result<Vec<(&'static str, RealTimeScore)>, Failure> {
    let schedule: Arc<[Arrival]> = arrivals(scenario).into();
    let mut runs = Vec::new();
    for kind in contenders::all(options.envoy.is_some()) {
        let upstream = Upstream::start(REAL_WORKERS).await?;
        runs.push((
            Contender::start(*kind, options, upstream.address())?,
            upstream,
        ));
    }
    let start = Instant::now();
    let mut clients = JoinSet::new();
    for (index, (contender, _)) in runs.iter().enumerate() {
        let outcomes = client::send_all(contender.address(), start, Arc::clone(&schedule));
        clients.spawn(async move { (index, outcomes.await) });
    }
    let mut end = Duration::ZERO;
    for stage in &scenario.stages {
        for (_, upstream) in &runs {
            upstream.set_service(Duration::from_nanos(stage.service.as_nanos()));
        }
        end += Duration::from_secs_f64(stage.seconds);
        tokio::time::sleep(end.saturating_sub(start.elapsed())).await;
    }
    let mut scores = Vec::new();
    while let Some(ended) = clients.join_next().await {
        let (index, outcomes) = ended?;
        let (contender, _) = runs.get(index).ok_or("there is no such contender")?;
        scores.push((index, contender.name(), RealTimeScore::new(&outcomes)));
    }
    scores.sort_by_key(|(index, ..)| *index);
    let scores = scores
        .into_iter()
        .map(|(_, name, score)| (name, score))
        .collect();
    Ok(scores)
}

fn ratio(part: u64, of: u64) -> f64 {
    part as f64 / of.max(1) as f64
}

//! Laps: so many calls by so many callers at a time, and what they cost this process and the server.
//!
//! Everything of ours runs on one thread, so that processor time is what calls cost and not how threads get in each other's
//! way. Must not know: who is called.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::clock::Stopwatch;
use crate::redis_server::{BenchRedis, CommandTotals};
use crate::usage::processor_time;
use crate::{Failure, number};

/// How many call at a time, how often in all, and for how many keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoadShape {
    pub(crate) callers: u64,
    pub(crate) calls: u64,
    pub(crate) keys: u64,
}

/// What one call cost, in microseconds: the same number as seconds per million calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LapCost {
    /// Processor time of this process.
    pub(crate) ours: f64,
    /// Processor time of the server.
    pub(crate) server: f64,
    /// Time on the wall.
    pub(crate) wall: f64,
    /// Calls that the server found in one read.
    pub(crate) calls_per_read: f64,
    /// Calls of scripts.
    pub(crate) scripts: f64,
}

impl LoadShape {
    /// Which keys one caller asks for, one after the other.
    pub(crate) fn keys_of(self, caller: u64) -> impl Iterator<Item = u64> + use<> {
        let Self {
            callers,
            calls,
            keys,
        } = self;
        // A prime that divides no sensible number of keys, so that every one has its turn.
        (caller..calls)
            .step_by(usize::try_from(callers.max(1)).unwrap_or(1))
            .map(move |call| call * 7_919 % keys.max(1))
    }

    /// Lets every caller do what `make` makes of its number, all at a time.
    pub(crate) async fn run<F>(self, make: impl Fn(u64) -> F) -> Result<(), Failure>
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        let mut callers = JoinSet::new();
        for caller in 0..self.callers {
            callers.spawn(make(caller));
        }
        while let Some(ended) = callers.join_next().await {
            ended??;
        }
        Ok(())
    }

    /// The same, measured.
    pub(crate) async fn lap<F>(
        self,
        server: &mut BenchRedis,
        make: impl Fn(u64) -> F,
    ) -> Result<LapCost, Failure>
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        let before = server.done()?;
        let (used, watch) = (processor_time(), Stopwatch::start());
        self.run(make).await?;
        let (used, wall) = (processor_time().saturating_sub(used), watch.elapsed());
        let CommandTotals {
            cpu,
            reads,
            scripts,
        } = server.done()?.since(before);
        let calls = number(self.calls);
        let each = |span: Duration| span.as_secs_f64() * 1e6 / calls;
        Ok(LapCost {
            ours: each(used),
            server: cpu / calls,
            wall: each(wall),
            calls_per_read: scripts / reads.max(1.0),
            scripts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_callers_together_ask_for_every_key() {
        let shape = LoadShape {
            callers: 7,
            calls: 1_000,
            keys: 1_000,
        };
        let mut keys: Vec<u64> = (0..7).flat_map(|caller| shape.keys_of(caller)).collect();
        keys.sort_unstable();
        assert_eq!(keys, (0..1_000).collect::<Vec<u64>>());
    }
}

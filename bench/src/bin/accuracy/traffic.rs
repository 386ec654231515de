//! Synthetic traffic: heavy-tailed, bursty, and a function of a seed.
//!
//! Three kinds of source. *Visitors* are the many: how much each sends follows Zipf's law, in bursts like page loads,
//! with silences between. *Near* sources hover around the limit, where a decision is hard. *Attackers* are far above
//! it. A source is simulated by itself, from its own stream of random numbers, so nothing about the others has to be
//! remembered and any thread may take any source.
//!
//! Must not know: how requests are judged.

use tollgate_core::Timestamp;

use crate::candidates::Limit;
use crate::random::{Random, whole};

/// When the traffic begins. Not on a boundary of any window, so that no source is favoured.
const BEGIN_MICROS: u64 = 1_700_000_017_123_456;
const DAY: f64 = 86_400.0;

/// The tail index of silences and of the sessions of near sources and attackers: finite mean, infinite variance.
const SESSION_TAIL: f64 = 1.5;
/// The tail index of the number of requests in a visitor's burst, the smallest and the largest.
const BURST_TAIL: f64 = 1.8;
const BURST_LEAST: f64 = 2.0;
const BURST_MOST: f64 = 5_000.0;
/// How far activity swings around its mean over a day.
const SWING: f64 = 0.6;
/// Ranks are shifted by this before Zipf's law applies, or one source would be a tenth of all traffic.
const RANK_SHIFT: f64 = 20.0;

/// What kind of client a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrafficKind {
    Visitor,
    Near,
    Attacker,
}

impl TrafficKind {
    pub(crate) const ALL: [Self; 3] = [Self::Visitor, Self::Near, Self::Attacker];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Visitor => "visitors",
            Self::Near => "near the limit",
            Self::Attacker => "attackers",
        }
    }
}

/// All sources of a study.
#[derive(Clone, Debug)]
pub(crate) struct Population {
    requests: u64,
    sources: u64,
    seed: u64,
    limit: Limit,
}

/// One source: what it is and how it sends.
#[derive(Clone, Debug)]
pub(crate) struct SyntheticSource {
    pub(crate) kind: TrafficKind,
    /// How many requests it sends in all.
    pub(crate) requests: u64,
    random: Random,
    /// Mean seconds between requests while it is active.
    gap: f64,
    /// So many requests come at once, five milliseconds apart; the gaps between such batches are as much longer.
    batch: u64,
    /// Requests of one period of activity: Pareto from the first to the last, with this tail index.
    active: (f64, f64, f64),
    /// The shortest silence in seconds; silences are Pareto.
    silence: f64,
}

impl Population {
    /// A population that sends this many requests in all. Near sources and attackers are what they are relative to
    /// the limit.
    pub(crate) fn new(requests: u64, sources: u64, seed: u64, limit: Limit) -> Self {
        Self {
            requests,
            sources: sources.max(TrafficKind::ALL.len() as u64),
            seed,
            limit,
        }
    }

    pub(crate) fn sources(&self) -> u64 {
        self.sources
    }

    /// The generator's parameters, for the report.
    pub(crate) fn parameters(&self) -> Vec<String> {
        let [attackers, near, visitors] = self.groups();
        vec![
            format!(
                "{} requests from {} sources, seed {}, about a day of traffic, instants in whole microseconds",
                self.requests, self.sources, self.seed
            ),
            format!(
                "visitors: {} sources, {} requests, shared by Zipf's law, 1 / (rank + {RANK_SHIFT}); bursts of Pareto \
                 size (tail index {BURST_TAIL}, from {BURST_LEAST} to {BURST_MOST}) with exponential gaps whose mean is \
                 log-uniform from 0.1 s to 2 s per source, shorter where a source could not keep up; Pareto silences \
                 (tail index {SESSION_TAIL}), longer and shorter by {SWING} over the day",
                visitors.sources, visitors.requests
            ),
            format!(
                "near the limit: {} sources, {} requests in equal shares; mean rate uniform from 0.5 to 1.5 of the limit, \
                 one by one (half of them) or in batches of 2 to 20, exponential gaps; sessions of at least 5 windows and \
                 silences of at least 5 windows, both Pareto (tail index {SESSION_TAIL})",
                near.sources, near.requests
            ),
            format!(
                "attackers: {} sources, {} requests, shared by Zipf's law; mean rate log-uniform from 3 to 50 times the \
                 limit, exponential gaps; sessions of at least 1 window and silences of at least 3 windows, both Pareto \
                 (tail index {SESSION_TAIL})",
                attackers.sources, attackers.requests
            ),
        ]
    }

    /// The source with this number, from nothing to the number of sources. The heaviest come first, so that threads
    /// which take them in order finish together.
    pub(crate) fn source(&self, index: u64) -> SyntheticSource {
        let mut random = Random::new(self.seed, index);
        let [attackers, near, visitors] = self.groups();
        if let Some(rank) = attackers.rank(index) {
            self.attacker(attackers.zipf(rank), &mut random)
        } else if let Some(rank) = near.rank(index) {
            self.near(near.equal(rank), &mut random)
        } else {
            visitor(visitors.zipf(index - visitors.first), &mut random)
        }
    }

    /// Attackers, near sources, visitors. Few sources make a twentieth and a fifth of the requests: the share that
    /// floods have of public traffic is of this order, and a study without sources near the limit would prove nothing.
    fn groups(&self) -> [ClientGroup; 3] {
        let attackers = ClientGroup {
            first: 0,
            sources: (self.sources / 1_000).max(1),
            requests: self.requests / 5,
        };
        let near = ClientGroup {
            first: attackers.sources,
            sources: (self.sources / 500).max(1),
            requests: self.requests / 20,
        };
        let before = near.first + near.sources;
        let visitors = ClientGroup {
            first: before,
            sources: self.sources - before,
            requests: self.requests - attackers.requests - near.requests,
        };
        [attackers, near, visitors]
    }

    fn attacker(&self, requests: u64, random: &mut Random) -> SyntheticSource {
        let window = self.limit.window_seconds();
        let in_window = random.log_uniform(3.0, 50.0) * f64::from(self.limit.limit);
        SyntheticSource {
            kind: TrafficKind::Attacker,
            requests,
            gap: window / in_window,
            batch: 1,
            active: (in_window, SESSION_TAIL, f64::MAX),
            silence: 3.0 * window,
            random: random.clone(),
        }
    }

    fn near(&self, requests: u64, random: &mut Random) -> SyntheticSource {
        let window = self.limit.window_seconds();
        let in_window = random.uniform(0.5, 1.5) * f64::from(self.limit.limit);
        let batch = if random.unit() < 0.5 {
            1
        } else {
            whole(random.uniform(2.0, 21.0)).min(20)
        };
        SyntheticSource {
            kind: TrafficKind::Near,
            requests,
            gap: window / in_window,
            batch,
            active: (5.0 * in_window, SESSION_TAIL, f64::MAX),
            silence: 5.0 * window,
            random: random.clone(),
        }
    }
}

fn visitor(requests: u64, random: &mut Random) -> SyntheticSource {
    let mean_burst = BURST_LEAST * BURST_TAIL / (BURST_TAIL - 1.0);
    let day_share = DAY / requests.max(1) as f64;
    // A source that sends all day must send twice as fast while active as on average, or there is no silence left.
    let gap = random.log_uniform(0.1, 2.0).min(day_share / 2.0);
    let mean_silence = mean_burst * (day_share - gap);
    SyntheticSource {
        kind: TrafficKind::Visitor,
        requests,
        gap,
        batch: 1,
        active: (BURST_LEAST, BURST_TAIL, BURST_MOST),
        silence: mean_silence * (SESSION_TAIL - 1.0) / SESSION_TAIL,
        random: random.clone(),
    }
}

impl SyntheticSource {
    /// Its requests, in order of time.
    pub(crate) fn arrivals(self) -> Arrivals {
        let mut arrivals = Arrivals {
            micros: BEGIN_MICROS,
            left: self.requests,
            active_left: 0,
            batch_left: 0,
            source: self,
        };
        // Somewhere within the day, or all windows of all sources would begin together.
        let offset = arrivals.source.random.uniform(0.0, DAY);
        arrivals.pass(offset);
        arrivals
    }
}

/// The requests of one source, as they come.
#[derive(Debug)]
pub(crate) struct Arrivals {
    source: SyntheticSource,
    micros: u64,
    left: u64,
    active_left: u64,
    batch_left: u64,
}

impl Arrivals {
    fn pass(&mut self, seconds: f64) {
        self.micros = self.micros.saturating_add(whole(seconds * 1e6));
    }

    fn begin_session(&mut self) {
        let (least, tail, most) = self.source.active;
        let random = &mut self.source.random;
        self.active_left = whole(random.pareto(least, tail, most).round()).max(1);
        self.batch_left = 0;
        let hour = self.micros as f64 / 1e6 / DAY * std::f64::consts::TAU;
        let activity = 1.0 + SWING * hour.sin();
        // Nobody is silent for more than a day: instants stay representable, and a source ends some day.
        let silence = self
            .source
            .random
            .pareto(self.source.silence, SESSION_TAIL, DAY);
        self.pass(silence / activity);
    }
}

impl Iterator for Arrivals {
    type Item = Timestamp;

    fn next(&mut self) -> Option<Timestamp> {
        self.left = self.left.checked_sub(1)?;
        if self.active_left == 0 {
            self.begin_session();
        } else if self.batch_left == 0 {
            let mean = self.source.gap * self.source.batch as f64;
            let gap = self.source.random.exponential(mean);
            self.pass(gap);
        } else {
            self.pass(0.005);
        }
        self.active_left -= 1;
        self.batch_left = match self.batch_left {
            0 => self.source.batch - 1,
            left => left - 1,
        };
        Some(Timestamp::from_nanos(self.micros.saturating_mul(1_000)))
    }
}

/// Sources of one kind, and how many requests they share.
#[derive(Clone, Copy, Debug)]
struct ClientGroup {
    first: u64,
    sources: u64,
    requests: u64,
}

impl ClientGroup {
    fn rank(&self, index: u64) -> Option<u64> {
        index
            .checked_sub(self.first)
            .filter(|rank| *rank < self.sources)
    }

    /// The requests of this rank by Zipf's law. Differences of a rounded running sum, so that all ranks together have
    /// exactly the group's requests without anybody adding them up.
    fn zipf(&self, rank: u64) -> u64 {
        let below = |rank: u64| ((rank as f64 + RANK_SHIFT) / RANK_SHIFT).ln();
        self.between(below(rank), below(rank + 1), below(self.sources))
    }

    fn equal(&self, rank: u64) -> u64 {
        self.between(rank as f64, (rank + 1) as f64, self.sources as f64)
    }

    fn between(&self, from: f64, to: f64, all: f64) -> u64 {
        let running = |sum: f64| whole((sum / all * self.requests as f64).round());
        running(to) - running(from)
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::Nanos;

    use super::*;

    const LIMIT: Limit = Limit::new(100, Nanos::MINUTE);

    #[test]
    fn there_are_exactly_as_many_requests_as_asked_for() {
        for (requests, sources) in [(1_000_000, 2_700), (1_234_567, 999), (1_000, 3), (0, 10)] {
            let population = Population::new(requests, sources, 1, LIMIT);
            let sent = (0..population.sources()).map(|index| population.source(index).requests);
            assert_eq!(sent.sum::<u64>(), requests);
        }
        let population = Population::new(100_000, 300, 1, LIMIT);
        let sent = (0..300).map(|index| population.source(index).arrivals().count());
        assert_eq!(sent.sum::<usize>(), 100_000);
    }

    #[test]
    fn the_same_seed_sends_the_same_requests_and_another_does_not() {
        let arrivals = |seed| {
            let population = Population::new(50_000, 100, seed, LIMIT);
            (0..100)
                .flat_map(|index| population.source(index).arrivals())
                .collect::<Vec<_>>()
        };
        assert_eq!(arrivals(1), arrivals(1));
        assert_ne!(arrivals(1), arrivals(2));
    }

    #[test]
    fn a_source_s_requests_are_in_order_of_time() {
        let population = Population::new(300_000, 1_000, 5, LIMIT);
        for index in [0, 1, 2, 3, 500, 999] {
            assert!(population.source(index).arrivals().is_sorted());
        }
    }

    #[test]
    fn few_sources_send_most_of_it() {
        let population = Population::new(100_000_000, 270_000, 1, LIMIT);
        let mut sent: Vec<u64> = (0..population.sources())
            .map(|index| population.source(index).requests)
            .collect();
        sent.sort_unstable_by(|a, b| b.cmp(a));
        let top: u64 = sent.iter().take(2_700).sum();
        assert!(
            top * 100 >= 50 * 100_000_000,
            "the first percent sends {top}"
        );
        let visitors: Vec<u64> = (0..population.sources())
            .map(|index| population.source(index))
            .filter(|source| source.kind == TrafficKind::Visitor)
            .map(|source| source.requests)
            .collect();
        let top: u64 = visitors.iter().take(visitors.len() / 100).sum();
        assert!(
            top * 100 >= 40 * visitors.iter().sum::<u64>(),
            "{top} among visitors"
        );
    }

    #[test]
    fn arrivals_are_bursty() {
        // The gaps of a Poisson process have a coefficient of variation of one.
        let population = Population::new(1_000_000, 2_700, 1, LIMIT);
        let instants: Vec<u64> = population
            .source(1_000)
            .arrivals()
            .map(|at| at.as_nanos() / 1_000)
            .collect();
        let gaps: Vec<f64> = instants
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as f64)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!(
            variance.sqrt() / mean > 1.5,
            "{} gaps, {mean} µs",
            gaps.len()
        );
    }

    #[test]
    fn kinds_are_where_they_should_be_relative_to_the_limit() {
        let population = Population::new(10_000_000, 27_000, 1, LIMIT);
        let rate = |index| {
            let source = population.source(index);
            (source.kind, 60.0 / source.gap / 100.0)
        };
        for index in 0..27 {
            let (kind, rate) = rate(index);
            assert_eq!(kind, TrafficKind::Attacker);
            assert!((2.99..50.01).contains(&rate));
        }
        for index in 27..81 {
            let (kind, rate) = rate(index);
            assert_eq!(kind, TrafficKind::Near);
            assert!((0.49..1.51).contains(&rate));
        }
        assert_eq!(rate(81).0, TrafficKind::Visitor);
        assert_eq!(rate(26_999).0, TrafficKind::Visitor);
    }
}

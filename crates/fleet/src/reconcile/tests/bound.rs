//! The bound that `explain` prints holds (I-01 for `async`). Over any window, all nodes together admit at most the
//! quota and (n − 1) · (burst + rate × t). Here t is the interval or, if that is longer, the longest time for which a
//! charge was unknown to another node plus a fifth of the interval.

use std::sync::Arc;

use tollgate_core::{Nanos, Timestamp};
use tollgate_store::{Clock as _, IdentifiedLimit, ManualClock};
use tollgate_testkit::oracle::BucketLog;

use super::super::{Reconciler, SpendOutcome};
use super::fake_remote::{FakeRemote, Fate, START, bucket, check};
use crate::testing::poll_once;

const PER_SECOND: u64 = 20;
const STEP: u64 = 1_000_000_000 / PER_SECOND;
const BURST: u64 = 5;
const INTERVAL: Nanos = Nanos::SECOND;

struct SimRng(u64);

impl SimRng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % n.max(1)
    }
}

/// The settings of a run.
#[derive(Clone, Copy, Debug)]
struct Run {
    nodes: usize,
    /// The percentage of lost calls.
    lost: u64,
    /// The outage of the store, from and to, in milliseconds.
    partition: Option<(u64, u64)>,
    /// Negative control: nodes never reconcile.
    is_silent: bool,
    /// Negative control: the store forgives debt beyond the burst.
    forgives: bool,
    seconds: u64,
}

const QUIET: Run = Run {
    nodes: 3,
    lost: 0,
    partition: None,
    is_silent: false,
    forgives: false,
    seconds: 15,
};

struct RunTotals {
    /// The worst over-admission of any window, in nanoseconds of refill.
    excess: i128,
    /// The longest time for which a charge was unknown.
    unknown: i128,
    admitted: u64,
    dropped: u64,
}

fn run(run: Run, seed: u64) -> RunTotals {
    let mut rng = SimRng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let clock = Arc::new(ManualClock::at(START));
    let limit = bucket(PER_SECOND, BURST);
    let mut remote = FakeRemote::new(&clock);
    remote.forgiving_limit = run.forgives.then_some(limit);
    let nodes: Vec<Reconciler> = (0..run.nodes)
        .map(|node| Reconciler::for_keys(100, seed ^ (node as u64) << 40))
        .collect();
    for node in &nodes {
        node.set_nodes(u32::try_from(run.nodes).unwrap());
    }
    let mut log = BucketLog::new(STEP, BURST);
    let (mut admitted, mut unknown) = (0, 0);
    // The last report of each node, and up to when each node knows each other's charges.
    let mut reported = vec![START; run.nodes];
    let mut known_until = vec![vec![START; run.nodes]; run.nodes];
    for milli in 0..run.seconds * 1_000 {
        clock.advance(Nanos::from_millis(1));
        let now = clock.now();
        for (index, node) in nodes.iter().enumerate() {
            // Far more requests than the limit, on changing nodes.
            if rng.below(4) == 0 && spends(node, &limit, now) {
                admitted += 1;
                log.charge(now.as_nanos(), i128::from(STEP));
                let oldest = known_until[index].iter().min().unwrap();
                unknown = unknown.max(i128::from(now.since(*oldest).as_nanos()));
            }
            if run.is_silent || !(milli + index as u64 * 37).is_multiple_of(90) {
                continue;
            }
            let is_cut = run
                .partition
                .is_some_and(|(from, to)| (from..to).contains(&milli));
            let fate = match rng.below(100) {
                _ if is_cut => Fate::CallLost,
                roll if roll < run.lost / 2 => Fate::CallLost,
                roll if roll < run.lost => Fate::ReplyLost,
                _ => Fate::Answered,
            };
            remote.set_fate(fate);
            let round = poll_once(node.reconcile(&remote, || clock.now())).unwrap();
            if round.keys > 0 && round.failed == 0 {
                reported[index] = now;
                known_until[index].clone_from(&reported);
            }
        }
    }
    let dropped = nodes.iter().map(|node| node.totals().dropped).sum();
    RunTotals {
        excess: log.worst_excess(),
        unknown,
        admitted,
        dropped,
    }
}

fn spends(node: &Reconciler, limit: &IdentifiedLimit, now: Timestamp) -> bool {
    let outcome = node.spend(&check(limit, 1), None, INTERVAL, now);
    matches!(outcome, SpendOutcome::Admitted(_))
}

/// The bound in nanoseconds of refill.
fn bound(nodes: usize, unknown: i128) -> i128 {
    let each = i128::from(STEP * BURST) + unknown.max(i128::from(INTERVAL.as_nanos()));
    (nodes as i128 - 1) * each
}

#[test]
fn i01_while_the_store_answers_the_printed_bound_holds_and_the_rate_is_about_met() {
    for nodes in 1..=4 {
        let totals = run(Run { nodes, ..QUIET }, 7 + nodes as u64);
        let interval = i128::from(INTERVAL.as_nanos());
        assert!(totals.unknown <= interval, "{} ns unknown", totals.unknown);
        let bound = bound(nodes, 0);
        assert!(
            totals.excess <= bound,
            "{nodes}: {} of {bound}",
            totals.excess
        );
        let rate = PER_SECOND * QUIET.seconds;
        let admitted = totals.admitted;
        println!(
            "{nodes} nodes: {admitted} of {rate}, excess {} of {bound}, {} dropped",
            totals.excess, totals.dropped
        );
        assert!(
            admitted >= rate * 8 / 10,
            "{nodes} nodes: {admitted} of {rate}"
        );
        assert!(
            admitted <= rate * 12 / 10 + BURST * nodes as u64,
            "{nodes} nodes: {admitted} of {rate}"
        );
        assert_eq!(totals.dropped > 0, nodes > 1, "{} dropped", totals.dropped);
    }
}

#[test]
fn i01_under_lost_calls_and_outages_the_bound_holds() {
    for seed in 0..12 {
        let lost = [5, 30, 60][usize::try_from(seed % 3).unwrap()];
        let partition = (seed % 2 == 0).then_some((4_000, 7_000));
        let settings = Run {
            lost,
            partition,
            seconds: 12,
            ..QUIET
        };
        let totals = run(settings, seed + 1);
        let late = i128::from(INTERVAL.as_nanos()) / 5;
        let bound = bound(settings.nodes, totals.unknown + late);
        assert!(
            totals.excess <= bound,
            "seed {seed}: {} of {bound}, {} ns unknown",
            totals.excess,
            totals.unknown
        );
    }
}

#[test]
fn control_nodes_that_never_reconcile_are_caught() {
    let silent = Run {
        is_silent: true,
        ..QUIET
    };
    assert!(run(silent, 1).excess > bound(3, 0));
}

#[test]
fn control_a_store_that_forgives_debt_is_caught() {
    let forgiving = Run {
        forgives: true,
        seconds: 30,
        ..QUIET
    };
    let (totals, correct) = (
        run(forgiving, 1),
        run(
            Run {
                seconds: 30,
                ..QUIET
            },
            1,
        ),
    );
    assert!(
        totals.excess > correct.excess.max(bound(3, 0)),
        "{} {}",
        totals.excess,
        correct.excess
    );
}

//! A custom driver for a simulation: replies take simulated time, and nothing waits for real.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tollgate_core::{Nanos, Timestamp};
use tollgate_store::Store as _;

use crate::testing::{START, TestCaller, TestEngine, engine, limit, per_second};
use crate::{CheckOptions, Decision, StoreSteps as _, checks};

/// Decides on requests at these times. Every batch takes `latency`. Returns how many are admitted.
fn simulate(
    engine: &TestEngine,
    arrivals: &[Timestamp],
    latency: Nanos,
    at: impl Fn(Timestamp),
) -> usize {
    let caller = TestCaller::named("alice");
    let mut decisions: Vec<Option<Decision<'_>>> = arrivals.iter().map(|_| None).collect();
    let mut events: BinaryHeap<Reverse<(Timestamp, usize)>> = BinaryHeap::new();
    events.extend(
        arrivals
            .iter()
            .enumerate()
            .map(|(number, when)| Reverse((*when, number))),
    );
    let mut admitted = 0;
    while let Some(Reverse((now, number))) = events.pop() {
        at(now);
        let decision = match decisions[number].take() {
            None => engine.decision(&caller, CheckOptions::default()),
            Some(mut waiting) => {
                let mut replies = waiting.take_replies();
                let outcome = engine
                    .store()
                    .decide(&checks::<32, _>(&waiting), &mut replies);
                waiting.resume(replies, outcome);
                waiting
            }
        };
        if decision.batch_len() > 0 {
            decisions[number] = Some(decision);
            events.push(Reverse((now.after(latency), number)));
        } else {
            admitted += usize::from(decision.into_verdict().is_admitted());
        }
    }
    admitted
}

#[test]
fn decisions_that_overlap_in_simulated_time_admit_exactly_the_limit() {
    for latency in [0, 1, 40, 400] {
        let (engine, clock) = engine(vec![limit("api", per_second(10))]);
        // Forty at once and forty over the next second: the burst and its refill are admitted.
        let arrivals =
            (0..80_u64).map(|n| START.after(Nanos::from_millis(25 * n.saturating_sub(40))));
        let arrivals: Vec<Timestamp> = arrivals.collect();
        let admitted = simulate(&engine, &arrivals, Nanos::from_millis(latency), |now| {
            clock.set(now);
        });
        assert_eq!(admitted, 10 + 9, "{latency} ms");
    }
}

//! Several things at once: the common face of all algorithms, all-or-nothing checks, lending and shares.

use std::hint::black_box;

use tollgate_core::fair_share::{Demand, allocate};
use tollgate_core::limit::{Limit, Op, State, StateCheck, decide_all};
use tollgate_core::quota_lease::{LeaseSpec, LeasedBucket, QuotaLeaseId};
use tollgate_core::{FixedWindow, Nanos, Rate, SlidingCounter, TokenBucket, Window};

use super::{CaseRun, NOW};
use crate::measure::measured_section;

pub(super) fn one_face(times: u64) -> CaseRun {
    let limit = Limit::new(
        TokenBucket::builder(Rate::per_second(10))
            .burst(100)
            .build()?,
    );
    let state = State::default();
    measured_section(times, || {
        let (state, now, op) = black_box((&state, NOW, Op::Spend(1)));
        black_box(&limit).decide(state, now, op)
    });
    Ok(())
}

/// A bucket, a window and a counter on one request; peeks, so that every round finds the same state.
pub(super) fn three_limits(times: u64) -> CaseRun {
    let limits = [
        Limit::new(TokenBucket::builder(Rate::per_second(10)).build()?),
        Limit::new(FixedWindow::builder(1_000, Window::Epoch(Nanos::DAY)).build()?),
        Limit::new(SlidingCounter::builder(100, Nanos::MINUTE).build()?),
    ];
    let mut states = [const { State::Empty }; 3];
    measured_section(times, || {
        let [bucket, window, counter] = &mut states;
        let mut checks = [
            StateCheck {
                limit: &limits[0],
                state: bucket,
                op: Op::Spend(0),
            },
            StateCheck {
                limit: &limits[1],
                state: window,
                op: Op::Spend(0),
            },
            StateCheck {
                limit: &limits[2],
                state: counter,
                op: Op::Spend(0),
            },
        ];
        decide_all(black_box(&mut checks), NOW)
    });
    Ok(())
}

/// A decision on a bucket of which ten slices are out.
pub(super) fn lending(times: u64) -> CaseRun {
    let quota = TokenBucket::builder(Rate::per_second(1_000)).build()?;
    let mut bucket = LeasedBucket::default();
    for node in 0..10 {
        let want = LeaseSpec {
            id: QuotaLeaseId(node),
            min_units: 1,
            max_units: 50,
            duration: Nanos::SECOND,
        };
        bucket.grant(&quota, NOW, &want);
    }
    measured_section(times, || bucket.decide(black_box(&quota), NOW, 0));
    Ok(())
}

pub(super) fn shares(times: u64) -> CaseRun {
    let demands: Vec<Demand> = (1..=10)
        .map(|n| Demand {
            units: n * 30,
            weight: 1,
        })
        .collect();
    measured_section(times, || allocate(1_000, 10, black_box(&demands)));
    Ok(())
}

//! Any number for now, cost, state and receipt, under any quota that can be built (I-08, I-12): nothing panics, every denial has a wait,
//! and no state lies further ahead of now than its quota allows. Debug builds check overflow.

use proptest::prelude::*;
use tollgate_core::concurrency::LeaseId;
use tollgate_core::limit::{Edit, Limit, Op, Quota, State};
use tollgate_core::{
    Calendar, Concurrency, CounterState, FixedWindow, LeakyBucket, Nanos, Outcome, Rate, Receipt,
    SlidingCounter, SlidingLog, Timestamp, TokenBucket, UtcOffset, Window, WindowState,
};

use super::harness::{CheckResult, assert_caught, assert_holds, ensure};
use super::subject::at;

/// Any number, including the extremes and the edges of the types.
fn number() -> impl Strategy<Value = u64> {
    let edge = prop_oneof![
        Just(0_u64),
        Just(u64::from(u32::MAX)),
        Just(1 << 52),
        Just(1 << 62),
        Just(1 << 63),
        Just(u64::MAX)
    ];
    let near = (edge, -2_i64..=2).prop_map(|(edge, off)| edge.saturating_add_signed(off));
    prop_oneof![3 => near, 2 => any::<u64>(), 2 => 0_u64..100, 1 => 0_u64..1 << 40]
}

fn any_quota() -> impl Strategy<Value = Limit> {
    let five = (number(), number(), number(), number(), number());
    (0_u8..7, five).prop_filter_map("cannot be built", |(kind, (a, b, c, d, e))| {
        let (rate, span) = (Rate::new(a, Nanos::from_nanos(b)), Nanos::from_nanos(b));
        let token = TokenBucket::builder(rate).burst(c).overdraft(d);
        let leaky = LeakyBucket::queue(rate).burst(c).overdraft(d);
        let calendar = [Calendar::Day, Calendar::Week, Calendar::Month][usize::from(kind % 3)];
        let offset = i16::try_from(e % 840).ok()?;
        let window = match e % 3 {
            0 => Window::Epoch(span),
            1 => Window::FirstHit(span),
            _ => Window::Calendar(calendar, UtcOffset::from_minutes(offset).ok()?),
        };
        Some(match kind {
            0 => Limit::new(token.build().ok()?),
            1 => Limit::new(token.block(e).build().ok()?),
            2 => Limit::new(leaky.delay(e % c.max(1)).build().ok()?),
            3 => Limit::new(FixedWindow::builder(a, window).overdraft(d).build().ok()?),
            4 => Limit::new(
                SlidingLog::builder(a, span)
                    .overdraft(d)
                    .block(e)
                    .build()
                    .ok()?,
            ),
            5 => Limit::new(
                SlidingCounter::builder(a, span)
                    .overdraft(d)
                    .ceiling(c)
                    .build()
                    .ok()?,
            ),
            _ => Limit::new(Concurrency::new(a % 9, span).ok()?),
        })
    })
}

/// Any state, corrupt or of another algorithm.
fn any_state() -> impl Strategy<Value = State> {
    prop_oneof![
        Just(State::Empty),
        number().prop_map(State::Bucket),
        (number(), number()).prop_map(|(end, count)| State::Window(WindowState { end, count })),
        (number(), any::<u32>(), any::<u32>()).prop_map(|(start, previous, current)| {
            State::Counter(CounterState {
                start,
                previous,
                current,
            })
        }),
    ]
}

fn any_op() -> impl Strategy<Value = Op> {
    let receipt = (number(), number(), number()).prop_map(|(cost, then, mark)| Receipt {
        cost,
        at: at(then),
        mark,
    });
    prop_oneof![
        4 => number().prop_map(Op::Spend),
        1 => number().prop_map(Op::SpendUpTo),
        1 => number().prop_map(Op::ChargeAlways),
        2 => (receipt, number()).prop_map(|(receipt, actual)| Op::Settle { receipt, actual }),
        1 => number().prop_map(Op::Credit),
        2 => (0_u128..4, 0_u64..12)
            .prop_map(|(id, weight)| Op::Acquire { id: LeaseId(id), weight }),
        1 => (0_u128..4).prop_map(|id| Op::Renew(LeaseId(id))),
        1 => (0_u128..4).prop_map(|id| Op::Release(LeaseId(id))),
    ]
}

/// How far ahead of now the limit's state may lie.
fn reach(limit: &Limit) -> u64 {
    match limit.quota() {
        Quota::TokenBucket(quota) => quota.ceiling().as_nanos(),
        Quota::LeakyBucket(quota) => quota.ceiling().as_nanos(),
        Quota::FixedWindow(quota) => match quota.window() {
            Window::Epoch(length) => 2 * length.as_nanos(),
            Window::FirstHit(length) => length.as_nanos(),
            // The rest of this month and all of the next, at most.
            _ => 62 * Nanos::DAY.as_nanos(),
        },
        Quota::SlidingCounter(_) => 0,
        _ => u64::MAX,
    }
}

/// What must hold after any operation on any state.
fn stays_within_bounds(
    decide: impl Fn(&Limit, &State, Timestamp, Op) -> Option<(Outcome, Option<Edit>)>,
    (limit, mut state, ops): (Limit, State, Vec<(u64, Op)>),
) -> CheckResult {
    for (now, op) in ops {
        let now = at(now);
        let Some((outcome, next)) = decide(&limit, &state, now, op) else {
            continue;
        };
        if let Outcome::Deny { retry_after } = outcome {
            ensure!(!retry_after.is_zero(), "denied {op:?} without a wait");
        }
        let is_changed = next.is_some();
        if let Some(edit) = next {
            state.apply(edit);
        }
        let ahead = match &state {
            State::Bucket(tat) => tat.saturating_sub(now.as_nanos()),
            State::Window(window) => window.end.saturating_sub(now.as_nanos()),
            State::Counter(counter) => counter.start.saturating_sub(now.as_nanos()),
            _ => 0,
        };
        // A state of another algorithm stays until this one writes its own.
        let reach = reach(&limit);
        ensure!(
            !is_changed || ahead <= reach,
            "{ahead} ns ahead, {reach} allowed"
        );
        let status = limit.status(&state, now);
        ensure!(status.remaining <= status.limit, "{status:?}");
        // A peek leaves no state too far ahead: a clock that went back locks no client out.
        if let Ok(peek) = limit.decide(&state, now, Op::Spend(0)) {
            ensure!(
                peek.outcome == Outcome::Allow,
                "a peek got {:?}",
                peek.outcome
            );
            let mut peeked = state.clone();
            if let Some(edit) = peek.next {
                peeked.apply(edit);
            }
            ensure!(
                limit.status(&peeked, now) == status,
                "a peek changed {status:?}"
            );
        }
    }
    Ok(())
}

fn inputs() -> impl Strategy<Value = (Limit, State, Vec<(u64, Op)>)> {
    (
        any_quota(),
        any_state(),
        prop::collection::vec((number(), any_op()), 1..12),
    )
}

#[test]
fn i08_i12_no_number_breaks_any_limit() {
    assert_holds(&inputs(), |input| {
        stays_within_bounds(
            |limit, state, now, op| {
                let transition = limit.decide(state, now, op).ok()?;
                Some((transition.outcome, transition.next))
            },
            input,
        )
    });
}

#[test]
fn control_a_state_without_a_ceiling_or_a_wait_of_nothing_is_caught() {
    // Stores the state as it was instead of its correction.
    assert_caught(&inputs(), |input| {
        stays_within_bounds(
            |limit, state, now, op| {
                let transition = limit.decide(state, now, op).ok()?;
                let kept = match (state, transition.next) {
                    (State::Bucket(tat), Some(Edit::Bucket(next))) => {
                        Some(Edit::Bucket(next.max(*tat)))
                    }
                    (_, next) => next,
                };
                Some((transition.outcome, kept))
            },
            input,
        )
    });
    assert_caught(&inputs(), |input| {
        stays_within_bounds(
            |limit, state, now, op| {
                let transition = limit.decide(state, now, op).ok()?;
                let outcome = match transition.outcome {
                    Outcome::Deny { retry_after } => Outcome::Deny {
                        retry_after: Nanos::from_secs(retry_after.as_nanos() / 1_000_000_000),
                    },
                    other => other,
                };
                Some((outcome, transition.next))
            },
            input,
        )
    });
}

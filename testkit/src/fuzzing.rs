//! What fuzz targets and their smoke tests run: bytes in, a trace through a limit, promises checked on every step.
//!
//! The bytes choose a quota, then instants (far jumps in both directions among them) and operations. The same
//! function runs under a coverage-guided fuzzer and, on fixed inputs, in the ordinary tests.
//!
//! Must not know: which fuzzer calls it.

pub mod address;
pub mod path;
pub mod policy;
pub mod response;
pub mod snapshot;

use tollgate_core::concurrency::LeaseId;
use tollgate_core::limit::{Limit, Op, State};
use tollgate_core::{
    Calendar, Concurrency, FixedWindow, InvalidQuota, LeakyBucket, Nanos, Outcome, Rate, Receipt,
    SlidingCounter, SlidingLog, Timestamp, TokenBucket, UtcOffset, Window,
};

/// The longest trace that one input may describe.
const MOST_STEPS: usize = 256;

/// Bytes read as numbers; once they run out, everything is zero.
#[derive(Debug)]
struct ByteReader<'a>(&'a [u8]);

impl ByteReader<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    /// A number whose first byte says how wide it is, so that small and huge ones are equally likely.
    fn number(&mut self) -> u64 {
        let width = self.byte() % 9;
        (0..width).fold(0, |number, _| (number << 8) | u64::from(self.byte()))
    }
}

/// Runs the trace that the bytes describe and panics if a promise is broken.
///
/// # Panics
/// If a decision breaks a promise that holds for every input; that is what fuzzing is for.
pub fn limit_trace(bytes: &[u8]) {
    let mut bytes = ByteReader(bytes);
    let Ok(limit) = quota(&mut bytes) else {
        return;
    };
    let mut state = State::default();
    let mut now = Timestamp::from_nanos(bytes.number());
    let mut receipt = Receipt::default();
    for _ in 0..MOST_STEPS {
        if bytes.0.is_empty() {
            break;
        }
        now = instant(&mut bytes, now);
        let op = operation(&mut bytes, receipt);
        let before = limit.status(&state, now);
        let Ok(answer) = limit.decide(&state, now, op) else {
            continue;
        };
        if let Some(edit) = answer.next {
            state.apply(edit);
        }
        let after = limit.status(&state, now);
        assert!(
            after.remaining <= after.limit,
            "{limit:?} {op:?} left {after:?}"
        );
        match answer.outcome {
            Outcome::Allow | Outcome::Wait(_) => {
                if answer.receipt.cost > 0 {
                    receipt = answer.receipt;
                }
            }
            Outcome::Deny { retry_after } => {
                assert!(
                    !retry_after.is_zero(),
                    "{limit:?} {op:?} denied with no time to wait"
                );
                assert_eq!(
                    before, after,
                    "{limit:?} {op:?} was denied and changed the status"
                );
            }
            Outcome::Never => {
                assert_eq!(
                    before, after,
                    "{limit:?} {op:?} can never pass and changed the status"
                );
            }
        }
        if let Op::Spend(cost) = op {
            assert_eq!(
                answer.outcome.is_admitted(),
                cost <= before.remaining,
                "{limit:?} with {before:?} answered {:?} to a cost of {cost}",
                answer.outcome
            );
        }
    }
}

fn quota(bytes: &mut ByteReader<'_>) -> Result<Limit, InvalidQuota> {
    let kind = bytes.byte();
    let (units, period) = (bytes.number(), Nanos::from_nanos(bytes.number()));
    let (burst, overdraft) = (bytes.number(), bytes.number());
    let block = 1 + u64::from(bytes.byte() % 3);
    let rate = Rate::new(units, period);
    Ok(match kind % 8 {
        0 => TokenBucket::builder(rate)
            .burst(burst)
            .overdraft(overdraft)
            .block(block)
            .build()?
            .into(),
        1 => LeakyBucket::meter(rate).burst(burst).build()?.into(),
        2 => LeakyBucket::queue(rate)
            .burst(burst)
            .delay(overdraft)
            .build()?
            .into(),
        3 => FixedWindow::builder(units, Window::Epoch(period))
            .overdraft(overdraft)
            .build()?
            .into(),
        4 => {
            let minutes = i16::from_le_bytes([bytes.byte(), bytes.byte()]);
            let offset = UtcOffset::from_minutes(minutes)?;
            let calendar = match bytes.byte() % 3 {
                0 => Calendar::Day,
                1 => Calendar::Week,
                _ => Calendar::Month,
            };
            FixedWindow::builder(units, Window::Calendar(calendar, offset))
                .build()?
                .into()
        }
        5 => SlidingLog::builder(units, period)
            .overdraft(overdraft)
            .block(block)
            .build()?
            .into(),
        6 => SlidingCounter::builder(units, period)
            .overdraft(overdraft)
            .build()?
            .into(),
        _ => Concurrency::new(units, period)?.into(),
    })
}

/// The next instant: mostly a little later, sometimes anywhere.
fn instant(bytes: &mut ByteReader<'_>, now: Timestamp) -> Timestamp {
    match bytes.byte() % 8 {
        0 => Timestamp::from_nanos(bytes.number()),
        1 => Timestamp::from_nanos(now.as_nanos().saturating_sub(bytes.number())),
        2 => now,
        _ => now.after(Nanos::from_nanos(bytes.number())),
    }
}

fn operation(bytes: &mut ByteReader<'_>, receipt: Receipt) -> Op {
    match bytes.byte() % 12 {
        0 => Op::SpendUpTo(bytes.number()),
        1 => Op::ChargeAlways(bytes.number()),
        2 => Op::Settle {
            receipt,
            actual: bytes.number(),
        },
        3 => Op::Settle { receipt, actual: 0 },
        4 => Op::Credit(bytes.number()),
        5 | 6 => Op::Acquire {
            id: LeaseId(u128::from(bytes.byte())),
            weight: bytes.number(),
        },
        7 => Op::Renew(LeaseId(u128::from(bytes.byte()))),
        8 => Op::Release(LeaseId(u128::from(bytes.byte()))),
        _ => Op::Spend(bytes.number()),
    }
}

/// Bytes that look random and are the same for the same seed: inputs for a smoke test of a fuzz target.
pub fn pseudo_random_bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        // One step of a linear congruential generator; its high bits are random enough to vary a trace.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

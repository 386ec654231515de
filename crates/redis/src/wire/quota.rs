//! One limit and one operation as the numbers that a script needs. Everything that does not depend on the state is
//! computed here, so the scripts multiply and divide as little as possible. Must not know: keys, batches, replies.

use tollgate_core::fixed_window::{Calendar, Window};
use tollgate_core::limit::{Op, Quota};
use tollgate_core::{Concurrency, FixedWindow, SlidingCounter, SlidingLog, TokenBucket};

use super::bytes::Blob;
use super::code;

/// The blob for a limit and an operation, or `None` if the algorithm does not know it. Its second byte is the operation's
/// code.
pub(super) fn blob(quota: &Quota, op: Op) -> Option<Blob> {
    match quota {
        Quota::TokenBucket(bucket) => of_bucket(bucket, false, op),
        Quota::LeakyBucket(leaky) => of_bucket(leaky.as_tokens(), leaky.is_queue(), op),
        Quota::FixedWindow(window) => of_window(window, op),
        Quota::SlidingCounter(counter) => of_counter(counter, op),
        Quota::SlidingLog(log) => of_log(log, op),
        Quota::Concurrency(limit) => of_leases(limit, op),
        _ => None,
    }
}

fn of_bucket(bucket: &TokenBucket, is_queue: bool, op: Op) -> Option<Blob> {
    let (interval, block) = (bucket.interval().as_nanos().max(1), bucket.block().max(1));
    let (capacity, saturation) = (bucket.refill().as_nanos(), bucket.saturation().as_nanos());
    let price = |blocks: u64| blocks.saturating_mul(interval);
    let burst = capacity / interval;
    let (operation, bound, price) = match op {
        Op::Spend(cost) => match cost.div_ceil(block) {
            0 => (code::LOOK, 0, 0),
            blocks if blocks > burst => (code::NEVER, 0, 0),
            blocks => (code::SPEND, capacity, price(blocks)),
        },
        Op::SpendUpTo(0) => (code::LOOK, 0, 0),
        Op::SpendUpTo(_) if burst == 0 => (code::NEVER, 0, 0),
        Op::SpendUpTo(most) => (code::UP_TO, capacity, price(most.div_ceil(block))),
        Op::ChargeAlways(cost) => (code::ALWAYS, saturation, price(cost.div_ceil(block))),
        Op::Credit(amount) => (code::CREDIT, saturation, price(amount / block)),
        Op::Settle { .. } => (code::SETTLE, saturation, 0),
        _ => return None,
    };
    let blob = Blob::of(1, operation).pair(bucket.ceiling().as_nanos());
    Some(match operation {
        code::LOOK | code::NEVER => blob,
        code::SPEND => blob.pair(bound).pair(price),
        _ => blob
            .pair(bound)
            .pair(price)
            .pair(interval)
            .pair(block)
            .byte(is_queue.into()),
    })
}

fn of_window(window: &FixedWindow, op: Op) -> Option<Blob> {
    let (limit, saturation) = (window.limit(), window.saturation());
    let (operation, bound, asked) = match op {
        Op::Spend(cost) | Op::SpendUpTo(cost) if cost == 0 => (code::LOOK, 0, 0),
        Op::Spend(cost) if cost > limit => (code::NEVER, 0, 0),
        Op::SpendUpTo(_) if limit == 0 => (code::NEVER, 0, 0),
        Op::Spend(cost) => (code::SPEND, limit, cost),
        Op::SpendUpTo(most) => (code::UP_TO, limit, most),
        Op::ChargeAlways(cost) => (code::ALWAYS, saturation, cost),
        Op::Credit(amount) => (code::CREDIT, saturation, amount),
        Op::Settle { .. } => (code::SETTLE, saturation, 0),
        _ => return None,
    };
    let blob = Blob::of(2, operation).pair(bound).pair(asked);
    Some(match window.window() {
        Window::Epoch(length) => blob.byte(0).pair(length.as_nanos()),
        Window::FirstHit(length) => blob.byte(1).pair(length.as_nanos()),
        Window::Calendar(calendar, offset) => {
            let which = match calendar {
                Calendar::Day => 0,
                Calendar::Week => 1,
                Calendar::Month => 2,
                Calendar::Year => 3,
                _ => return None,
            };
            let minutes = u64::try_from(i32::from(offset.minutes()).saturating_add(840)).ok()?;
            blob.byte(2).split(which, minutes)
        }
        _ => return None,
    })
}

fn of_counter(counter: &SlidingCounter, op: Op) -> Option<Blob> {
    let limit = counter.limit();
    let (operation, asked) = match op {
        Op::Spend(cost) | Op::SpendUpTo(cost) if cost == 0 => (code::LOOK, 0),
        Op::Spend(cost) if cost > limit => (code::NEVER, 0),
        Op::SpendUpTo(_) if limit == 0 => (code::NEVER, 0),
        Op::Spend(cost) => (code::SPEND, cost),
        Op::SpendUpTo(most) => (code::UP_TO, most),
        Op::ChargeAlways(cost) => (code::ALWAYS, cost),
        Op::Credit(amount) => (code::CREDIT, amount),
        Op::Settle { .. } => (code::SETTLE, 0),
        _ => return None,
    };
    let (length, tick) = (
        counter.window().as_nanos(),
        counter.tick().as_nanos().max(1),
    );
    // A tick is a power of ten, and its exponent is what the state has room for.
    let power = u8::try_from(tick.ilog10()).ok()?;
    let blob = Blob::of(3, operation)
        .count(limit)
        .small(counter.saturation())
        .small(counter.ceiling())
        .count(asked)
        .wide(length / tick)
        .byte(power)
        .pair(length);
    Some(blob)
}

fn of_log(log: &SlidingLog, op: Op) -> Option<Blob> {
    let (limit, block) = (log.limit_blocks(), log.block().max(1));
    let (operation, asked) = match op {
        Op::Spend(cost) => match cost.div_ceil(block) {
            0 => (code::LOOK, 0),
            blocks if blocks > limit => (code::NEVER, 0),
            blocks => (code::SPEND, blocks),
        },
        Op::SpendUpTo(0) => (code::LOOK, 0),
        Op::SpendUpTo(_) if limit == 0 => (code::NEVER, 0),
        Op::SpendUpTo(most) => (code::UP_TO, most.div_ceil(block)),
        Op::ChargeAlways(cost) => (code::ALWAYS, cost.div_ceil(block)),
        Op::Credit(amount) => (code::CREDIT, amount / block),
        Op::Settle { .. } => (code::SETTLE, 0),
        _ => return None,
    };
    let blob = Blob::of(4, operation)
        .count(limit)
        .count(log.saturation_blocks())
        .count(asked)
        .pair(log.window().as_nanos())
        .pair(log.retention().as_nanos())
        .pair(block);
    Some(blob)
}

fn of_leases(quota: &Concurrency, op: Op) -> Option<Blob> {
    let (operation, id, weight) = match op {
        Op::Acquire { weight: 0, .. } => (code::LOOK, 0, 0),
        // Also what can never be admitted: it may be held already, from before the limit was lowered.
        Op::Acquire { id, weight } => (code::ACQUIRE, id.0, weight),
        Op::Renew(id) => (code::RENEW, id.0, 0),
        Op::Release(id) => (code::RELEASE, id.0, 0),
        _ => return None,
    };
    let blob = Blob::of(5, operation)
        .count(quota.limit())
        .pair(quota.lease().as_nanos())
        .count(weight)
        .id(id);
    Some(blob)
}

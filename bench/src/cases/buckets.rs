//! Token and leaky buckets: one word of state.

use std::hint::black_box;

use tollgate_core::{LeakyBucket, Nanos, Rate, Receipt, TokenBucket};

use super::{CaseRun, NOW};
use crate::measure::measured_section;

/// The state of a bucket at ten a second of which `used` are gone.
fn used(units: u64) -> u64 {
    NOW.after(Nanos::from_millis(100 * units)).as_nanos()
}

/// 10 a second with a burst of 100, of which `gone` are gone.
pub(super) fn token(times: u64, gone: u64, cost: u64) -> CaseRun {
    let bucket = TokenBucket::builder(Rate::per_second(10))
        .burst(100)
        .build()?;
    let tat = used(gone);
    measured_section(times, || {
        let (tat, now, cost) = black_box((tat, NOW, cost));
        black_box(&bucket).decide(tat, now, cost)
    });
    Ok(())
}

pub(super) fn token_status(times: u64) -> CaseRun {
    let bucket = TokenBucket::builder(Rate::per_second(10))
        .burst(100)
        .build()?;
    let tat = used(10);
    measured_section(times, || {
        let (tat, now) = black_box((tat, NOW));
        black_box(&bucket).status(tat, now)
    });
    Ok(())
}

/// Bytes at 10 Gbit/s, charged in blocks of 1,250: the one decision that divides.
pub(super) fn token_blocks(times: u64) -> CaseRun {
    let bucket = TokenBucket::builder(Rate::per_second(1_250_000_000))
        .block(1_250)
        .burst(125_000)
        .build()?;
    measured_section(times, || {
        let (tat, now, cost) = black_box((0, NOW, 1_500));
        black_box(&bucket).decide(tat, now, cost)
    });
    Ok(())
}

pub(super) fn token_refund(times: u64) -> CaseRun {
    let bucket = TokenBucket::builder(Rate::per_second(10))
        .burst(100)
        .build()?;
    let receipt = Receipt {
        cost: 10,
        at: NOW,
        mark: used(10),
    };
    measured_section(times, || {
        let (tat, now, receipt) = black_box((receipt.mark, NOW, &receipt));
        black_box(&bucket).refund(tat, now, receipt)
    });
    Ok(())
}

pub(super) fn leaky_meter(times: u64, gone: u64) -> CaseRun {
    leaky(
        times,
        &LeakyBucket::meter(Rate::per_second(10)).burst(20).build()?,
        gone,
    );
    Ok(())
}

pub(super) fn leaky_queue(times: u64, gone: u64) -> CaseRun {
    leaky(
        times,
        &LeakyBucket::queue(Rate::per_second(10)).burst(20).build()?,
        gone,
    );
    Ok(())
}

fn leaky(times: u64, bucket: &LeakyBucket, gone: u64) {
    let tat = used(gone);
    measured_section(times, || {
        let (tat, now, cost) = black_box((tat, NOW, 1));
        black_box(bucket).decide(tat, now, cost)
    });
}

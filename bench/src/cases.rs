//! The decisions whose instructions are counted, by name.
//!
//! A case prepares its inputs, then decides `times` times inside [`measured_section`]. Inputs pass through `black_box`
//! on every call, so that nothing is computed ahead of the loop. To add an algorithm: write its functions, name them in
//! [`CASES`], and run `cargo xtask bench instructions --save`.

use std::hint::black_box;

use tollgate_core::{InvalidQuota, Nanos, Rate, Timestamp, TokenBucket};

use crate::measure::measured_section;

/// A case runs so many decisions, or says why its quota cannot be built.
pub type Case = fn(u64) -> Result<(), InvalidQuota>;

/// Every case, by the name under which its count is kept.
pub const CASES: &[(&str, Case)] = &[
    ("harness", harness),
    ("token_bucket/allow", |times| token_bucket(times, 0, 1)),
    ("token_bucket/deny", |times| token_bucket(times, 100, 1)),
    ("token_bucket/never", |times| token_bucket(times, 0, 101)),
    ("token_bucket/peek", |times| token_bucket(times, 50, 0)),
    ("token_bucket/status", token_bucket_status),
    ("token_bucket/allow_blocks", token_bucket_blocks),
];

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

/// What the loop itself costs: three inputs in, one word out, no decision.
fn harness(times: u64) -> Result<(), InvalidQuota> {
    measured_section(times, || {
        let (state, now, cost) = black_box((0_u64, NOW, 1_u64));
        state ^ now.as_nanos() ^ cost
    });
    Ok(())
}

/// 10 a second with a burst of 100, of which `used` are gone.
fn token_bucket(times: u64, used: u64, cost: u64) -> Result<(), InvalidQuota> {
    let bucket = TokenBucket::at(Rate::per_second(10)).burst(100).build()?;
    let tat = NOW.after(Nanos::from_millis(100 * used)).as_nanos();
    measured_section(times, || {
        let (tat, now, cost) = black_box((tat, NOW, cost));
        black_box(&bucket).decide(tat, now, cost)
    });
    Ok(())
}

fn token_bucket_status(times: u64) -> Result<(), InvalidQuota> {
    let bucket = TokenBucket::at(Rate::per_second(10)).burst(100).build()?;
    let tat = NOW.after(Nanos::SECOND).as_nanos();
    measured_section(times, || {
        let (tat, now) = black_box((tat, NOW));
        black_box(&bucket).status(tat, now)
    });
    Ok(())
}

/// Bytes at 10 Gbit/s, charged in blocks of 1,250: the one decision that divides.
fn token_bucket_blocks(times: u64) -> Result<(), InvalidQuota> {
    let bucket = TokenBucket::at(Rate::per_second(1_250_000_000))
        .block(1_250)
        .burst(125_000)
        .build()?;
    measured_section(times, || {
        let (tat, now, cost) = black_box((0, NOW, 1_500));
        black_box(&bucket).decide(tat, now, cost)
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_case_runs_and_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = CASES.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), CASES.len());
        for (name, case) in CASES {
            assert_eq!(case(2), Ok(()), "{name}");
            assert!(
                !name.contains(char::is_whitespace),
                "{name} is a word in bench/instructions.txt"
            );
        }
    }
}

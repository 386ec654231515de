//! I-15 and I-08, as the store's own keys tell: every one of them ends, and none reaches further ahead than its limit does.
//!
//! Must not know: how keys are named, how state is stored.

use std::time::Duration;

use super::violation::{Promise, Violation};

/// Whether every key of a store has a time to live, at most this long. `found` has the names with what `PTTL` says of them.
///
/// # Errors
/// A key that lives for ever, or too long.
pub fn times_to_live(found: &[(String, i64)], longest: Duration) -> Result<(), Violation> {
    let longest = i64::try_from(longest.as_millis()).unwrap_or(i64::MAX);
    for (key, left) in found {
        let why = match *left {
            -1 => "it lives for ever".to_owned(),
            left if left > longest => format!("it lives for {left} ms, longer than {longest}"),
            // Below: it was gone when it was looked at, as it should be sometime.
            _ => continue,
        };
        return Err(Violation::new(Promise::TimeToLive, key, why));
    }
    Ok(())
}

/// Whether a bucket's state lies no further ahead of the store's clock than it can be in debt: all in nanoseconds.
///
/// # Errors
/// It does, and would lock its client out.
pub fn not_too_far_ahead(key: &str, state: u64, now: u64, ceiling: u64) -> Result<(), Violation> {
    let ahead = state.saturating_sub(now);
    if ahead <= ceiling {
        return Ok(());
    }
    let why = format!("the state lies {ahead} ns ahead, beyond {ceiling}");
    Err(Violation::new(Promise::Clock, key, why))
}

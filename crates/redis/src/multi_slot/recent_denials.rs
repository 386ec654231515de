//! Which keys have denied recently. Their slots are charged first, so that a flood of requests that one limit denies is
//! not charged to other limits and refunded again and again. It affects only the order: a collision or a lost write
//! costs one round trip.
//!
//! Must not know: slots, replies.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::key_name::NameDigest;

/// How long a denial is remembered.
const REMEMBER_FOR: Duration = Duration::from_secs(1);
const CELLS: usize = 1_024;

/// For each cell the digest that denied last and the time, in one word.
#[derive(Debug)]
pub(crate) struct RecentDenials {
    began: Instant,
    cells: Vec<AtomicU64>,
}

impl RecentDenials {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            cells: std::iter::repeat_with(|| AtomicU64::new(0))
                .take(CELLS)
                .collect(),
        }
    }

    /// Records that this key has denied now.
    pub(super) fn remember(&self, key: NameDigest) {
        if let Some(cell) = self.cells.get(key.index_below(CELLS)) {
            cell.store(word(key, self.millis()), Ordering::Relaxed);
        }
    }

    /// Whether this key has denied recently.
    pub(super) fn has_denied(&self, key: NameDigest) -> bool {
        let Some(cell) = self.cells.get(key.index_below(CELLS)) else {
            return false;
        };
        let (now, word_now) = (self.millis(), cell.load(Ordering::Relaxed));
        let is_same = word_now != 0 && word(key, 0) >> 32 == word_now >> 32;
        let for_millis = u32::try_from(REMEMBER_FOR.as_millis()).unwrap_or(u32::MAX);
        is_same && now.wrapping_sub(low(word_now)) <= for_millis
    }

    fn millis(&self) -> u32 {
        low(u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

/// The upper half of the digest's bits, which do not select its cell, and the time.
fn word(key: NameDigest, millis: u32) -> u64 {
    (key.upper_half() & 0xffff_ffff_0000_0000) | u64::from(millis)
}

fn low(word: u64) -> u32 {
    u32::try_from(word & 0xffff_ffff).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use tollgate_store::StoreKey;

    use super::*;
    use crate::key_name::KeyHashSecret;

    fn digest(text: &str) -> NameDigest {
        NameDigest::new(
            KeyHashSecret::new([3; 16]),
            &StoreKey::new(text.as_bytes()).unwrap(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_denial_is_remembered_for_a_second() {
        let lately = RecentDenials::new();
        assert!(!lately.has_denied(digest("alice")));
        lately.remember(digest("alice"));
        assert!(lately.has_denied(digest("alice")));
        assert!(!lately.has_denied(digest("bob")));
        tokio::time::advance(REMEMBER_FOR + Duration::from_millis(1)).await;
        assert!(!lately.has_denied(digest("alice")));
    }
}

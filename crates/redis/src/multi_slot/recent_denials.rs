//! Which keys have refused lately. Their place is asked first, so that a flood of requests that one limit refuses is not
//! charged to the others and given back again and again. Only an order follows from it: two keys that fall on one cell, or
//! a word that is lost, cost a round trip and nothing else.
//!
//! Must not know: places, answers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::key_name::NameDigest;

/// How long a refusal is remembered.
const REMEMBER_FOR: Duration = Duration::from_secs(1);
const CELLS: usize = 1_024;

/// For each cell the digest that refused last and when, in one word.
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

    /// This key has refused now.
    pub(super) fn remember(&self, key: NameDigest) {
        if let Some(cell) = self.cells.get(key.index_below(CELLS)) {
            cell.store(word(key, self.millis()), Ordering::Relaxed);
        }
    }

    /// Whether this key has refused a moment ago.
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

/// Half of the key's bits that do not choose its cell, and the time.
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
    async fn a_refusal_is_remembered_for_a_second() {
        let lately = RecentDenials::new();
        assert!(!lately.has_denied(digest("alice")));
        lately.remember(digest("alice"));
        assert!(lately.has_denied(digest("alice")));
        assert!(!lately.has_denied(digest("bob")));
        tokio::time::advance(REMEMBER_FOR + Duration::from_millis(1)).await;
        assert!(!lately.has_denied(digest("alice")));
    }
}

//! Counters that many threads increment without contention: threads have their own shards as far as there are enough,
//! and a read adds the shards.
//!
//! Must not know: what is counted.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

/// The most shards. Threads beyond this number share shards.
const MAX_SHARDS: usize = 16;

/// N counters that only grow.
///
/// ```
/// let counters = tollgate_engine::ShardedCounters::<2>::new();
/// counters.add(1, 3);
/// assert_eq!(counters.read(), [0, 3]);
/// ```
#[derive(Debug)]
pub struct ShardedCounters<const N: usize> {
    shards: Box<[CounterShard<N>]>,
}

/// Counters on cache lines of their own, written by few threads.
#[derive(Debug)]
#[repr(align(64))]
struct CounterShard<const N: usize>([AtomicU64; N]);

impl<const N: usize> ShardedCounters<N> {
    /// One shard for each core, within the bound.
    #[must_use]
    pub fn new() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let shards = cores.next_power_of_two().min(MAX_SHARDS);
        let shard = |_| CounterShard(std::array::from_fn(|_| AtomicU64::new(0)));
        Self {
            shards: (0..shards).map(shard).collect(),
        }
    }

    /// Adds to one counter. An unknown index is ignored.
    #[inline]
    pub fn add(&self, counter: usize, amount: u64) {
        // The number of shards is a power of two.
        let mask = self.shards.len().wrapping_sub(1);
        let shard = self.shards.get(thread_index() & mask);
        if let Some(counter) = shard.and_then(|CounterShard(shard)| shard.get(counter)) {
            counter.fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// The sums of all shards.
    #[must_use]
    pub fn read(&self) -> [u64; N] {
        let mut sums = [0_u64; N];
        for CounterShard(shard) in &self.shards {
            for (sum, counter) in sums.iter_mut().zip(shard) {
                *sum = sum.wrapping_add(counter.load(Ordering::Relaxed));
            }
        }
        sums
    }
}

impl<const N: usize> Default for ShardedCounters<N> {
    fn default() -> Self {
        Self::new()
    }
}

/// This thread's index. Threads are numbered in the order of their first call.
pub(crate) fn thread_index() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    OWN.with(|own| {
        if own.get() == usize::MAX {
            own.set(NEXT.fetch_add(1, Ordering::Relaxed) & (usize::MAX >> 1));
        }
        own.get()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_many_threads_add_up() {
        let shards = ShardedCounters::<3>::new();
        thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        shards.add(0, 1);
                        shards.add(2, 7);
                    }
                    shards.add(3, 1);
                });
            }
        });
        assert_eq!(shards.read(), [4_000, 0, 28_000]);
    }

    #[test]
    fn threads_do_not_share_a_cache_line() {
        assert_eq!(align_of::<CounterShard<1>>(), 64);
        assert_eq!(
            (size_of::<CounterShard<7>>(), size_of::<CounterShard<9>>()),
            (64, 128)
        );
    }
}

//! Counters that many threads increment without contention: the first threads have shards of their own, all others share
//! some, and a read adds the shards.
//!
//! Must not know: what is counted.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

/// The most threads with a shard of their own.
const MAX_OWNED: usize = 16;
/// So many threads with a shard of their own for one shard that others share. Few threads of a server beyond its cores count.
const OWNED_PER_SHARED: usize = 4;

/// N counters that only grow.
///
/// ```
/// let counters = tollgate_engine::ShardedCounters::<2>::new();
/// counters.add(1, 3);
/// assert_eq!(counters.read(), [0, 3]);
/// ```
#[derive(Debug)]
pub struct ShardedCounters<const N: usize> {
    /// The shards of the first threads, by thread index. Only its thread writes a shard.
    owned: Box<[CounterShard<N>]>,
    /// The shards of all other threads.
    shared: Box<[CounterShard<N>]>,
}

/// Counters on cache lines of their own, written by few threads.
#[derive(Debug)]
#[repr(align(64))]
struct CounterShard<const N: usize>([AtomicU64; N]);

impl<const N: usize> ShardedCounters<N> {
    /// One owned shard for each core, within the bound.
    #[must_use]
    pub fn new() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let owned = cores.next_power_of_two().min(MAX_OWNED);
        let shared = owned.div_ceil(OWNED_PER_SHARED);
        let shard = |_| CounterShard(std::array::from_fn(|_| AtomicU64::new(0)));
        Self {
            owned: (0..owned).map(shard).collect(),
            shared: (0..shared).map(shard).collect(),
        }
    }

    /// Adds to one counter. An unknown index is ignored.
    #[inline]
    pub fn add(&self, counter: usize, amount: u64) {
        let thread = thread_index();
        match self.owned.get(thread) {
            Some(CounterShard(shard)) => {
                if let Some(counter) = shard.get(counter) {
                    // No other thread writes it, so it needs no locked instruction.
                    let count = counter.load(Ordering::Relaxed).wrapping_add(amount);
                    counter.store(count, Ordering::Relaxed);
                }
            }
            None => self.add_shared(thread, counter, amount),
        }
    }

    /// Adds for a thread without a shard of its own.
    #[inline(never)]
    fn add_shared(&self, thread: usize, counter: usize, amount: u64) {
        // The number of shards is a power of two.
        let mask = self.shared.len().wrapping_sub(1);
        let shard = self.shared.get(thread & mask);
        if let Some(counter) = shard.and_then(|CounterShard(shard)| shard.get(counter)) {
            counter.fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// The sums of all shards.
    #[must_use]
    pub fn read(&self) -> [u64; N] {
        let mut sums = [0_u64; N];
        for CounterShard(shard) in self.owned.iter().chain(&self.shared) {
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

/// This thread's index. Threads are numbered in the order of their first call, and no number is used twice.
#[inline]
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

    /// Both kinds of shards are used: threads with an index beyond the owned shards, and one within.
    #[test]
    fn owned_and_shared_shards_add_up() {
        let shards = ShardedCounters::<1>::new();
        shards.owned[0].0[0].store(5, Ordering::Relaxed);
        shards.add_shared(usize::MAX, 0, 2);
        shards.add_shared(0, 0, 3);
        shards.add_shared(0, 1, 3);
        assert_eq!(shards.read(), [10]);
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

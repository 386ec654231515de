//! Which variable state is evicted: first those of the limit that is furthest above its share of the bytes, then the one
//! whose loss refunds the least.
//!
//! Within their share, states of denied keys and states that hold leases stay, unless the new key has the same limit and that
//! limit forgets. Reservations always stay. Must not know: tables, sketches, what is stored.

use std::cmp::Reverse;

use tollgate_core::Timestamp;
use tollgate_core::limit::WhenFull;

use super::shard::{BatchClaim, ENTRY_BYTES, VariableState, VariableStateShard};
use super::{Table, VariableStates};
use crate::contract::LimitId;

/// The order of eviction; the least is evicted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EvictionRank {
    /// The limit uses this many bytes, more than its share; then the used fraction of the quota.
    AboveShare(Reverse<u64>, u64),
    /// The used fraction of the quota.
    WithinShare(u64),
    /// The key is denied or holds leases, and has the limit of the new key, which forgets.
    Forgettable,
}

impl VariableStates {
    /// Evicts the first state of a limit above its share. Returns whether there was one.
    pub(super) fn evict_above_share(
        &self,
        shard: &mut VariableStateShard,
        newcomer: LimitId,
        now: Timestamp,
    ) -> bool {
        match self.eviction_candidate(shard, newcomer, now) {
            Some((EvictionRank::AboveShare(..), victim)) => {
                self.evict(shard, victim, now);
                true
            }
            _ => false,
        }
    }

    /// Evicts the first state for one that the running batch has inserted. Returns whether there was one.
    pub(super) fn evict_for_new(&self, shard: &mut VariableStateShard, now: Timestamp) -> bool {
        let new = shard.states.iter().find(|s| s.claim == BatchClaim::New);
        let newcomer = new.map(|entry| entry.hash.limit());
        let candidate = newcomer.and_then(|limit| self.eviction_candidate(shard, limit, now));
        if let Some((_, victim)) = candidate {
            self.evict(shard, victim, now);
        }
        candidate.is_some()
    }

    /// The number of states that may be evicted for a key of this limit.
    pub(super) fn evictable_count(
        &self,
        shard: &VariableStateShard,
        newcomer: LimitId,
        now: Timestamp,
    ) -> usize {
        let share = self.share(newcomer);
        let rank = |entry: &VariableState| self.rank(entry, newcomer, share, now);
        shard.states.iter().filter_map(rank).count()
    }

    /// Whether the limit may use bytes for one more entry. The last eighth is for limits within their share: a key in a shard
    /// without a state of the limit that uses all other bytes must still find some.
    pub(super) fn has_bytes(&self, limit: LimitId) -> bool {
        let half = u64::try_from(self.budget / 2).unwrap_or(u64::MAX);
        let share = self.share(limit).min(half);
        let bound = if self.usages.used(limit.0.get(), Table::Collections) > share {
            self.budget - self.budget / 8
        } else {
            self.budget
        };
        self.used().saturating_add(ENTRY_BYTES) <= bound
    }

    /// The bytes that each limit may use before its states are evicted first.
    fn share(&self, newcomer: LimitId) -> u64 {
        self.usages
            .share(Table::Collections, newcomer.0.get(), self.budget, 1)
    }

    fn eviction_candidate(
        &self,
        shard: &VariableStateShard,
        newcomer: LimitId,
        now: Timestamp,
    ) -> Option<(EvictionRank, usize)> {
        let share = self.share(newcomer);
        let rank = |entry: &VariableState| self.rank(entry, newcomer, share, now);
        let entries = shard.states.iter().enumerate();
        entries
            .filter_map(|(index, entry)| Some((rank(entry)?, index)))
            .min()
    }

    /// The state's place in the order; `None` if it must not be evicted.
    fn rank(
        &self,
        entry: &VariableState,
        newcomer: LimitId,
        share: u64,
        now: Timestamp,
    ) -> Option<EvictionRank> {
        if entry.claim != BatchClaim::None || !entry.ledger.is_empty() {
            return None;
        }
        let (limit, usage) = (entry.hash.limit(), entry.usage(now));
        let forgets = self.usages.when_full(limit.0.get()) == WhenFull::Forget;
        let bytes = self.usages.used(limit.0.get(), Table::Collections);
        if bytes > share && (forgets || !usage.has_leases) {
            return Some(EvictionRank::AboveShare(Reverse(bytes), usage.fraction));
        }
        if !usage.is_denied && !usage.has_leases {
            return Some(EvictionRank::WithinShare(usage.fraction));
        }
        (forgets && newcomer == limit).then_some(EvictionRank::Forgettable)
    }

    fn evict(&self, shard: &mut VariableStateShard, victim: usize, now: Timestamp) {
        let entry = shard.states.swap_remove(victim);
        self.release_bytes(&entry);
        let limit = entry.hash.limit().0.get();
        let debt = entry.debt(now);
        if debt > now.as_nanos() {
            self.usages.count_eviction(limit);
            if self.usages.when_full(limit) == WhenFull::Refuse {
                shard.evicted.push((entry.hash.tag(), debt));
            }
        }
    }
}

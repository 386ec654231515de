//! Eviction, claims of a batch, and expiry of variable states.

use super::*;
use crate::contract::LimitId;
use crate::key::StoreKey;
use crate::memory::hash::HashSeed;
use std::num::NonZeroU16;
use tollgate_core::SlidingLog;
use tollgate_core::limit::Op;
use tollgate_core::reservation::{Correction, ReservationId};

const NOW: Timestamp = Timestamp::from_secs(1_000);

fn hash(name: &str) -> StateHash {
    let key = StoreKey::new(name.as_bytes()).unwrap();
    HashSeed::from_words([1, 2]).hash_state(&key, LimitId(NonZeroU16::MIN))
}

fn log(window: Nanos) -> Limit {
    SlidingLog::builder(10, window).build().unwrap().into()
}

/// One shard with enough bytes for everything.
fn one_shard() -> VariableStates {
    VariableStates::new(1, 1 << 20)
}

fn spend(states: &VariableStates, name: &str, cost: u64) {
    let limit = log(Nanos::MINUTE);
    let mut shard = states.lock(0).unwrap();
    let entry = states.get_or_insert(&mut shard, hash(name), &limit, NOW);
    let entry = entry.unwrap();
    let decided = limit.decide(&entry.state, NOW, Op::Spend(cost)).unwrap();
    entry.state.apply(decided.next.unwrap());
    states.recount_bytes(entry);
    states.end_batch(&mut shard, NOW);
}

fn full() -> VariableStates {
    let states = one_shard();
    for n in 0..STATES_PER_SHARD {
        spend(&states, &format!("old-{n}"), 2);
    }
    states
}

/// Regression: a new key evicted a state as soon as it was looked up, even if it was then denied or only peeked.
#[test]
fn a_peek_evicts_no_state() {
    let states = full();
    let mut shard = states.lock(0).unwrap();
    let new_key = hash("newcomer");
    assert!(
        states
            .get_or_insert(&mut shard, new_key, &log(Nanos::MINUTE), NOW)
            .is_some()
    );
    states.end_batch(&mut shard, NOW);
    assert!(shard.get(new_key).is_none());
    for n in 0..STATES_PER_SHARD {
        assert!(shard.get(hash(&format!("old-{n}"))).is_some());
    }
    assert_eq!(states.evictions(), 0);
}

/// Regression: of two new keys of one batch in one shard, the second evicted the first, whose charge was lost.
#[test]
fn a_state_that_the_batch_uses_is_never_evicted_and_evictions_are_counted() {
    let states = full();
    let mut shard = states.lock(0).unwrap();
    let limit = log(Nanos::MINUTE);
    for name in ["one", "two"] {
        states.get_or_insert(&mut shard, hash(name), &limit, NOW);
    }
    for name in ["one", "two"] {
        let entry = shard.get(hash(name)).unwrap();
        let decided = limit.decide(&entry.state, NOW, Op::Spend(1)).unwrap();
        entry.state.apply(decided.next.unwrap());
    }
    states.end_batch(&mut shard, NOW);
    assert_eq!(shard.states.len(), STATES_PER_SHARD);
    assert!(shard.get(hash("one")).is_some() && shard.get(hash("two")).is_some());
    assert_eq!(states.evictions(), 2);
}

#[test]
fn denied_keys_stay_and_a_new_key_finds_no_room() {
    let states = one_shard();
    for n in 0..STATES_PER_SHARD {
        spend(&states, &format!("denied-{n}"), 10);
    }
    let mut shard = states.lock(0).unwrap();
    let limit = log(Nanos::MINUTE);
    let new_key = hash("newcomer");
    assert!(
        states
            .get_or_insert(&mut shard, new_key, &limit, NOW)
            .is_none()
    );
    let later = NOW.after(Nanos::MINUTE);
    assert!(
        states
            .get_or_insert(&mut shard, new_key, &limit, later)
            .is_some()
    );
}

/// Regression: only the oldest record decided whether a ledger had expired.
#[test]
fn an_open_reservation_outlives_a_forgotten_one_in_the_same_ledger() {
    let states = one_shard();
    let mut shard = states.lock(0).unwrap();
    let limit = log(Nanos::SECOND);
    let (short, long) = (ReservationId(1), ReservationId(2));
    let entry = states
        .get_or_insert(&mut shard, hash("a"), &limit, NOW)
        .unwrap();
    for (id, hold) in [(short, Nanos::SECOND), (long, Nanos::HOUR)] {
        let options = states.reservation_options(hold);
        entry
            .ledger
            .open(NOW, &options, id, tollgate_core::Receipt::default());
    }
    states.end_batch(&mut shard, NOW);
    let later = NOW.after(Nanos::from_secs(120));
    states.clear_expired(&mut shard, later);
    let entry = shard.get(hash("a")).expect("the long one is still open");
    let options = states.reservation_options(Nanos::ZERO);
    let correction = entry.ledger.correction(later, &options, long, None);
    assert!(matches!(correction, Correction::Settle { .. }));
}

/// Regression: after a quota was lowered, a state was still measured by the old quota.
#[test]
fn a_key_that_a_lowered_quota_denies_is_not_evicted() {
    let states = full();
    let lower: Limit = SlidingLog::builder(2, Nanos::MINUTE)
        .build()
        .unwrap()
        .into();
    let evictable_count = || states.lock(0).unwrap().evictable_count(NOW);
    assert_eq!(evictable_count(), STATES_PER_SHARD);
    let id = LimitId(NonZeroU16::MIN);
    states.replace_limit(id, &log(Nanos::HOUR), &lower);
    assert_eq!(
        evictable_count(),
        STATES_PER_SHARD,
        "that was not its quota"
    );
    states.replace_limit(LimitId(NonZeroU16::MAX), &log(Nanos::MINUTE), &lower);
    assert_eq!(evictable_count(), STATES_PER_SHARD, "that is not its limit");
    states.replace_limit(id, &log(Nanos::MINUTE), &lower);
    assert_eq!(evictable_count(), 0);
    states.remove_limit(id);
    assert_eq!(
        (evictable_count(), states.used()),
        (0, 0),
        "nothing is left of it"
    );
}

/// Regression: a state was measured by the quota under which it was inserted.
#[test]
fn a_longer_window_keeps_a_log_for_longer() {
    let states = one_shard();
    spend(&states, "a", 10);
    let mut shard = states.lock(0).unwrap();
    let hourly = log(Nanos::HOUR);
    states.get_or_insert(&mut shard, hash("a"), &hourly, NOW);
    states.end_batch(&mut shard, NOW);
    states.clear_expired(&mut shard, NOW.after(Nanos::from_secs(120)));
    assert!(shard.get(hash("a")).is_some());
}

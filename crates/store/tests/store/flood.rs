//! More keys than there is room for: memory stays constant, denied keys stay denied, and evictions are counted.
//!
//! `cargo xtask bench flood` does the same with a hundred million keys.

use std::collections::BTreeMap;

use tollgate_core::{Nanos, Timestamp};
use tollgate_store::{Clock as _, IdentifiedLimit, Op, QuotaCheck, ReplyNote, StoreKey};

use crate::support::{TestStore, bucket, id, numbered_limit, store};

/// Keys in the flood, and keys that the table is made for.
const FLOOD: u64 = 500_000;
const ROOM: usize = 10_000;
/// What the process may grow by beyond the table: other tests run at the same time. A map of the flood's keys would
/// take more.
const SLACK: usize = 16 << 20;

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4_096
}

fn spend(store: &TestStore, limit: &IdentifiedLimit, key: &[u8], cost: u64) -> (bool, ReplyNote) {
    let check = QuotaCheck {
        key: StoreKey::new(key).unwrap(),
        limit,
        op: Op::Spend(cost),
    };
    let (outcome, [answer]) = store.decide_array([check]).unwrap();
    (outcome.is_admitted(), answer.note)
}

#[test]
fn i06_a_flood_of_keys_changes_neither_memory_nor_denials() {
    let (store, _clock) = store(ROOM);
    let guarded = numbered_limit(1, bucket(10, Nanos::HOUR));
    let quota = bucket(10, Nanos::MINUTE);
    let denied: Vec<String> = (0..500).map(|n| format!("denied-{n}")).collect();
    for key in &denied {
        assert!(spend(&store, &guarded, key.as_bytes(), 10).0);
    }
    let (before, usage_before) = (resident(), store.usage());
    for n in 0..FLOOD {
        let key = n.to_le_bytes();
        assert!(
            store
                .spend(&StoreKey::new(&key).unwrap(), id(2), &quota, 1)
                .is_admitted()
        );
    }
    let usage = store.usage();
    let grown = resident().saturating_sub(before);
    assert_eq!(usage.table_bytes, usage_before.table_bytes);
    assert!(
        grown <= usage.table_bytes + SLACK,
        "grew by {grown} bytes with a table of {}",
        usage.table_bytes
    );
    for key in &denied {
        let (admitted, note) = spend(&store, &guarded, key.as_bytes(), 1);
        assert_eq!((admitted, note), (false, ReplyNote::Plain), "{key}");
    }
    // The clock stands still, so every inserted state is live, and a missing one was evicted.
    let flood = numbered_limit(2, quota);
    let is_there = |n: &u64| {
        let key = n.to_le_bytes();
        store
            .inspect(&StoreKey::new(&key).unwrap(), &flood)
            .is_some()
    };
    let there = (0..FLOOD).filter(is_there).count() as u64;
    assert_eq!(
        usage.overflow_decisions, 0,
        "no key had only denied neighbours"
    );
    assert_eq!(usage.evictions, FLOOD - there);
    assert!(there >= ROOM as u64, "{there} are there");
}

/// Small enough to read every key after every step.
#[test]
fn evictions_are_what_an_oracle_finds_missing() {
    let (store, clock) = store(20);
    let limits = [
        numbered_limit(1, bucket(4, Nanos::SECOND)),
        numbered_limit(2, bucket(9, Nanos::from_secs(3))),
    ];
    // Until when each key has debt, as its replies tell.
    let mut live: BTreeMap<(usize, u64), Timestamp> = BTreeMap::new();
    let (mut missing, mut expired) = (0, 0);
    let mut random = crate::support::Random(7);
    for _ in 0..4_000 {
        clock.advance(Nanos::from_millis(random.below(120)));
        let now = clock.now();
        let before = live.len();
        live.retain(|_, until| *until > now);
        expired += before - live.len();
        let (limit, name) = (usize::from(random.below(2) == 1), random.below(400));
        let key = name.to_le_bytes();
        let check = QuotaCheck {
            key: StoreKey::new(&key).unwrap(),
            limit: &limits[limit],
            op: Op::Spend(1 + random.below(3)),
        };
        let (outcome, [answer]) = store.decide_array([check]).unwrap();
        if outcome.is_admitted() && answer.note == ReplyNote::Plain {
            live.insert((limit, name), now.after(answer.status.reset_after));
        }
        let before = live.len();
        live.retain(|(limit, name), _| {
            let key = name.to_le_bytes();
            store
                .inspect(&StoreKey::new(&key).unwrap(), &limits[*limit])
                .is_some()
        });
        missing += before - live.len();
    }
    assert!(missing > 100 && expired > 100, "{missing} {expired}");
    assert_eq!(store.usage().evictions, missing as u64);
}

//! After a restart the store decides as if there had been none: random traces that are saved and restored in the
//! middle, and reservations, leases, logs and the overflow sketch.

use std::sync::Arc;

use tollgate_core::concurrency::LeaseId;
use tollgate_core::limit::Quota;
use tollgate_core::reservation::ReservationId;
use tollgate_core::{
    Concurrency, FixedWindow, Nanos, Outcome, Receipt, SlidingLog, Timestamp, Window,
};
use tollgate_store::{
    Clock as _, IdentifiedLimit, ManualClock, MemoryStore, Op, QuotaCheck, ReplyNote, Store as _,
    StoreKey, StoreReply,
};

use crate::quotas::{ALGORITHMS, variants};
use crate::snapshot::Folder;
use crate::support::{Random, START, TestStore, bucket, numbered_limit, store};

/// A store and its clock, which a test can restart.
struct RestartableStore {
    store: TestStore,
    clock: Arc<ManualClock>,
}

impl RestartableStore {
    fn new(keys: usize) -> Self {
        let (store, clock) = store(keys);
        Self { store, clock }
    }

    /// The same after a restart.
    fn restarted(&self, name: &str, keys: usize) -> Self {
        let folder = Folder::new(name);
        self.store.save(&folder.file()).unwrap();
        let clock = Arc::new(ManualClock::at(self.clock.now()));
        let store = MemoryStore::restore(&folder.file(), keys, Arc::clone(&clock)).unwrap();
        Self { store, clock }
    }

    fn ask(&self, limit: &IdentifiedLimit, op: Op) -> StoreReply {
        let key = StoreKey::new(b"alice").unwrap();
        self.store
            .decide_array([QuotaCheck { key, limit, op }])
            .unwrap()
            .1[0]
    }
}

/// The requests of one step.
struct TraceStep {
    pause: Nanos,
    key: String,
    checks: Vec<(usize, Op)>,
}

/// Random requests on a few limits of every algorithm.
struct Trace {
    random: Random,
    rules: Vec<IdentifiedLimit>,
    keys: u64,
    receipts: Vec<Receipt>,
}

impl Trace {
    fn new(seed: u64, keys: u64) -> Self {
        let mut random = Random(seed);
        let numbers = 1..=u16::try_from(2 * ALGORITHMS.len()).unwrap();
        let rules = numbers
            .map(|n| {
                let algorithm = usize::from(n) % ALGORITHMS.len();
                numbered_limit(n, variants(algorithm, &mut random)[0])
            })
            .collect();
        Self {
            random,
            rules,
            keys,
            receipts: vec![Receipt::default()],
        }
    }

    fn step(&mut self, longest: u64, only_adds: bool) -> TraceStep {
        let first = self.random.below(self.rules.len() as u64);
        let checks = (0..=self.random.below(4)).map(|n| {
            let index = usize::try_from(first + 3 * n).unwrap() % self.rules.len();
            (index, self.op(index, only_adds))
        });
        let checks = checks.collect();
        TraceStep {
            pause: Nanos::from_nanos(self.random.below(longest)),
            key: self.random.below(self.keys).to_string(),
            checks,
        }
    }

    fn op(&mut self, index: usize, only_adds: bool) -> Op {
        let random = &mut self.random;
        let lease = LeaseId(u128::from(random.below(12)));
        let id = ReservationId(u128::from(random.below(6)));
        let cost = random.below(6);
        let acquire = Op::Acquire {
            id: lease,
            weight: 1 + cost / 3,
        };
        if let Quota::Concurrency(_) = self.rules[index].limit.quota() {
            return match random.below(5) {
                0 if !only_adds => Op::Release(lease),
                1 if !only_adds => Op::Renew(lease),
                _ => acquire,
            };
        }
        let hold = Nanos::from_secs(1 + random.below(30));
        let receipt =
            self.receipts[usize::try_from(random.below(self.receipts.len() as u64)).unwrap()];
        match random.below(16) {
            0 if !only_adds => Op::Credit(cost),
            1 if !only_adds => Op::Settle {
                receipt,
                actual: cost,
            },
            2 | 3 if !only_adds => Op::SettleReserved { id, actual: cost },
            4 if !only_adds => Op::CancelReserved(id),
            5 => Op::Peek(cost),
            6 => Op::SpendUpTo(cost + 1),
            7 => Op::ChargeAlways(cost + 1),
            8..=10 => Op::Reserve {
                id,
                cost: cost + 1,
                hold,
            },
            _ => Op::Spend(cost + 1),
        }
    }

    fn ask(&mut self, original: &RestartableStore, step: &TraceStep) -> String {
        original.clock.advance(step.pause);
        let key = StoreKey::new(step.key.as_bytes()).unwrap();
        let checks: Vec<QuotaCheck<'_>> = step
            .checks
            .iter()
            .map(|(index, op)| QuotaCheck {
                key,
                limit: &self.rules[*index],
                op: *op,
            })
            .collect();
        let mut answers = vec![StoreReply::EMPTY; checks.len()];
        let outcome = original.store.decide(&checks, &mut answers);
        let charged = answers.iter().map(|answer| answer.receipt);
        self.receipts
            .extend(charged.filter(|receipt| receipt.cost > 0));
        let forget = self.receipts.len().saturating_sub(32);
        self.receipts.drain(..forget);
        format!("{outcome:?} {answers:?}")
    }
}

fn eviction_counts(original: &RestartableStore) -> [u64; 2] {
    let usage = original.store.usage();
    [usage.evictions, usage.overflow_decisions]
}

/// The same requests to a restarted store and to one that was not restarted. Returns the evictions and overflow
/// decisions since, or the first difference.
fn compare(
    seed: u64,
    [room, later_room]: [usize; 2],
    keys: u64,
    only_adds: bool,
    spoil: impl FnOnce(&Trace, &RestartableStore),
) -> Result<[u64; 2], String> {
    let (mut trace, original) = (Trace::new(seed, keys), RestartableStore::new(room));
    let longest = if only_adds { 1 } else { 1_000_000_000 };
    for _ in 0..2_500 {
        let step = trace.step(longest, only_adds);
        trace.ask(&original, &step);
    }
    let restarted = original.restarted(&format!("twins-{room}-{later_room}-{seed}"), later_room);
    spoil(&trace, &restarted);
    let before = eviction_counts(&original);
    for n in 0..2_500 {
        let step = trace.step(1_000_000_000, false);
        let [one, other] = [&original, &restarted].map(|twin| trace.ask(twin, &step));
        if one != other {
            return Err(format!("seed {seed}, step {n}:\n{one}\n{other}"));
        }
    }
    let since = eviction_counts(&original);
    let since = [since[0] - before[0], since[1] - before[1]];
    if since != eviction_counts(&restarted) {
        return Err(format!("{since:?} {:?}", eviction_counts(&restarted)));
    }
    Ok(since)
}

#[test]
fn a_restart_in_the_middle_of_a_trace_changes_no_reply() {
    for seed in 0..12 {
        let since = compare(seed, [5_000; 2], 20, false, |_, _| ()).unwrap();
        assert_eq!(since, [0, 0], "there is room for all keys");
    }
}

/// A slot has only part of its key's hash, so a file could not be read with another `--keys`: raising it reset every quota.
#[test]
fn a_restart_with_another_number_of_keys_changes_no_reply_while_there_is_room() {
    for (seed, rooms) in (0..).zip([
        [5_000, 9_000],
        [9_000, 5_000],
        [5_000, 700_000],
        [300_000, 5_000],
        [400_000, 300_000],
    ]) {
        let since = compare(seed, rooms, 20, false, |_, _| ()).unwrap();
        assert_eq!(since, [0, 0], "there is room for all keys");
    }
}

/// What does not fit goes by the rule of eviction: an exhausted key is not admitted again, because its debt is in the sketch of
/// its limit.
#[test]
fn a_restart_with_too_few_keys_admits_no_exhausted_key() {
    let window = Window::Epoch(Nanos::HOUR);
    let limits = [
        numbered_limit(1, bucket(2, Nanos::HOUR)),
        numbered_limit(2, FixedWindow::builder(2, window).build().unwrap()),
        numbered_limit(3, SlidingLog::builder(2, Nanos::HOUR).build().unwrap()),
    ];
    let admitted = |at: &RestartableStore, limit: &IdentifiedLimit| {
        let names = (0..500).map(|n: u32| n.to_string());
        let admitted = names.filter(|name| {
            let key = StoreKey::new(name.as_bytes()).unwrap();
            let op = Op::Spend(2);
            let check = QuotaCheck { key, limit, op };
            at.store.decide_array([check]).unwrap().0.is_admitted()
        });
        admitted.count()
    };
    let original = RestartableStore::new(2_000);
    for limit in &limits {
        assert_eq!(admitted(&original, limit), 500);
    }
    let small = original.restarted("too-few", 20);
    assert!(small.store.usage().evictions > 1_000);
    for limit in &limits {
        assert_eq!(admitted(&small, limit), 0, "{limit:?}");
    }
}

/// A machine without a battery starts with an earlier time. Nothing is admitted twice, and nobody waits longer than two windows.
#[test]
fn i08_a_restart_on_a_clock_that_went_back_neither_mints_nor_locks_out() {
    for algorithm in 0..ALGORITHMS.len() {
        let mut random = Random(7);
        let limit = numbered_limit(1, variants(algorithm, &mut random)[0]);
        if let Quota::Concurrency(_) = limit.limit.quota() {
            continue;
        }
        let original = RestartableStore::new(100);
        let (mut spent, most) = (0, limit.limit.capacity());
        while original.ask(&limit, Op::Spend(1)).outcome == Outcome::Allow && spent <= most {
            spent += 1;
        }
        let back = original.clock.now().as_nanos() - Nanos::from_secs(86_400).as_nanos();
        original.clock.set(Timestamp::from_nanos(back));
        let again = original.restarted(&format!("back-{algorithm}"), 200);
        let reply = again.ask(&limit, Op::Spend(1));
        assert_ne!(reply.outcome, Outcome::Allow, "{limit:?}");
        // A window that lies ahead ends with the next window at the latest.
        let lifetime = limit.limit.state_lifetime();
        again.clock.advance(lifetime.saturating_add(lifetime));
        assert_eq!(
            again.ask(&limit, Op::Spend(1)).outcome,
            Outcome::Allow,
            "{limit:?}"
        );
    }
}

/// Nothing has expired when the store is saved. An expired slot is free in both stores, but a key may get another slot
/// after a restart, and of two equal eviction candidates the other may be evicted.
#[test]
fn a_restart_of_a_full_store_changes_neither_replies_nor_evictions() {
    let mut total = [0, 0];
    for seed in 0..16 {
        let since = compare(seed, [12; 2], 60, true, |_, _| ()).unwrap();
        total = [total[0] + since[0], total[1] + since[1]];
    }
    assert!(total.iter().all(|often| *often > 1_000), "{total:?}");
}

#[test]
fn control_a_restart_that_loses_the_logs_is_noticed() {
    let lose = |trace: &Trace, restarted: &RestartableStore| {
        let log = |limit: &&IdentifiedLimit| matches!(limit.limit.quota(), Quota::SlidingLog(_));
        let limit = trace.rules.iter().find(log).unwrap();
        let lost = (0..20).filter(|key: &u64| {
            let key = key.to_string();
            let key = StoreKey::new(key.as_bytes()).unwrap();
            restarted.store.erase(&key, limit)
        });
        assert!(lost.count() > 0);
    };
    let noticed = (0..12).filter(|seed| compare(*seed, [5_000; 2], 20, false, lose).is_err());
    assert!(noticed.count() > 6);
}

#[test]
fn a_reservation_is_settled_or_cancelled_once_after_a_restart_too() {
    let original = RestartableStore::new(100);
    let limits = [
        numbered_limit(1, bucket(100, Nanos::HOUR)),
        numbered_limit(2, SlidingLog::builder(100, Nanos::HOUR).build().unwrap()),
    ];
    let [to_settle, to_cancel, settled] = [1, 2, 3].map(ReservationId);
    for limit in &limits {
        for id in [to_settle, to_cancel, settled] {
            let hold = Nanos::MINUTE;
            original.ask(limit, Op::Reserve { id, cost: 10, hold });
        }
        original.ask(
            limit,
            Op::SettleReserved {
                id: settled,
                actual: 1,
            },
        );
    }
    let again = original.restarted("reservations", 100);
    for limit in &limits {
        let known = again.ask(
            limit,
            Op::Reserve {
                id: to_settle,
                cost: 99,
                hold: Nanos::MINUTE,
            },
        );
        assert_eq!(
            (known.note, known.receipt.cost),
            (ReplyNote::AlreadyReserved, 10)
        );
        assert_eq!(known.status.remaining, 79);
        let op = Op::SettleReserved {
            id: to_settle,
            actual: 4,
        };
        assert_eq!(again.ask(limit, op).status.remaining, 85);
        assert_eq!(again.ask(limit, op).note, ReplyNote::AlreadyClosed);
        let cancelled = again.ask(limit, Op::CancelReserved(to_cancel));
        assert_eq!(cancelled.status.remaining, 95);
        let late = again.ask(limit, Op::CancelReserved(settled));
        assert_eq!(
            (late.note, late.status.remaining),
            (ReplyNote::AlreadyClosed, 95)
        );
    }
}

#[test]
fn live_leases_are_renewed_and_released_after_a_restart_and_expired_ones_are_gone() {
    let original = RestartableStore::new(100);
    let concurrency = numbered_limit(1, Concurrency::new(3, Nanos::MINUTE).unwrap());
    let [lost, renewed, released] = [1, 2, 3].map(LeaseId);
    let acquire = |id| Op::Acquire { id, weight: 1 };
    original.ask(&concurrency, acquire(lost));
    original.clock.advance(Nanos::from_secs(40));
    original.ask(&concurrency, acquire(renewed));
    original.ask(&concurrency, acquire(released));
    let again = original.restarted("leases", 100);
    let fourth = again.ask(&concurrency, acquire(LeaseId(4)));
    let retry_after = Nanos::from_secs(20);
    assert_eq!(fourth.outcome, Outcome::Deny { retry_after });
    again.clock.advance(retry_after);
    assert_eq!(
        again.ask(&concurrency, Op::Renew(lost)).note,
        ReplyNote::LeaseNotHeld
    );
    assert_eq!(
        again.ask(&concurrency, Op::Renew(renewed)).note,
        ReplyNote::Plain
    );
    assert_eq!(
        again
            .ask(&concurrency, Op::Release(released))
            .status
            .remaining,
        2
    );
    again.clock.advance(Nanos::from_secs(59));
    assert_eq!(
        again.ask(&concurrency, Op::Renew(renewed)).note,
        ReplyNote::Plain
    );
    again.clock.advance(Nanos::MINUTE);
    let empty = again.restarted("leases-again", 100);
    assert!(
        empty
            .store
            .inspect(&StoreKey::new(b"alice").unwrap(), &concurrency)
            .is_none()
    );
}

#[test]
fn keys_that_the_overflow_sketch_denies_are_denied_after_a_restart() {
    let (original, limit) = (
        RestartableStore::new(4),
        numbered_limit(1, bucket(2, Nanos::HOUR)),
    );
    let denied = |original: &RestartableStore| -> Vec<bool> {
        let names = (0..200).map(|n: u32| n.to_string());
        let denies = names.map(|name| {
            let check = QuotaCheck {
                key: StoreKey::new(name.as_bytes()).unwrap(),
                limit: &limit,
                op: Op::Spend(2),
            };
            !original
                .store
                .decide_array([check])
                .unwrap()
                .0
                .is_admitted()
        });
        denies.collect()
    };
    assert!(denied(&original).iter().any(|denied| !denied));
    assert!(original.store.usage().overflow_decisions > 100);
    let again = original.restarted("overflow", 4);
    assert!(denied(&again).iter().all(|denied| *denied));
    assert_eq!(again.clock.now(), START);
}

/// The fuzz target on a few inputs, so that ordinary tests run it too.
#[test]
fn any_bytes_as_a_snapshot_are_refused_or_decide() {
    for seed in 0..200 {
        let bytes = tollgate_testkit::fuzzing::pseudo_random_bytes(seed, 8 * 60);
        tollgate_testkit::fuzzing::snapshot::snapshot(&bytes);
        // Small numbers reach further: they are counts, flags and ids.
        let words = bytes
            .iter()
            .flat_map(|byte| u64::from(byte % 4).to_le_bytes());
        let words: Vec<u8> = words.collect();
        tollgate_testkit::fuzzing::snapshot::snapshot(&words);
    }
}

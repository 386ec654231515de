//! Saving and restoring: a restart refunds nothing, and only an intact file is accepted.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tollgate_core::concurrency::LeaseId;
use tollgate_core::reservation::ReservationId;
use tollgate_core::{
    Concurrency, FixedWindow, Nanos, SlidingCounter, SlidingLog, UtcOffset, Window,
};
use tollgate_store::{
    IdentifiedLimit, ManualClock, MemoryStore, Op, QuotaCheck, SnapshotError, StoreKey,
};

use crate::support::{Random, START, TestStore, bucket, id, numbered_limit, store};

/// A folder that is deleted on drop.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let folder = format!("tollgate-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.join("state")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn limits() -> [IdentifiedLimit; 3] {
    let day = Window::Calendar(
        tollgate_core::Calendar::Day,
        UtcOffset::from_minutes(0).unwrap(),
    );
    [
        numbered_limit(1, bucket(100, Nanos::HOUR)),
        numbered_limit(2, FixedWindow::builder(100, day).build().unwrap()),
        numbered_limit(
            3,
            SlidingCounter::builder(100, Nanos::HOUR).build().unwrap(),
        ),
    ]
}

fn spend(store: &TestStore, key: &str, cost: u64) -> [u64; 3] {
    let limits = limits();
    let checks = [0, 1, 2].map(|n| QuotaCheck {
        key: StoreKey::new(key.as_bytes()).unwrap(),
        limit: &limits[n],
        op: Op::Spend(cost),
    });
    let (_, answers) = store.decide_array(checks).unwrap();
    answers.map(|answer| answer.status.remaining)
}

/// Spends all of the first limit.
fn spend_first(store: &TestStore, key: &str) {
    let check = QuotaCheck {
        key: StoreKey::new(key.as_bytes()).unwrap(),
        limit: &limits()[0],
        op: Op::Spend(100),
    };
    let _verdict = store.decide_array([check]).unwrap();
}

pub(crate) fn restored(path: &Path, keys: usize) -> Result<TestStore, SnapshotError> {
    MemoryStore::restore(path, keys, Arc::new(ManualClock::at(START)))
}

#[test]
fn a_restart_does_not_reset_a_daily_quota() {
    let folder = Folder::new("restart");
    let (store, clock) = store(1_000);
    for n in 0..100 {
        spend(&store, &n.to_string(), n);
    }
    store.save(&folder.file()).unwrap();
    store.save(&folder.file()).unwrap();
    let again = restored(&folder.file(), 1_000).unwrap();
    for n in 0..100 {
        assert_eq!(spend(&again, &n.to_string(), 0), [100 - n; 3], "{n}");
    }
    // Expired states are not saved.
    let live = std::fs::metadata(folder.file()).unwrap().len();
    clock.advance(Nanos::from_secs(200 * 3_600));
    store.save(&folder.file()).unwrap();
    let empty = std::fs::metadata(folder.file()).unwrap().len();
    assert!(empty < live, "{empty} of {live} bytes");
    let left_over = std::fs::read_dir(&folder.0).unwrap().count();
    assert_eq!(left_over, 1, "no other file is left");
}

#[cfg(unix)]
#[test]
fn only_the_owner_may_read_a_snapshot_because_it_holds_the_hash_seed() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new("mode");
    let (store, _clock) = store(10);
    store.save(&folder.file()).unwrap();
    let mode = std::fs::metadata(folder.file())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Requests that leave a log, a lease and reservations behind.
fn collections() -> [(IdentifiedLimit, Op); 4] {
    let log = numbered_limit(4, SlidingLog::builder(30, Nanos::HOUR).build().unwrap());
    let concurrency = numbered_limit(5, Concurrency::new(3, Nanos::HOUR).unwrap());
    let lease = Op::Acquire {
        id: LeaseId(1 << 64),
        weight: 2,
    };
    let reserve = Op::Reserve {
        id: ReservationId(7 << 64),
        cost: 1,
        hold: Nanos::HOUR,
    };
    [
        (log, Op::Spend(2)),
        (concurrency, lease),
        (log, reserve),
        (limits()[1], reserve),
    ]
}

fn ask(store: &TestStore, (limit, op): &(IdentifiedLimit, Op)) -> bool {
    let (key, op) = (StoreKey::new(b"0").unwrap(), *op);
    let (outcome, _) = store.decide_array([QuotaCheck { key, limit, op }]).unwrap();
    outcome.is_admitted()
}

/// A store with everything that can be saved: one-word and two-word states, a log, a lease, reservations, an overflow
/// sketch.
fn store_with_everything() -> TestStore {
    let (store, _clock) = store(4);
    let mut names = 0..;
    while store.usage().overflow_decisions == 0 {
        spend_first(&store, &format!("{:?}", names.next()));
    }
    assert!(collections().iter().all(|question| ask(&store, question)));
    store
}

#[test]
fn every_changed_byte_and_every_truncation_is_rejected() {
    let folder = Folder::new("damage");
    store_with_everything().save(&folder.file()).unwrap();
    let whole = std::fs::read(folder.file()).unwrap();
    let refused = |bytes: &[u8]| {
        std::fs::write(folder.file(), bytes).unwrap();
        restored(&folder.file(), 4).err()
    };
    assert!(refused(&whole).is_none(), "the unchanged file is accepted");
    let mut random = Random(3);
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        let flip = 1 + u8::try_from(random.below(255)).unwrap();
        bytes[at] ^= flip;
        assert!(refused(&bytes).is_some(), "byte {at} ^ {flip:#x}");
        let cut = refused(&whole[..at]);
        assert!(
            matches!(cut, Some(SnapshotError::Truncated)),
            "{at}: {cut:?}"
        );
    }
    let longer = [whole.as_slice(), &[0]].concat();
    assert!(matches!(refused(&longer), Some(SnapshotError::Corrupted)));
}

/// The checksum of the format, so that a test can forge a file.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[test]
fn a_forged_file_neither_crashes_nor_exceeds_the_memory_of_a_store() {
    let folder = Folder::new("forged");
    store_with_everything().save(&folder.file()).unwrap();
    let whole = std::fs::read(folder.file()).unwrap();
    let body = whole.len() - 8;
    assert_eq!(
        sum(&whole[..body]).to_le_bytes(),
        whole[body..],
        "the checksum of the format"
    );
    let (mut random, mut accepted, mut refused) = (Random(11), 0, 0);
    for word in 2..body / 8 {
        for forged in [0, 1, 1 << 32, u64::MAX >> 1, random.next()] {
            let mut bytes = whole[..body].to_vec();
            bytes[word * 8..][..8].copy_from_slice(&forged.to_le_bytes());
            bytes.extend(sum(&bytes).to_le_bytes());
            std::fs::write(folder.file(), bytes).unwrap();
            let Ok(store) = restored(&folder.file(), 4) else {
                refused += 1;
                continue;
            };
            accepted += 1;
            assert!(store.usage().collection_bytes <= 4 * 512 + (1 << 20));
            for key in ["0", "a"] {
                spend(&store, key, 1);
            }
            for (limit, op) in collections() {
                ask(&store, &(limit, op));
                let id = ReservationId(7 << 64);
                if let Op::Reserve { .. } = op {
                    ask(&store, &(limit, Op::SettleReserved { id, actual: 3 }));
                }
            }
            store.save(&folder.file()).unwrap();
        }
    }
    assert!(accepted > 100 && refused > 100, "{accepted} {refused}");
}

/// Written by the first version, which saved only the tables.
#[test]
fn a_file_of_the_first_version_is_still_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/snapshots/version-1");
    let store = restored(&path, 4).unwrap();
    for limit in &limits() {
        store.add_limit(limit);
    }
    assert_eq!(spend(&store, "a", 0), [93; 3]);
    assert_eq!(spend(&store, "b", 1), [0; 3]);
    let size = restored(&path, 100).err().unwrap();
    assert!(matches!(size, SnapshotError::SizeMismatch));
}

fn to_words(whole: &[u8]) -> Vec<u64> {
    whole
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect()
}

/// A file of this version, without variable states, as the third version wrote it: a tag instead of hash and limit.
fn as_version_3(whole: &[u8]) -> Vec<u8> {
    let words = to_words(whole);
    let mut old = words[..8].to_vec();
    old[1] = 3;
    let mut at = 8;
    while words[at] != 0 {
        at += 2 + 5 * usize::try_from(words[at + 1]).unwrap();
    }
    // The end of the limits, and of no variable states.
    old.extend(&words[8..at + 2]);
    assert_eq!(words[at + 1], 0);
    at += 2;
    for (state, groups) in [(1, words[2]), (2, words[3])] {
        while words[at] != u64::MAX {
            let [number, hash, limit] = words[at..][..3].try_into().unwrap();
            old.extend([number, limit << 48 | hash & (u64::MAX >> 16)]);
            old.extend(&words[at + 3..][..state]);
            at += 3 + state;
        }
        // The end, then one flag for each group instead of the groups that have one.
        let spilled = words[at + 1..].iter().take_while(|word| **word != u64::MAX);
        let spilled: Vec<u64> = spilled.copied().collect();
        old.push(u64::MAX);
        old.extend((0..groups).map(|group| u64::from(spilled.contains(&group))));
        at += 2 + spilled.len();
    }
    old.extend(&words[at..words.len() - 1]);
    let mut bytes: Vec<u8> = old.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend(sum(&bytes).to_le_bytes());
    bytes
}

/// The third version kept only part of each key's hash, so only a store of the same size can read it.
#[test]
fn a_file_of_the_third_version_is_still_read_by_a_store_of_the_same_size() {
    let folder = Folder::new("version-3");
    let (store, _clock) = store(100);
    spend(&store, "alice", 90);
    store.save(&folder.file()).unwrap();
    let whole = std::fs::read(folder.file()).unwrap();
    std::fs::write(folder.file(), as_version_3(&whole)).unwrap();
    let again = restored(&folder.file(), 100).unwrap();
    assert_eq!(spend(&again, "alice", 0), [10; 3]);
    let other = restored(&folder.file(), 200).err().unwrap();
    assert!(matches!(other, SnapshotError::SizeMismatch));
}

/// A file of the third version as the second version wrote it: limits had two words fewer, and there was one sketch for all of
/// them, in which some cells owe something.
fn as_version_2(whole: &[u8]) -> Vec<u8> {
    let words = to_words(whole);
    let mut old = words[..8].to_vec();
    old[1] = 2;
    let mut at = 8;
    while words[at] != 0 {
        let tiers = usize::try_from(words[at + 1]).unwrap();
        old.extend(&words[at..at + 2]);
        let measures = words[at + 2..].chunks_exact(5).take(tiers);
        old.extend(measures.flat_map(|measure| &measure[..3]));
        at += 2 + 5 * tiers;
    }
    // All but the end of the overflow and the checksum.
    old.extend(&words[at..words.len() - 2]);
    old.extend([3, u64::MAX >> 2, 7, u64::MAX >> 2, u64::MAX]);
    let mut bytes: Vec<u8> = old.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend(sum(&bytes).to_le_bytes());
    bytes
}

/// The second version had one sketch for all limits. Nobody can tell whose its debts are, so they are dropped.
#[test]
fn a_file_of_the_second_version_is_still_read_without_its_overflow() {
    let folder = Folder::new("version-2");
    let (store, _clock) = store(100);
    spend(&store, "alice", 90);
    store.save(&folder.file()).unwrap();
    let whole = std::fs::read(folder.file()).unwrap();
    std::fs::write(folder.file(), as_version_2(&as_version_3(&whole))).unwrap();
    let again = restored(&folder.file(), 100).unwrap();
    assert_eq!(spend(&again, "alice", 0), [10; 3]);
    assert_eq!(again.usage().overflow_bytes, 0);
}

#[test]
fn a_rejected_file_gives_the_reason() {
    let folder = Folder::new("reasons");
    let (store, _clock) = store(100);
    spend(&store, "alice", 90);
    store.save(&folder.file()).unwrap();
    let whole = std::fs::read(folder.file()).unwrap();
    let reason = |keys| restored(&folder.file(), keys).unwrap_err().to_string();
    std::fs::write(folder.file(), as_version_2(&as_version_3(&whole))).unwrap();
    assert!(reason(200).contains("another number of keys"));
    let mut damaged = whole.clone();
    let middle = whole.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(folder.file(), damaged).unwrap();
    assert!(reason(100).contains("corrupted"));
    std::fs::write(folder.file(), &whole[..whole.len() - 1]).unwrap();
    assert!(reason(100).contains("truncated"));
    std::fs::write(folder.file(), "#!/bin/sh\necho hello\n").unwrap();
    assert!(reason(100).contains("not a snapshot"));
    let mut newer = whole;
    newer[8] = 5;
    std::fs::write(folder.file(), newer).unwrap();
    assert!(reason(100).contains("unknown version 5 of the format"));
    std::fs::remove_file(folder.file()).unwrap();
    assert!(reason(100).contains("No such file"), "{}", reason(100));
}

#[test]
fn spending_continues_while_saving_and_no_earlier_charge_is_missing() {
    let folder = Folder::new("meanwhile");
    let (store, _clock) = store(2_000);
    let quota = bucket(1_000_000, Nanos::SECOND);
    let before = 50;
    let names: Vec<String> = (0..500).map(|n| n.to_string()).collect();
    let spend = |store: &TestStore, name: &str| {
        let key = StoreKey::new(name.as_bytes()).unwrap();
        store.spend(&key, id(1), &quota, 1).is_admitted()
    };
    for name in &names {
        assert!((0..before).all(|_| spend(&store, name)));
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert!(names.iter().all(|name| spend(&store, name)));
            }
        });
        for _ in 0..5 {
            store.save(&folder.file()).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let again = restored(&folder.file(), 2_000).unwrap();
    let limit = numbered_limit(1, quota);
    for name in &names {
        let key = StoreKey::new(name.as_bytes()).unwrap();
        let used = |store: &TestStore| {
            let state = store.inspect(&key, &limit).unwrap();
            let status = limit.limit.status(&state, START);
            status.limit - status.remaining
        };
        assert!(used(&again) >= before && used(&again) <= used(&store));
    }
}

//! Any bytes as a snapshot of a store: nothing panics, nothing grows beyond its bound, and what is accepted decides and is saved.
//!
//! Must not know: which fuzzer calls it.

use std::num::NonZeroU16;

use tollgate_core::{
    Concurrency, FixedWindow, Nanos, Rate, SlidingLog, Timestamp, TokenBucket, Window,
};
use tollgate_store::{
    IdentifiedLimit, LimitId, ManualClock, MemoryStore, Op, QuotaCheck, StoreKey,
};

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
const KEYS: usize = 4;

/// Reads the bytes as they are, and once more behind the first words of a real snapshot and with a right checksum: a forger can
/// compute it.
///
/// # Panics
/// If reading breaks a promise that holds for every input; that is what fuzzing is for.
pub fn snapshot(bytes: &[u8]) {
    read(bytes);
    let mut real = Vec::new();
    let Ok(store) = MemoryStore::with_clock(KEYS, ManualClock::at(NOW)) else {
        return;
    };
    if store.save_to(&mut real).is_err() {
        return;
    }
    // Magic number, version, sizes and seed: eight words.
    let mut forged = real.get(..64).unwrap_or_default().to_vec();
    forged.extend(bytes);
    forged.truncate(forged.len() / 8 * 8);
    let sum = forged.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    forged.extend(sum.to_le_bytes());
    read(&forged);
}

fn read(bytes: &[u8]) {
    for keys in [KEYS, 3 * KEYS] {
        let clock = ManualClock::at(NOW);
        let Ok(store) = MemoryStore::load_from(&mut &*bytes, keys, clock) else {
            continue;
        };
        assert!(store.usage().collection_bytes <= keys * 512 + (1 << 20));
        for limit in limits() {
            let Ok(key) = StoreKey::new(b"alice") else {
                return;
            };
            let op = Op::Spend(1);
            let check = QuotaCheck {
                key,
                limit: &limit,
                op,
            };
            // Concurrency limits refuse it, which is an answer too.
            let _answer = store.decide_array([check]);
        }
        let mut again = Vec::new();
        assert!(store.save_to(&mut again).is_ok());
        let clock = ManualClock::at(NOW);
        let read = MemoryStore::load_from(&mut &*again, keys, clock);
        assert!(
            read.is_ok(),
            "what was accepted cannot be read again: {read:?}"
        );
    }
}

fn limits() -> Vec<IdentifiedLimit> {
    let window = Window::Epoch(Nanos::HOUR);
    let limits = [
        TokenBucket::builder(Rate::per_hour(9))
            .build()
            .map(Into::into),
        FixedWindow::builder(9, window).build().map(Into::into),
        SlidingLog::builder(9, Nanos::HOUR).build().map(Into::into),
        Concurrency::new(9, Nanos::HOUR).map(Into::into),
    ];
    let ids = (1..).filter_map(NonZeroU16::new).map(LimitId);
    let limits = limits.into_iter().flatten();
    ids.zip(limits)
        .map(|(id, limit)| IdentifiedLimit { id, limit })
        .collect()
}

//! The memory store against the test vectors, the same files that core passes.
//!
//! Must not know: what the cases are. `testdata/vectors/README.md` describes them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use tollgate_core::Timestamp;
use tollgate_core::compose::BatchOutcome;
use tollgate_core::limit::{Limit, OpError};
use tollgate_core::reservation::ReservationOptions;
use tollgate_store::contract::StoreReply;
use tollgate_store::{IdentifiedLimit, ManualClock, QuotaCheck, Store as Contract, StoreKey};
use tollgate_testkit::vectors::{Batches, Suite, VectorBatch, run};

use crate::support::{TestStore, numbered_limit, store};

/// As for core: a file must not become empty unnoticed.
const AT_LEAST: usize = 10;

/// A store whose limits are numbered in the order of their first use.
pub(crate) struct MemorySubject {
    store: Option<TestStore>,
    clock: Arc<ManualClock>,
    numbers: HashMap<String, u16>,
}

impl MemorySubject {
    pub(crate) fn new(keys: usize) -> Self {
        let (store, clock) = store(keys);
        Self {
            store: Some(store),
            clock,
            numbers: HashMap::new(),
        }
    }

    fn store(&self) -> &TestStore {
        self.store.as_ref().unwrap()
    }

    /// Every key of a file belongs to a limit of its own.
    fn limit(&mut self, key: &str, limit: &Limit) -> IdentifiedLimit {
        let next = u16::try_from(self.numbers.len() + 1).unwrap();
        let number = *self.numbers.entry(key.to_owned()).or_insert(next);
        let limit = numbered_limit(number, *limit);
        if number == next {
            self.store().add_limit(&limit);
        }
        limit
    }
}

impl Batches for MemorySubject {
    fn batch(
        &mut self,
        now: Timestamp,
        options: Option<&ReservationOptions>,
        checks_asked: &[VectorBatch<'_>],
    ) -> Result<(BatchOutcome, Vec<StoreReply>), OpError> {
        if let Some(options) = options {
            let store = self.store.take().unwrap();
            self.store = Some(store.with_reservations(options.retention, options.max_records));
        }
        self.clock.set(now);
        let limit: Vec<IdentifiedLimit> = checks_asked
            .iter()
            .map(|(key, limit, _)| self.limit(key, limit))
            .collect();
        let checks: Vec<QuotaCheck<'_>> = checks_asked
            .iter()
            .zip(&limit)
            .map(|((key, _, op), limit)| QuotaCheck {
                key: StoreKey::new(key.as_bytes()).unwrap(),
                limit,
                op: *op,
            })
            .collect();
        let mut answers = vec![StoreReply::EMPTY; checks.len()];
        let outcome = Contract::decide(self.store(), &checks, &mut answers);
        let outcome = outcome.map_err(|error| {
            assert!(error.is_callers_fault(), "{error}");
            OpError::Unsupported
        })?;
        Ok((outcome, answers))
    }

    fn change(&mut self, now: Timestamp, key: &str, old: &Limit, new: &Limit) {
        self.clock.set(now);
        let old = self.limit(key, old);
        self.store()
            .replace_limit(&old, &IdentifiedLimit { limit: *new, ..old });
    }
}

fn passes(file: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/vectors");
    let suite = Suite::load(&folder.join(file), AT_LEAST).unwrap_or_else(|bad| panic!("{bad}"));
    let ran =
        run(&suite, &mut MemorySubject::new(10_000)).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(ran >= AT_LEAST, "{file}: {ran} cases ran");
}

#[test]
fn the_store_passes_every_vector_file() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/vectors");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".yaml"))
        .collect();
    files.sort();
    assert!(files.len() >= 9, "{files:?}");
    for file in files {
        passes(&file);
    }
}

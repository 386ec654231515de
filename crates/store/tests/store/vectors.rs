//! The memory store against the test vectors, the same files that core passes.
//!
//! Must not know: what the cases are. `testdata/vectors/README.md` describes them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use tollgate_core::Timestamp;
use tollgate_core::limit::{self, Limit, Refused};
use tollgate_core::reservation::{ReservationId, Terms};
use tollgate_store::contract::Answer;
use tollgate_store::{Check, Key, ManualClock, Note, Op, Ruled, Store as _};
use tollgate_testkit::vectors::{Ask, Decision, Ledger, Reserved, Subject, Suite, run};

use crate::support::{Store, ruled, store};

/// As for core: a file must not become empty unnoticed.
const AT_LEAST: usize = 10;

/// A store whose limits are numbered in the order in which their keys are first asked for.
pub(crate) struct InMemory {
    store: Option<Store>,
    clock: Arc<ManualClock>,
    numbers: HashMap<String, u16>,
}

impl InMemory {
    pub(crate) fn new(keys: usize) -> Self {
        let (store, clock) = store(keys);
        Self {
            store: Some(store),
            clock,
            numbers: HashMap::new(),
        }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    /// Every key of a file belongs to a limit of its own.
    fn ruled(&mut self, key: &str, limit: &Limit) -> Ruled {
        let next = u16::try_from(self.numbers.len() + 1).unwrap();
        let number = *self.numbers.entry(key.to_owned()).or_insert(next);
        let ruled = ruled(number, *limit);
        if number == next {
            self.store().learn(&ruled);
        }
        ruled
    }

    fn ask(&mut self, now: Timestamp, asks: &[(&str, &Limit, Op)]) -> Result<Asked, Refused> {
        self.clock.set(now);
        let ruled: Vec<Ruled> = asks
            .iter()
            .map(|(key, limit, _)| self.ruled(key, limit))
            .collect();
        let checks: Vec<Check<'_>> = asks
            .iter()
            .zip(&ruled)
            .map(|((key, _, op), ruled)| Check {
                key: Key::of(key.as_bytes()).unwrap(),
                ruled,
                op: *op,
            })
            .collect();
        let mut answers = vec![Answer::EMPTY; checks.len()];
        let decided = self.store().decide(&checks, &mut answers);
        let verdict = decided.map_err(|error| {
            assert!(error.is_callers_fault(), "{error}");
            Refused::Unsupported
        })?;
        if answers.iter().any(|a| a.note == Note::LeaseNotHeld) {
            return Err(Refused::NotHeld);
        }
        Ok(Asked {
            outcome: verdict.outcome(),
            binding: verdict.binding(),
            answers,
        })
    }

    /// One reservation's call, with the case's terms.
    fn reservation(&mut self, now: Timestamp, terms: &Terms, ask: Ask<'_>, op: Op) -> Reserved {
        let store = self.store.take().unwrap();
        self.store = Some(store.with_reservations(terms.memory, terms.most));
        let asked = self.ask(now, &[(ask.key, ask.limit, op)])?;
        match asked.answers[0].note {
            Note::Plain | Note::AlreadyReserved => Ok(plain(&asked.answers[0])),
            Note::AlreadyClosed => Err(Ledger::AlreadyClosed),
            Note::ReservationExpired => Err(Ledger::Expired),
            Note::ReservationUnknown => Err(Ledger::Unknown),
            Note::ReservationsFull => Err(Ledger::Full),
            note => panic!("{note:?} in a store with room for everything"),
        }
    }
}

struct Asked {
    outcome: tollgate_core::Outcome,
    binding: Option<usize>,
    answers: Vec<Answer>,
}

fn plain(answer: &Answer) -> limit::Answer {
    limit::Answer {
        outcome: answer.outcome,
        status: answer.status,
        receipt: answer.receipt,
    }
}

fn translate(op: limit::Op) -> Op {
    match op {
        limit::Op::Spend(cost) => Op::Spend(cost),
        limit::Op::SpendUpTo(most) => Op::SpendUpTo(most),
        limit::Op::ChargeAlways(cost) => Op::ChargeAlways(cost),
        limit::Op::Settle { receipt, actual } => Op::Settle { receipt, actual },
        limit::Op::Credit(amount) => Op::Credit(amount),
        limit::Op::Acquire { id, weight } => Op::Acquire { id, weight },
        limit::Op::Renew(id) => Op::Renew(id),
        limit::Op::Release(id) => Op::Release(id),
        op => panic!("the store does not know {op:?}"),
    }
}

impl Subject for InMemory {
    fn decide(&mut self, now: Timestamp, asks: &[Ask<'_>]) -> Result<Decision, Refused> {
        let asks: Vec<_> = asks
            .iter()
            .map(|ask| (ask.key, ask.limit, translate(ask.op)))
            .collect();
        let asked = self.ask(now, &asks)?;
        assert!(asked.answers.iter().all(|a| a.note == Note::Plain));
        Ok(Decision {
            outcome: asked.outcome,
            binding: asked.binding,
            answers: asked.answers.iter().map(plain).collect(),
        })
    }

    fn replace(&mut self, now: Timestamp, key: &str, old: &Limit, new: &Limit) {
        self.clock.set(now);
        let old = self.ruled(key, old);
        self.store().replace(&old, &Ruled { limit: *new, ..old });
    }

    fn reserve(
        &mut self,
        now: Timestamp,
        terms: &Terms,
        id: ReservationId,
        ask: Ask<'_>,
    ) -> Reserved {
        let limit::Op::Spend(cost) = ask.op else {
            panic!("a reservation of {:?}", ask.op);
        };
        let hold = terms.hold;
        self.reservation(now, terms, ask, Op::Reserve { id, cost, hold })
    }

    fn close(
        &mut self,
        now: Timestamp,
        terms: &Terms,
        id: ReservationId,
        ask: Ask<'_>,
        actual: Option<u64>,
    ) -> Reserved {
        let op = match actual {
            Some(actual) => Op::SettleReserved { id, actual },
            None => Op::CancelReserved(id),
        };
        self.reservation(now, terms, ask, op)
    }
}

fn passes(file: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/vectors");
    let suite = Suite::load(&folder.join(file), AT_LEAST).unwrap_or_else(|bad| panic!("{bad}"));
    let ran = run(&suite, &mut InMemory::new(10_000)).unwrap_or_else(|wrong| panic!("{wrong}"));
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

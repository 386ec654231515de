//! Writing a history down while it happens, from any number of threads.
//!
//! Must not know: how anything is asked.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::record::{History, Operation, Record, RecordedVerdict, ReportedQuota};
use crate::clock::monotonic;

/// A history that is being written.
#[derive(Debug)]
pub struct Recorder {
    next: AtomicU64,
    records: Mutex<Vec<Record>>,
}

/// A question that waits for its answer.
#[derive(Clone, Debug)]
pub struct PendingRecord {
    request: u64,
    invoked: u64,
}

/// The answer to all parts of a question.
#[derive(Clone, Copy, Debug)]
pub struct RecordedReply {
    /// What was answered.
    pub verdict: RecordedVerdict,
    /// Whether the answer was given without the store.
    pub is_degraded: bool,
    /// Nanoseconds to wait before asking again.
    pub retry_after: Option<u64>,
    /// What else was said.
    pub told: Option<ReportedQuota>,
}

impl RecordedReply {
    /// Only this, by the store.
    #[must_use]
    pub const fn only(verdict: RecordedVerdict) -> Self {
        Self {
            verdict,
            is_degraded: false,
            retry_after: None,
            told: None,
        }
    }
}

impl Recorder {
    /// The history of one process of several, each of which has another number.
    #[must_use]
    pub fn of_process(number: u32) -> Self {
        Self {
            next: AtomicU64::new(u64::from(number) << 32),
            records: Mutex::default(),
        }
    }

    /// Something is about to be asked.
    #[must_use]
    pub fn ask(&self) -> PendingRecord {
        PendingRecord {
            request: self.next.fetch_add(1, Ordering::Relaxed),
            invoked: monotonic(),
        }
    }

    /// It was answered just now: about these keys, for so much of each.
    pub fn answered(
        &self,
        asked: &PendingRecord,
        act: Operation,
        parts: &[(&str, u64)],
        said: RecordedReply,
    ) {
        let completed = monotonic();
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.extend(parts.iter().map(|&(key, cost)| Record {
            request: asked.request,
            key: key.to_owned(),
            act,
            cost,
            invoked: asked.invoked,
            completed,
            verdict: said.verdict,
            is_degraded: said.is_degraded,
            retry_after: said.retry_after,
            told: said.told,
        }));
    }

    /// What was written so far.
    #[must_use]
    pub fn so_far(&self) -> History {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        History {
            records: records.clone(),
        }
    }
}

//! Records a history while it happens, from any number of threads.
//!
//! Must not know: how requests are sent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::record::{History, Operation, Record, RecordedVerdict, ReportedQuota};
use crate::clock::monotonic;

/// Records operations and their replies.
#[derive(Debug)]
pub struct Recorder {
    next: AtomicU64,
    records: Mutex<Vec<Record>>,
}

/// An operation whose reply has not arrived.
#[derive(Clone, Debug)]
pub struct PendingRecord {
    request: u64,
    invoked: u64,
}

/// The reply to all parts of a request.
#[derive(Clone, Copy, Debug)]
pub struct RecordedReply {
    /// How it ended.
    pub verdict: RecordedVerdict,
    /// Whether the reply says that the node decided without the store.
    pub is_degraded: bool,
    /// Nanoseconds to wait before a retry.
    pub retry_after: Option<u64>,
    /// The quota that the reply reports.
    pub quota: Option<ReportedQuota>,
}

impl RecordedReply {
    /// A decision of the store, with nothing else reported.
    #[must_use]
    pub const fn only(verdict: RecordedVerdict) -> Self {
        Self {
            verdict,
            is_degraded: false,
            retry_after: None,
            quota: None,
        }
    }
}

impl Recorder {
    /// A recorder of one of several processes. Each process has its own number.
    #[must_use]
    pub fn of_process(number: u32) -> Self {
        Self {
            next: AtomicU64::new(u64::from(number) << 32),
            records: Mutex::default(),
        }
    }

    /// A client is about to send a request.
    #[must_use]
    pub fn invoke(&self) -> PendingRecord {
        PendingRecord {
            request: self.next.fetch_add(1, Ordering::Relaxed),
            invoked: monotonic(),
        }
    }

    /// The reply has just arrived: for these keys, with the units of each.
    pub fn complete(
        &self,
        pending: &PendingRecord,
        act: Operation,
        parts: &[(&str, u64)],
        reply: RecordedReply,
    ) {
        let completed = monotonic();
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.extend(parts.iter().map(|&(key, cost)| Record {
            request: pending.request,
            key: key.to_owned(),
            act,
            cost,
            invoked: pending.invoked,
            completed,
            verdict: reply.verdict,
            is_degraded: reply.is_degraded,
            retry_after: reply.retry_after,
            quota: reply.quota,
        }));
    }

    /// The operations that have completed.
    #[must_use]
    pub fn history(&self) -> History {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        History {
            records: records.clone(),
        }
    }
}

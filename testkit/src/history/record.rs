//! One operation and its reply, and the history of all of them.
//!
//! Must not know: what the checks conclude.

use std::collections::BTreeMap;

/// What a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Spend units.
    Spend,
    /// Refund spent or anonymous units.
    GiveBack,
    /// Acquire permits under this lease.
    Acquire(u64),
    /// Renew this lease.
    Renew(u64),
    /// Release this lease.
    Release(u64),
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedVerdict {
    /// The limiter admitted it.
    Admitted,
    /// The limiter denied it.
    Denied,
    /// The client got no usable reply, and the store may have charged it.
    Lost,
    /// The client got no usable reply, and nothing was charged.
    Failed,
}

/// The limit's quota, remaining units and reset, as one reply reported them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedQuota {
    /// The most that it admits at once.
    pub limit: u64,
    /// What is left.
    pub remaining: u64,
    /// Nanoseconds until it is as if never used.
    pub reset_after: u64,
}

/// One part of one request: an operation on one key, and its reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The parts of one request have one number, which no other request has.
    pub request: u64,
    /// The key of the quota.
    pub key: String,
    /// What the client asked for.
    pub act: Operation,
    /// How many units.
    pub cost: u64,
    /// When the client sent the request.
    pub invoked: u64,
    /// When the client got the reply.
    pub completed: u64,
    /// How it ended.
    pub verdict: RecordedVerdict,
    /// Whether the reply says that the node decided without the store.
    pub is_degraded: bool,
    /// Nanoseconds to wait before a retry, if the reply says so.
    pub retry_after: Option<u64>,
    /// The quota that the reply reports.
    pub quota: Option<ReportedQuota>,
}

impl Record {
    /// Whether it may have been charged in the store.
    #[must_use]
    pub(super) fn may_have_charged(&self) -> bool {
        match self.verdict {
            RecordedVerdict::Admitted | RecordedVerdict::Lost => true,
            // Decided without the store, perhaps because its reply was lost.
            RecordedVerdict::Denied => self.is_degraded,
            RecordedVerdict::Failed => false,
        }
    }

    pub(super) fn is_spent(&self) -> bool {
        self.act == Operation::Spend && self.verdict == RecordedVerdict::Admitted
    }
}

/// All operations and their replies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// In no particular order.
    pub records: Vec<Record>,
}

impl History {
    /// This history and another one, of other requests.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.records.extend(other.records);
        self
    }

    /// The records of each key.
    #[must_use]
    pub fn by_key(&self) -> BTreeMap<&str, Vec<&Record>> {
        let mut keys: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
        for record in &self.records {
            keys.entry(&record.key).or_default().push(record);
        }
        keys
    }

    /// The number of records with this verdict.
    #[must_use]
    pub fn count(&self, verdict: RecordedVerdict) -> usize {
        let records = self.records.iter();
        records.filter(|record| record.verdict == verdict).count()
    }

    /// The units that were admitted on a key.
    #[must_use]
    pub fn admitted(&self, key: &str) -> u64 {
        let spent = self.records.iter().filter(|record| record.is_spent());
        let spent = spent.filter(|record| record.key == key);
        spent.map(|record| record.cost).sum()
    }
}

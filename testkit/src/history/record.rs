//! One question and its answer, and all of them together.
//!
//! Must not know: what is concluded.

use std::collections::BTreeMap;

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// To spend.
    Spend,
    /// To give back what was spent, or anonymous units.
    GiveBack,
    /// To hold places under this lease.
    Acquire(u64),
    /// To hold them for longer.
    Renew(u64),
    /// To hold them no more.
    Release(u64),
}

/// What was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedVerdict {
    /// Yes.
    Admitted,
    /// No.
    Denied,
    /// Nothing that a client could use, and something may have been charged.
    Lost,
    /// Nothing that a client could use, and nothing was charged.
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

/// One part of one request: a question about one key, and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The parts of one request have one number, which no other request has.
    pub request: u64,
    /// Whose quota.
    pub key: String,
    /// What was asked.
    pub act: Operation,
    /// For how much.
    pub cost: u64,
    /// When it was asked.
    pub invoked: u64,
    /// When it was answered.
    pub completed: u64,
    /// What was answered.
    pub verdict: RecordedVerdict,
    /// Whether the answer was given without the store.
    pub is_degraded: bool,
    /// Nanoseconds to wait before asking again, if that was said.
    pub retry_after: Option<u64>,
    /// What else was said.
    pub told: Option<ReportedQuota>,
}

impl Record {
    /// Whether it may have been charged in the store.
    #[must_use]
    pub(super) fn may_have_charged(&self) -> bool {
        match self.verdict {
            RecordedVerdict::Admitted | RecordedVerdict::Lost => true,
            // Decided without the store, perhaps because its answer was lost.
            RecordedVerdict::Denied => self.is_degraded,
            RecordedVerdict::Failed => false,
        }
    }

    pub(super) fn is_spent(&self) -> bool {
        self.act == Operation::Spend && self.verdict == RecordedVerdict::Admitted
    }
}

/// Everything that was asked and answered.
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

    /// What happened on each key.
    #[must_use]
    pub fn by_key(&self) -> BTreeMap<&str, Vec<&Record>> {
        let mut keys: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
        for record in &self.records {
            keys.entry(&record.key).or_default().push(record);
        }
        keys
    }

    /// How many records have this verdict.
    #[must_use]
    pub fn count(&self, verdict: RecordedVerdict) -> usize {
        let records = self.records.iter();
        records.filter(|record| record.verdict == verdict).count()
    }

    /// Units that were admitted on a key.
    #[must_use]
    pub fn admitted(&self, key: &str) -> u64 {
        let spent = self.records.iter().filter(|record| record.is_spent());
        let spent = spent.filter(|record| record.key == key);
        spent.map(|record| record.cost).sum()
    }
}

//! Reservations as a table in which nothing is ever erased: what is forgotten is computed from the dates.

/// What becomes of the charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NaiveCorrection {
    /// It becomes this much.
    Becomes(u64),
    /// Nothing: it was closed before.
    AlreadyClosed,
    /// Nothing: it came too late to be given back.
    Expired,
    /// Nothing: nobody knows it.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
struct LedgerRecord {
    id: u128,
    cost: u64,
    opened: u64,
    is_closed: bool,
}

/// Every reservation ever made.
#[derive(Clone, Debug)]
pub struct NaiveLedger {
    hold: u64,
    memory: u64,
    lines: Vec<LedgerRecord>,
}

impl NaiveLedger {
    /// An empty table.
    #[must_use]
    pub const fn new(hold: u64, memory: u64) -> Self {
        Self {
            hold,
            memory,
            lines: Vec::new(),
        }
    }

    /// How many reservations somebody still remembers.
    #[must_use]
    pub fn remembered(&self, now: u64) -> usize {
        let known = self.lines.iter().filter(|line| self.is_known(line, now));
        known.count()
    }

    /// What was charged under an id that is still known.
    #[must_use]
    pub fn known(&self, now: u64, id: u128) -> Option<u64> {
        let mut lines = self.lines.iter();
        let line = lines.find(|line| line.id == id && self.is_known(line, now));
        line.map(|line| line.cost)
    }

    /// Writes a reservation down.
    pub fn open(&mut self, now: u64, id: u128, cost: u64) {
        self.lines.push(LedgerRecord {
            id,
            cost,
            opened: now,
            is_closed: false,
        });
    }

    /// Closes one at what was used; `None` cancels it.
    pub fn close(&mut self, now: u64, id: u128, actual: Option<u64>) -> NaiveCorrection {
        let (hold, memory) = (self.hold, self.memory);
        let known = |line: &&mut LedgerRecord| line.id == id && now < line.opened + hold + memory;
        let Some(line) = self.lines.iter_mut().rev().find(known) else {
            return NaiveCorrection::Unknown;
        };
        if line.is_closed {
            return NaiveCorrection::AlreadyClosed;
        }
        line.is_closed = true;
        match (now >= line.opened + hold, actual) {
            (false, Some(actual)) => NaiveCorrection::Becomes(actual),
            (false, None) => NaiveCorrection::Becomes(0),
            (true, Some(actual)) => NaiveCorrection::Becomes(actual.max(line.cost)),
            (true, None) => NaiveCorrection::Expired,
        }
    }

    const fn is_known(&self, line: &LedgerRecord, now: u64) -> bool {
        now < line.opened + self.hold + self.memory
    }
}

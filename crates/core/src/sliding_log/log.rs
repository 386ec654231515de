//! The log itself: bounded entries in order of time, and the one way to change them.

use alloc::collections::VecDeque;

use super::quota::MAX_LOG_ENTRIES;

/// What was charged in one microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Microseconds since 1970.
    pub at: u64,
    /// Blocks charged, never zero.
    pub blocks: u64,
}

/// The state of a sliding window log: what was charged and when, oldest first. The default is an empty log.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Log {
    entries: VecDeque<LogEntry>,
    /// The sum over all entries, kept so that a decision need not add them up.
    total: u64,
}

/// How a decision changes a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEdit {
    /// How many of the oldest entries no window needs any more.
    pub(super) forget: usize,
    /// The instant of the decision, in microseconds: entries that lie ahead of it are brought back to it.
    pub(super) now: u64,
    pub(super) change: Change,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    /// Remember so many blocks at the instant of the decision.
    Charge(u64),
    /// Take back up to so many blocks of what was charged at that instant.
    TakeBackAt {
        at: u64,
        blocks: u64,
    },
    /// Take back up to so many blocks, the newest first: a refund follows its charge closely.
    TakeNewest(u64),
}

impl FromIterator<LogEntry> for Log {
    /// The log of these entries, which must be in order of time, oldest first: how a store that keeps logs in a form
    /// of its own shows one to the algorithm.
    fn from_iter<I: IntoIterator<Item = LogEntry>>(entries: I) -> Self {
        let entries: VecDeque<LogEntry> = entries.into_iter().collect();
        let total = entries
            .iter()
            .fold(0_u64, |total, entry| total.saturating_add(entry.blocks));
        Self { entries, total }
    }
}

impl Log {
    /// An empty log.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            entries: VecDeque::new(),
            total: 0,
        }
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &LogEntry> + ExactSizeIterator {
        self.entries.iter()
    }

    /// How many entries the log holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Blocks over all entries.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Whether the newest entry lies ahead of `now`: the clock went back.
    pub(super) fn is_ahead_of(&self, now: u64) -> bool {
        self.entries.back().is_some_and(|newest| newest.at > now)
    }

    /// Carries an edit out.
    pub fn apply(&mut self, edit: LogEdit) {
        for _ in 0..edit.forget {
            self.forget_oldest();
        }
        self.bring_back_to(edit.now);
        match edit.change {
            Change::Nothing => {}
            Change::Charge(blocks) => self.charge(edit.now, blocks),
            Change::TakeBackAt { at, blocks } => self.take_back(at, blocks),
            Change::TakeNewest(blocks) => self.take_newest(blocks),
        }
    }

    fn charge(&mut self, at: u64, blocks: u64) {
        match self.entries.back_mut() {
            Some(newest) if newest.at == at => newest.blocks = newest.blocks.saturating_add(blocks),
            _ => {
                // Only entries kept for a longer window than this one's can be in the way: what counts in this
                // window is at most the limit and the overdraft, which fit.
                if usize::try_from(MAX_LOG_ENTRIES).is_ok_and(|most| self.entries.len() >= most) {
                    self.forget_oldest();
                }
                self.entries.push_back(LogEntry { at, blocks });
            }
        }
        self.total = self.total.saturating_add(blocks);
    }

    /// Entries that lie ahead become one at `now`. One instant is one entry, or taking back from an instant would
    /// depend on which of several it finds.
    fn bring_back_to(&mut self, now: u64) {
        let mut ahead = 0_u64;
        while let Some(newest) = self.entries.pop_back_if(|newest| newest.at > now) {
            ahead = ahead.saturating_add(newest.blocks);
        }
        match self.entries.back_mut() {
            _ if ahead == 0 => {}
            Some(newest) if newest.at == now => newest.blocks = newest.blocks.saturating_add(ahead),
            _ => self.entries.push_back(LogEntry {
                at: now,
                blocks: ahead,
            }),
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.entries.pop_front() {
            self.total = self.total.saturating_sub(oldest.blocks);
        }
    }

    fn take_back(&mut self, at: u64, blocks: u64) {
        let Ok(index) = self.entries.binary_search_by_key(&at, |entry| entry.at) else {
            return;
        };
        let Some(entry) = self.entries.get_mut(index) else {
            return;
        };
        let taken = entry.blocks.min(blocks);
        entry.blocks = entry.blocks.saturating_sub(taken);
        if entry.blocks == 0 {
            self.entries.remove(index);
        }
        self.total = self.total.saturating_sub(taken);
    }

    fn take_newest(&mut self, mut blocks: u64) {
        while blocks > 0
            && let Some(mut newest) = self.entries.pop_back()
        {
            let taken = newest.blocks.min(blocks);
            newest.blocks = newest.blocks.saturating_sub(taken);
            blocks = blocks.saturating_sub(taken);
            self.total = self.total.saturating_sub(taken);
            if newest.blocks > 0 {
                self.entries.push_back(newest);
            }
        }
    }
}

//! The log: bounded entries in order of time, with one way to change them.

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
    /// The sum over all entries, so that a decision need not add them up.
    total: u64,
}

/// How a decision changes a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEdit {
    /// How many of the oldest entries no window needs any more.
    pub(super) drop_count: usize,
    /// The instant of the decision, in microseconds. Entries that lie ahead of it are moved back to it.
    pub(super) now: u64,
    pub(super) change: LogChange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogChange {
    Nothing,
    /// Add this many blocks at the instant of the decision.
    Charge(u64),
    /// Take back up to `blocks` blocks of what was charged at `at`.
    TakeBackAt {
        at: u64,
        blocks: u64,
    },
    /// Take back up to this many blocks, the newest first: a refund follows its charge closely.
    TakeNewest(u64),
}

impl FromIterator<LogEntry> for Log {
    /// Builds a log from entries, which must be in order of time, oldest first. A store that keeps logs in its own form restores them
    /// with it.
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

    /// Whether the log has no entries.
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

    /// Applies an edit.
    pub fn apply(&mut self, edit: LogEdit) {
        for _ in 0..edit.drop_count {
            self.drop_oldest();
        }
        self.merge_entries_after(edit.now);
        match edit.change {
            LogChange::Nothing => {}
            LogChange::Charge(blocks) => self.charge(edit.now, blocks),
            LogChange::TakeBackAt { at, blocks } => self.take_back(at, blocks),
            LogChange::TakeNewest(blocks) => self.take_newest(blocks),
        }
    }

    fn charge(&mut self, at: u64, blocks: u64) {
        match self.entries.back_mut() {
            Some(newest) if newest.at == at => newest.blocks = newest.blocks.saturating_add(blocks),
            _ => {
                // Only entries kept for a longer window than this one can exceed the bound: the entries of this window are at most the
                // limit and the overdraft, which fit.
                if usize::try_from(MAX_LOG_ENTRIES).is_ok_and(|most| self.entries.len() >= most) {
                    self.drop_oldest();
                }
                self.entries.push_back(LogEntry { at, blocks });
            }
        }
        self.total = self.total.saturating_add(blocks);
    }

    /// Merges the entries ahead of `now` into one at `now`. One instant has one entry; otherwise a refund would depend on which of
    /// several entries it finds.
    fn merge_entries_after(&mut self, now: u64) {
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

    fn drop_oldest(&mut self) {
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

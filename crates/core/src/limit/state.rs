//! The state of any algorithm, and how a decision changes it.
//!
//! Must not know: quotas, where states are stored.

use crate::concurrency::{LeaseEdit, LeaseSet};
use crate::fixed_window::WindowState;
use crate::sliding_counter::CounterState;
use crate::sliding_log::{Log, LogEdit};
use crate::token_bucket::Tat;

/// What one key has used of one limit. It has one of three sizes: a word, two words, or a collection.
///
/// A state of another algorithm than the limit's counts as empty: changing the algorithm starts from zero.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum State {
    /// Never used.
    #[default]
    Empty,
    /// A token bucket or a leaky bucket: one word.
    Bucket(Tat),
    /// A fixed window: two words.
    Window(WindowState),
    /// A sliding window counter: two words.
    Counter(CounterState),
    /// A sliding window log.
    Log(Log),
    /// The leases of a concurrency limit.
    Leases(LeaseSet),
}

/// How a decision changes a state: it replaces a state of words, or edits a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Edit {
    /// Store this bucket state.
    Bucket(Tat),
    /// Store this window state.
    Window(WindowState),
    /// Store these counters.
    Counter(CounterState),
    /// Edit the log.
    Log(LogEdit),
    /// Edit the leases.
    Leases(LeaseEdit),
}

impl Edit {
    /// The two words of the new state, if it has two words; zeros otherwise.
    #[must_use]
    #[inline]
    pub fn to_pair(self) -> [u64; 2] {
        match self {
            Self::Window(window) => [window.end, window.count],
            Self::Counter(counter) => counter.to_words(),
            _ => [0, 0],
        }
    }
}

impl State {
    /// The number of entries of a collection; zero for a state of words.
    #[must_use]
    pub fn entries(&self) -> usize {
        match self {
            Self::Log(log) => log.len(),
            Self::Leases(leases) => leases.len(),
            _ => 0,
        }
    }

    /// Applies an edit.
    pub fn apply(&mut self, edit: Edit) {
        match edit {
            Edit::Bucket(tat) => *self = Self::Bucket(tat),
            Edit::Window(window) => *self = Self::Window(window),
            Edit::Counter(counter) => *self = Self::Counter(counter),
            Edit::Log(edit) => {
                if let Self::Log(log) = self {
                    log.apply(edit);
                } else {
                    let mut log = Log::default();
                    log.apply(edit);
                    *self = Self::Log(log);
                }
            }
            Edit::Leases(edit) => {
                if let Self::Leases(leases) = self {
                    leases.apply(edit);
                } else {
                    let mut leases = LeaseSet::default();
                    leases.apply(edit);
                    *self = Self::Leases(leases);
                }
            }
        }
    }

    pub(crate) fn tat(&self) -> Tat {
        if let Self::Bucket(tat) = self {
            *tat
        } else {
            0
        }
    }

    pub(crate) fn window(&self) -> WindowState {
        if let Self::Window(window) = self {
            *window
        } else {
            WindowState::default()
        }
    }

    pub(crate) fn counter(&self) -> CounterState {
        if let Self::Counter(counter) = self {
            *counter
        } else {
            CounterState::default()
        }
    }

    pub(crate) fn log(&self) -> &Log {
        static EMPTY: Log = Log::new();
        if let Self::Log(log) = self {
            log
        } else {
            &EMPTY
        }
    }

    pub(crate) fn leases(&self) -> &LeaseSet {
        static EMPTY: LeaseSet = LeaseSet::new();
        if let Self::Leases(leases) = self {
            leases
        } else {
            &EMPTY
        }
    }
}

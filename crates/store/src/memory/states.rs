//! Which states fit in words, and how a decision reads and writes them there.
//!
//! Buckets are one word, windows and counters two; logs and leases do not fit and live on shelves. Must not know: slots,
//! tables, keys.

use tollgate_core::limit::{Edit, Limit, Op, Quota, Refused, State};
use tollgate_core::{CounterState, Timestamp, Transition, WindowState};

/// Where a limit's states are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Word,
    Pair,
    Shelf,
}

pub(super) const fn size_of(limit: &Limit) -> Size {
    match limit.quota() {
        Quota::TokenBucket(_) | Quota::LeakyBucket(_) => Size::Word,
        Quota::FixedWindow(_) | Quota::SlidingCounter(_) => Size::Pair,
        _ => Size::Shelf,
    }
}

/// A state that fits in W words.
pub(super) trait InWords<const W: usize> {
    fn read(limit: &Limit, words: [u64; W]) -> State;
    fn write(edit: Edit) -> [u64; W];
}

/// The only implementor: the words themselves.
pub(super) struct Words;

impl InWords<1> for Words {
    fn read(_: &Limit, [tat]: [u64; 1]) -> State {
        State::Bucket(tat)
    }

    fn write(edit: Edit) -> [u64; 1] {
        match edit {
            Edit::Bucket(tat) => [tat],
            _ => [0],
        }
    }
}

impl InWords<2> for Words {
    fn read(limit: &Limit, [first, second]: [u64; 2]) -> State {
        match limit.quota() {
            Quota::SlidingCounter(_) => {
                let half = |word: u64| u32::try_from(word & 0xffff_ffff).unwrap_or(u32::MAX);
                let (previous, current) = (half(second >> 32), half(second));
                State::Counter(CounterState {
                    start: first,
                    previous,
                    current,
                })
            }
            _ => State::Window(WindowState {
                end: first,
                count: second,
            }),
        }
    }

    fn write(edit: Edit) -> [u64; 2] {
        match edit {
            Edit::Window(window) => [window.end, window.count],
            Edit::Counter(counter) => {
                let counts = (u64::from(counter.previous) << 32) | u64::from(counter.current);
                [counter.start, counts]
            }
            _ => [0, 0],
        }
    }
}

/// Decides on a state in words.
pub(super) fn decide<const W: usize>(
    limit: &Limit,
    words: [u64; W],
    now: Timestamp,
    op: Op,
) -> Result<Transition<[u64; W]>, Refused>
where
    Words: InWords<W>,
{
    let state = Words::read(limit, words);
    limit
        .decide(&state, now, op)
        .map(|transition| transition.map(Words::write))
}

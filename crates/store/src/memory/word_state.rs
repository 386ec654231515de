//! Conversion between core's states and the words of a slot.
//!
//! Must not know: slots, tables, keys, which algorithms there are.

use tollgate_core::limit::{Edit, Limit, Op, OpError, State};
use tollgate_core::{Timestamp, Transition};

/// A state that fits in W words.
pub(super) trait WordState<const W: usize> {
    fn read(limit: &Limit, words: [u64; W]) -> State;
    fn write(edit: Edit) -> [u64; W];
}

/// The only implementor of `WordState`.
pub(super) struct StateWords;

impl WordState<1> for StateWords {
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

impl WordState<2> for StateWords {
    fn read(limit: &Limit, words: [u64; 2]) -> State {
        limit.state_from_pair(words)
    }

    fn write(edit: Edit) -> [u64; 2] {
        edit.to_pair()
    }
}

/// Decides on a state in words.
#[inline]
pub(super) fn decide<const W: usize>(
    limit: &Limit,
    words: [u64; W],
    now: Timestamp,
    op: Op,
) -> Result<Transition<[u64; W]>, OpError>
where
    StateWords: WordState<W>,
{
    let state = StateWords::read(limit, words);
    limit
        .decide(&state, now, op)
        .map(|transition| transition.map(StateWords::write))
}

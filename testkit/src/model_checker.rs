//! Every state that a small system can get into, breadth first: what holds in all of them holds whatever the order of events.
//!
//! A model says what can happen next and what must never be. It is bounded by itself: by how long it lasts, how much may be
//! under way, how often things may fail. Must not know: what is modelled.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::rc::Rc;

/// A system with finitely many states.
pub trait Model {
    /// Everything that matters for what happens next.
    type State: Clone + Eq + Hash;
    /// One thing that can happen.
    type Action: Copy + Debug;

    /// How it begins.
    fn initial(&self) -> Self::State;

    /// What can happen in this state.
    fn actions(&self, state: &Self::State) -> Vec<Self::Action>;

    /// What comes of it, or `None` if nothing does.
    fn next(&self, state: &Self::State, action: Self::Action) -> Option<Self::State>;

    /// What is wrong with this state, if anything.
    fn broken(&self, state: &Self::State) -> Option<String>;
}

/// What came of exploring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exploration {
    /// Every state was seen, and all of them are right.
    Holds {
        /// How many there are.
        states: usize,
        /// How many things happen on the shortest way to the last of them.
        depth: usize,
    },
    /// A state is wrong.
    Broken {
        /// What is wrong with it.
        what: String,
        /// A shortest way there.
        story: Vec<String>,
    },
    /// There are more states than that.
    TooMany(usize),
}

struct Counterexample<S, A> {
    state: Rc<S>,
    from: Option<(usize, A)>,
    depth: usize,
}

/// Goes through all states, as long as there are no more than `most`.
pub fn explore<M: Model>(model: &M, most: usize) -> Exploration {
    let first = Rc::new(model.initial());
    let mut seen = HashSet::from([Rc::clone(&first)]);
    let mut found = vec![Counterexample {
        state: first,
        from: None,
        depth: 0,
    }];
    let mut index = 0;
    while let Some(here) = found.get(index) {
        let (state, depth) = (Rc::clone(&here.state), here.depth);
        if let Some(what) = model.broken(&state) {
            return Exploration::Broken {
                what,
                story: story(&found, index),
            };
        }
        for action in model.actions(&state) {
            let Some(next) = model.next(&state, action).map(Rc::new) else {
                continue;
            };
            if seen.insert(Rc::clone(&next)) {
                found.push(Counterexample {
                    state: next,
                    from: Some((index, action)),
                    depth: depth + 1,
                });
            }
        }
        if found.len() > most {
            return Exploration::TooMany(most);
        }
        index += 1;
    }
    Exploration::Holds {
        states: found.len(),
        depth: found.last().map_or(0, |last| last.depth),
    }
}

fn story<S, A: Debug>(found: &[Counterexample<S, A>], mut index: usize) -> Vec<String> {
    let mut story = Vec::new();
    while let Some((before, action)) = found.get(index).and_then(|one| one.from.as_ref()) {
        story.push(format!("{action:?}"));
        index = *before;
    }
    story.reverse();
    story
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two people who count on from what they last read, and may have read before the other wrote.
    struct Counter {
        is_atomic: bool,
    }

    impl Model for Counter {
        type State = (u8, [Option<u8>; 2], [u8; 2]);
        type Action = usize;

        fn initial(&self) -> Self::State {
            (0, [None; 2], [0; 2])
        }

        fn actions(&self, _state: &Self::State) -> Vec<usize> {
            vec![0, 1]
        }

        fn next(&self, state: &Self::State, who: usize) -> Option<Self::State> {
            let (mut count, mut read, mut done) = *state;
            if done[who] == 2 {
                return None;
            }
            match read[who].take() {
                None if self.is_atomic => (count, done[who]) = (count + 1, done[who] + 1),
                None => read[who] = Some(count),
                Some(seen) => (count, done[who]) = (seen + 1, done[who] + 1),
            }
            Some((count, read, done))
        }

        fn broken(&self, (count, read, done): &Self::State) -> Option<String> {
            let is_quiet = read.iter().all(Option::is_none);
            let sum = done[0] + done[1];
            (is_quiet && *count != sum).then(|| format!("{count} of {sum}"))
        }
    }

    #[test]
    fn all_states_are_seen_and_a_lost_update_is_found_by_a_shortest_way() {
        let right = explore(&Counter { is_atomic: true }, 1_000);
        assert_eq!(
            right,
            Exploration::Holds {
                states: 9,
                depth: 4
            }
        );
        let wrong = explore(&Counter { is_atomic: false }, 1_000);
        let Exploration::Broken { what, story } = wrong else {
            panic!("{wrong:?}");
        };
        assert_eq!((&*what, story.len()), ("1 of 2", 4));
        let few = explore(&Counter { is_atomic: true }, 3);
        assert_eq!(few, Exploration::TooMany(3));
    }
}

//! A node that knows that the whole of the store is away: the same procedure, and nobody to wait for.
//!
//! Most of what a decision costs without a store would be what is made ready for waiting. Must not know: what stands in for
//! what.

use std::future::{Future, ready};

use tollgate_core::Timestamp;
use tollgate_core::compose::Verdict;
use tollgate_store::contract::MAX_CHECKS;
use tollgate_store::{Answer, Check, ErrorKind, StoreError};

use super::ask::Consulting;
use crate::asks::{Asks, Shared, at_once};
use crate::store::StateStore;

/// A node's own tier, while there is no other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alone<'a, S>(Consulting<'a, S>);

impl<'a, S: StateStore> Alone<'a, S> {
    /// Both tiers, of which only one is there.
    pub(crate) const fn of(both: &Consulting<'a, S>) -> Self {
        Self(Consulting {
            fleet: both.fleet,
            local: both.local,
            is_alone: true,
        })
    }
}

impl<S: StateStore> Asks for Alone<'_, S> {
    const WAITS: bool = false;
    const SHARES: bool = true;

    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn ask_at_once(
        &self,
        checks: &[Check<'_>],
        shared: &impl Shared,
        answers: &mut [Answer],
    ) -> Result<Verdict, StoreError> {
        let both = &self.0;
        let asked = match checks.len() {
            0..=1 => at_once(both.ask_up_to::<1>(checks, shared, answers)),
            2..=4 => at_once(both.ask_up_to::<4>(checks, shared, answers)),
            _ => at_once(both.ask_up_to::<MAX_CHECKS>(checks, shared, answers)),
        };
        asked.unwrap_or_else(|| {
            let detail = "a node that is alone was made to wait";
            Err(StoreError::new(ErrorKind::Unreachable, detail))
        })
    }

    fn ask(
        &self,
        checks: &[Check<'_>],
        shared: &impl Shared,
        answers: &mut [Answer],
    ) -> impl Future<Output = Result<Verdict, StoreError>> + Send {
        ready(self.ask_at_once(checks, shared, answers))
    }
}

//! Scratch memory for one decision. Its verdict keeps it; then the thread's next decision reuses it.
//!
//! A decision that starts before another one's verdict is dropped gets its own scratch: nested decisions, asynchronous
//! stores, verdicts that are kept. Must not know: what is decided.

use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};

use arrayvec::ArrayVec;
use tollgate_policy::model::Mode;
use tollgate_policy::rules::MatchedRules;

use super::follow_ups::FollowUps;
use crate::candidate::RuleOutcomes;
use crate::plan::Plan;
use crate::verdict_builder::VerdictBuilder;

/// Scratch memory for one decision.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) matched: MatchedRules,
    pub(crate) work: Work,
}

/// The part that changes from step to step.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) plan: Plan,
    pub(crate) verdict: VerdictBuilder,
    /// The mode of each matched limit for this request, in their order.
    pub(super) modes: Vec<Mode>,
    pub(super) follow_ups: FollowUps,
    /// The outcomes of the limits whose candidates are still to be checked.
    pub(super) rule_outcomes: RuleOutcomes,
    /// The index of the next matched limit to check in shadow.
    pub(super) next_shadow: usize,
    /// The index of the first state of the current shadow limit.
    pub(super) shadow_states_start: usize,
}

impl Scratch {
    const fn new() -> Self {
        Self {
            matched: MatchedRules::new(),
            work: Work {
                plan: Plan::new(),
                verdict: VerdictBuilder::new(),
                modes: Vec::new(),
                follow_ups: FollowUps::new(),
                rule_outcomes: ArrayVec::new_const(),
                next_shadow: 0,
                shadow_states_start: 0,
            },
        }
    }

    /// Clears the previous decision.
    pub(super) fn clear(&mut self) {
        let work = &mut self.work;
        work.plan.clear();
        work.verdict.clear();
        work.modes.clear();
        work.follow_ups.clear();
        work.rule_outcomes.clear();
        work.next_shadow = 0;
    }
}

thread_local! {
    static OWN_SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
    /// The scratch of concurrent decisions.
    static SPARE_SCRATCH: RefCell<Vec<Box<Scratch>>> = const { RefCell::new(Vec::new()) };
}

/// The most spare scratches that a thread keeps.
const MAX_SPARE: usize = 256;

/// The checks that new scratch has room for. A larger batch makes it grow once.
const USUAL_CHECKS: usize = 32;

/// Never read: scratch is only taken from a verdict when the verdict is dropped.
static EMPTY: Scratch = Scratch::new();

/// Scratch that returns to the pool of the thread that drops it.
#[derive(Debug)]
pub(crate) struct PooledScratch(Option<Box<Scratch>>);

impl PooledScratch {
    /// Takes scratch from this thread's pool, or allocates it.
    #[inline]
    pub(crate) fn take() -> Self {
        let own = OWN_SCRATCH.take();
        Self(Some(own.unwrap_or_else(spare_or_new)))
    }
}

#[cold]
fn spare_or_new() -> Box<Scratch> {
    let other = SPARE_SCRATCH.with_borrow_mut(Vec::pop);
    other.unwrap_or_else(|| {
        let mut new = Box::new(Scratch::new());
        new.matched.reserve(USUAL_CHECKS);
        new.work.plan.reserve(USUAL_CHECKS);
        new.work.follow_ups.reserve(USUAL_CHECKS);
        new
    })
}

#[cold]
fn return_to_pool(other: Box<Scratch>) {
    let push = |others: &RefCell<Vec<Box<Scratch>>>| {
        let mut others = others.borrow_mut();
        if others.len() < MAX_SPARE {
            others.push(other);
        }
    };
    // If the thread is ending, the scratch is freed.
    let _kept = SPARE_SCRATCH.try_with(push);
}

impl Drop for PooledScratch {
    #[inline]
    fn drop(&mut self) {
        let Some(mut scratch) = self.0.take() else {
            return;
        };
        scratch.work.verdict.drop_tickets();
        // A thread that is ending has no pool.
        if let Ok(Some(other)) = OWN_SCRATCH.try_with(|own| own.replace(Some(scratch))) {
            return_to_pool(other);
        }
    }
}

impl Deref for PooledScratch {
    type Target = Scratch;

    #[inline]
    fn deref(&self) -> &Scratch {
        self.0.as_deref().unwrap_or(&EMPTY)
    }
}

impl DerefMut for PooledScratch {
    #[inline]
    fn deref_mut(&mut self) -> &mut Scratch {
        self.0.get_or_insert_with(spare_or_new)
    }
}

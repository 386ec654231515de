//! The engine itself: a store, the generation in force, and what is asked of them.
//!
//! Must not know: how decisions are made, files, who calls.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::{ArcSwap, Guard};
use tollgate_core::limit::Quota;
use tollgate_policy::attributes::Attributes;
use tollgate_policy::rules::Rules;
use tollgate_store::{ErrorKind, Key, LimitId, Ruled, StoreError};

use crate::asks::{AtOnce, at_once};
use crate::control::{self, Control, Controls, Log, Sharing};
use crate::counters::{Counted, Counters};
use crate::decide::{Decision, Scratch};
use crate::fleet::Fleet;
use crate::generation::{Generation, Prepared};
use crate::kept::Kept;
use crate::lots::Lots;
use crate::numbers::{Numbering, Numbers, OutOfNumbers};
use crate::plan::Manner;
use crate::store::StateStore;
use crate::ticket::{Response, Ticket};
use crate::trial::Divergence;
use crate::verdict::Verdict;
use crate::witness::{Purpose, Terms, Witness};

/// Decides on requests by rules that can be replaced at any time.
///
/// ```
/// use tollgate_core::Outcome;
/// use tollgate_engine::Engine;
/// use tollgate_policy::attributes::{Attribute, Attributes};
/// use tollgate_policy::model::Policy;
/// use tollgate_policy::rules::Rules;
/// use tollgate_store::Memory;
///
/// struct Nothing;
/// impl Attributes for Nothing {
///     fn get(&self, _: &Attribute) -> Option<&[u8]> {
///         None
///     }
/// }
///
/// let rules = Rules::compile(&Policy::default(), [7; 16]).map_err(|problems| format!("{problems:?}"))?;
/// let engine = Engine::new(rules, Memory::for_keys(1_000)?)?;
/// assert_eq!(engine.decide(&Nothing).outcome(), Outcome::Allow);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Engine<S> {
    store: S,
    current: ArcSwap<Generation>,
    lots: Lots,
    /// Those that it shares states with, if it does.
    fleet: OnceLock<Arc<Fleet>>,
    /// Held while rules are replaced, one after another.
    registry: Mutex<Registry>,
}

/// What outlives a generation.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    numbering: Numbering,
    kept: Kept,
    /// What operators have said.
    pub(crate) controls: Controls,
    /// What they have done.
    pub(crate) log: Log,
    /// What of it a fleet has heard.
    pub(crate) sharing: Sharing,
}

impl<S: StateStore> Engine<S> {
    /// An engine that decides by these rules on the states of this store.
    ///
    /// # Errors
    /// There are more states to be numbered than numbers.
    pub fn new(rules: Rules, store: S) -> Result<Self, OutOfNumbers> {
        Self::sharing(rules, store, &Numbering::default())
    }

    /// The same on a store that others have a part in, who share its numbering.
    ///
    /// # Errors
    /// There are more states to be numbered than numbers.
    pub fn sharing(rules: Rules, store: S, numbering: &Numbering) -> Result<Self, OutOfNumbers> {
        let mut registry = Registry {
            numbering: numbering.clone(),
            ..Registry::default()
        };
        let mut given = numbering.lock();
        let prepared = registry.prepare(rules, &given, 1, &store)?;
        for (_, new) in prepared.generation.quotas(None) {
            store.learn(new);
        }
        *given = prepared.numbers;
        drop(given);
        Ok(Self {
            store,
            current: ArcSwap::from_pointee(prepared.generation),
            lots: Lots::default(),
            fleet: OnceLock::new(),
            registry: Mutex::new(registry),
        })
    }

    /// Puts other rules in force, for every decision that begins after this; those under way end as they began. States
    /// stay with the limits that have the same identity and algorithm. Answers the number of the new generation.
    ///
    /// # Errors
    /// There are no numbers left for new states. Then nothing changes.
    pub fn replace(&self, rules: Rules) -> Result<u64, OutOfNumbers> {
        let mut registry = self.registry();
        let numbering = registry.numbering.clone();
        let mut given = numbering.lock();
        let before = self.current.load_full();
        let number = before.number().saturating_add(1);
        let Prepared {
            generation,
            numbers,
            gone,
        } = registry.prepare(rules, &given, number, &self.store)?;
        // Quotas of one number decide on the same states, and a window's counts are carried over to another length once.
        let mut carried = HashSet::new();
        for (old, new) in generation.quotas(Some(&before)) {
            if let Some(old) = old.filter(|old| *old != new)
                && (carried.insert(new.id) || !changes_length(old, new))
            {
                self.store.replace(old, new);
            }
        }
        // A quota that took the place of one may be what another tier had.
        for (_, new) in generation.quotas(None) {
            self.store.learn(new);
        }
        self.place_desk(&generation, &registry.controls);
        self.current.store(Arc::new(generation));
        self.forget_denials(None);
        for id in gone {
            self.store.forget(id);
        }
        *given = numbers;
        Ok(number)
    }

    /// Decides on a request and charges it if it is admitted.
    #[must_use]
    pub fn decide(&self, request: &dyn Attributes) -> Verdict {
        self.decision(request, Terms::of(Purpose::Charge, None), None)
    }

    /// The same at a cost that the caller knows better than the rules.
    #[must_use]
    pub fn decide_at(&self, request: &dyn Attributes, cost: u64) -> Verdict {
        self.decision(request, Terms::of(Purpose::Charge, Some(cost)), None)
    }

    /// Decides at a cost that is only an estimate. The ticket of an admitted request settles every limit that was charged,
    /// whether or not the policy knows the real cost from responses.
    #[must_use]
    pub fn reserve(&self, request: &dyn Attributes, estimate: Option<u64>) -> Verdict {
        self.decision(request, Terms::of(Purpose::Estimate, estimate), None)
    }

    /// What would be decided now. Nothing is charged, punished or counted.
    #[must_use]
    pub fn peek(&self, request: &dyn Attributes) -> Verdict {
        self.decision(request, Terms::of(Purpose::Look, None), None)
    }

    /// The same at a cost that the caller knows better than the rules.
    #[must_use]
    pub fn peek_at(&self, request: &dyn Attributes, cost: u64) -> Verdict {
        self.decision(request, Terms::of(Purpose::Look, Some(cost)), None)
    }

    /// Any of the above, before a witness who wants to know whom each limit counted, and by which quota.
    #[must_use]
    pub fn ask(&self, request: &dyn Attributes, terms: Terms, witness: &dyn Witness) -> Verdict {
        self.decision(request, terms, Some(witness))
    }

    /// Gives back to the limits of such a request what nobody can show a ticket for: each unit adds to what may be admitted,
    /// so whoever calls this answers for the bound. Where a limit holds places, or counts responses or values, nothing is
    /// given back.
    #[must_use]
    pub fn give_back(&self, request: &dyn Attributes, units: u64) -> Verdict {
        self.decision(request, Terms::of(Purpose::GiveBack, Some(units)), None)
    }

    /// Settles what an admitted request owed by its response: gives places back, corrects estimates, counts the response.
    ///
    /// # Errors
    /// The store did not carry out some of it; the rest was. Places return when their leases end.
    pub fn respond(&self, ticket: Ticket, response: &dyn Response) -> Result<(), StoreError> {
        let done = settled(ticket.respond(&AtOnce(&self.store), response));
        drop(ticket);
        done
    }

    /// Settles what an admitted request was charged in advance at what it really cost, and gives its places back.
    ///
    /// # Errors
    /// The store did not carry out some of it; the rest was.
    pub fn settle(&self, ticket: Ticket, actual: u64) -> Result<(), StoreError> {
        let done = settled(ticket.settle(&AtOnce(&self.store), actual));
        drop(ticket);
        done
    }

    /// Gives back what an admitted request was charged in advance, because its work did not happen.
    ///
    /// # Errors
    /// The store did not carry out some of it; the rest was.
    pub fn cancel(&self, ticket: Ticket) -> Result<(), StoreError> {
        let done = settled(ticket.cancel(&AtOnce(&self.store)));
        drop(ticket);
        done
    }

    /// Extends the leases of an admitted request's places to their full length from now. Answers whether all are still held.
    ///
    /// # Errors
    /// The store did not answer.
    pub fn renew(&self, ticket: &Ticket) -> Result<bool, StoreError> {
        settled(ticket.renew(&AtOnce(&self.store)))
    }

    /// What the limit of this name has decided so far; `None` if the policy has none of this name.
    #[must_use]
    pub fn counted(&self, rule: &str) -> Option<Counted> {
        self.current.load().counters(rule).map(Counters::read)
    }

    /// How the candidate of the limit of this name compares with what is enforced; `None` if it has none.
    #[must_use]
    pub fn divergence(&self, rule: &str) -> Option<Divergence> {
        let generation = self.current.load();
        generation.divergence(generation.index(rule)?)
    }

    /// The same of every limit that has a candidate, in the order of the policy.
    #[must_use]
    pub fn divergences(&self) -> Vec<Divergence> {
        let generation = self.current.load();
        let rules = 0..generation.rules().rules().len();
        rules
            .filter_map(|index| generation.divergence(index))
            .collect()
    }

    /// What operators can do.
    #[must_use]
    pub const fn control(&self) -> Control<'_, S> {
        Control::of(self)
    }

    /// The generation in force.
    #[must_use]
    pub fn generation(&self) -> Arc<Generation> {
        self.current.load_full()
    }

    /// The numbers of its store, for whoever else has a part in that.
    #[must_use]
    pub fn numbering(&self) -> Numbering {
        self.registry().numbering.clone()
    }

    /// Shares states with a fleet from now on, for good: whoever asks [together](Self::together) is answered by it, and the
    /// engine's own store becomes this node's tier. Answers whether it had joined none before.
    pub fn join(&self, fleet: Arc<Fleet>) -> bool {
        self.fleet.set(fleet).is_ok()
    }

    /// The fleet that it has joined, if it has.
    #[must_use]
    pub fn fleet(&self) -> Option<&Arc<Fleet>> {
        self.fleet.get()
    }

    /// What is remembered of denials may no longer be true.
    pub(crate) fn forget_denials(&self, of: Option<(&Key<'_>, LimitId)>) {
        self.store.forget_denials(of);
        if let Some(fleet) = self.fleet.get() {
            let generation = self.current.load().number();
            fleet.forget_denials(of.map(|(key, limit)| (key, limit, generation)));
        }
    }

    /// The store that states are kept in.
    pub const fn store(&self) -> &S {
        &self.store
    }

    fn decision(
        &self,
        request: &dyn Attributes,
        terms: Terms,
        witness: Option<&dyn Witness>,
    ) -> Verdict {
        let decision = self.decision_on(AtOnce(&self.store), request, terms, witness);
        let mut verdict = Verdict::new(self.current.load());
        make_at_once(&decision, &mut verdict);
        verdict
    }

    /// A verdict by the generation in force that may be kept for a while.
    pub(crate) fn blank(&self) -> Verdict {
        Verdict::new(Guard::from_inner(self.current.load_full()))
    }

    /// A decision that is made on these states.
    pub(crate) const fn decision_on<'a, A>(
        &'a self,
        store: A,
        request: &'a dyn Attributes,
        terms: Terms,
        witness: Option<&'a dyn Witness>,
    ) -> Decision<'a, A> {
        Decision {
            store,
            lots: &self.lots,
            request,
            cost: terms.cost,
            manner: match terms.purpose {
                Purpose::Charge | Purpose::Estimate => Manner::Charge,
                Purpose::Look => Manner::Look,
                Purpose::GiveBack => Manner::GiveBack,
            },
            reserves: matches!(terms.purpose, Purpose::Estimate),
            witness,
        }
    }

    /// Puts in force for one generation what operators have said.
    pub(crate) fn place_desk(&self, generation: &Generation, controls: &Controls) {
        let (desk, quotas) = control::desk(generation, controls);
        for ruled in &quotas {
            self.store.learn(ruled);
        }
        generation.desk().put(desk);
    }

    pub(crate) fn registry(&self) -> MutexGuard<'_, Registry> {
        // What it holds is replaced as a whole, so a thread that died left nothing half done.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registry {
    fn prepare<S: StateStore>(
        &mut self,
        rules: Rules,
        numbers: &Numbers,
        number: u64,
        store: &S,
    ) -> Result<Prepared, OutOfNumbers> {
        self.kept.tidy(&rules);
        Generation::prepare(rules, numbers, &mut self.kept, number, store.now())
    }
}

/// Whether counts in windows of one length become counts in windows of another.
fn changes_length(old: &Ruled, new: &Ruled) -> bool {
    match (old.limit.quota(), new.limit.quota()) {
        (Quota::SlidingCounter(old), Quota::SlidingCounter(new)) => old.window() != new.window(),
        _ => false,
    }
}

/// Makes a decision over a store that answers at once. Not inlined: a verdict that a future has borrowed in the same
/// function would be copied on its way out, which took a tenth of a decision.
#[inline(never)]
fn make_at_once<S: StateStore>(decision: &Decision<'_, AtOnce<'_, S>>, verdict: &mut Verdict) {
    let mut scratch = Scratch::take();
    let done = at_once(decision.make(verdict, &mut scratch));
    debug_assert!(
        done.is_some(),
        "a store that answers at once is not waited for"
    );
    scratch.keep();
}

/// What came of a ticket over a store that answers at once.
fn settled<T>(done: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    at_once(done).unwrap_or_else(|| {
        let detail = "a store that answers at once did not";
        Err(StoreError::new(ErrorKind::BadRequest, detail))
    })
}

impl<S> fmt::Debug for Engine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("generation", &self.current.load().number())
            .finish_non_exhaustive()
    }
}

//! The engine itself: a store, the generation in force, and what is asked of them.
//!
//! Must not know: how decisions are made, files, who calls.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, Guard};
use tollgate_policy::attributes::Attributes;
use tollgate_policy::rules::Rules;
use tollgate_store::StoreError;

use crate::candidate::Divergence;
use crate::carried_over::CarriedOverCounters;
use crate::check_options::{CheckMode, CheckOptions};
use crate::control::{self, AuditLog, Control, OperatorState, RegisterOutbox};
use crate::counters::{LimitCounters, LimitTotals};
use crate::decision::Decision;
use crate::generation::{Generation, PreparedGeneration};
use crate::lease_ids::LeaseIdGenerator;
use crate::limit_ids::{LimitIdAllocator, LimitIdTable, LimitIdsExhausted};
use crate::settlement::SettleAction;
use crate::steps::run_local;
use crate::store::StateStore;
use crate::ticket::{Response, Ticket};
use crate::verdict::Verdict;

/// Decides on requests by rules that can be replaced at any time.
///
/// ```
/// use tollgate_core::Outcome;
/// use tollgate_engine::Engine;
/// use tollgate_policy::attributes::{Attribute, Attributes};
/// use tollgate_policy::model::Policy;
/// use tollgate_policy::rules::Rules;
/// use tollgate_store::MemoryStore;
///
/// struct Nothing;
/// impl Attributes for Nothing {
///     fn get(&self, _: &Attribute) -> Option<&[u8]> {
///         None
///     }
/// }
///
/// let rules = Rules::compile(&Policy::default(), [7; 16]).map_err(|problems| format!("{problems:?}"))?;
/// let engine = Engine::new(rules, MemoryStore::for_keys(1_000)?)?;
/// assert_eq!(engine.decide(&Nothing).outcome(), Outcome::Allow);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Engine<S> {
    store: S,
    current: ArcSwap<Generation>,
    lease_ids: LeaseIdGenerator,
    /// Held while rules are replaced, one after another.
    registry: Mutex<Registry>,
}

/// What outlives a generation.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    limit_ids: LimitIdAllocator,
    carried_over: CarriedOverCounters,
    /// What operators have said.
    pub(crate) operator_state: OperatorState,
    /// What they have done.
    pub(crate) audit_log: AuditLog,
    /// What of it a fleet has heard.
    pub(crate) outbox: RegisterOutbox,
}

impl<S: StateStore> Engine<S> {
    /// An engine that decides by these rules on the states of this store.
    ///
    /// # Errors
    /// There are more states to be numbered than numbers.
    pub fn new(rules: Rules, store: S) -> Result<Self, LimitIdsExhausted> {
        Self::with_limit_ids(rules, store, &LimitIdAllocator::default())
    }

    /// The same on a store that others have a part in, who share its numbering.
    ///
    /// # Errors
    /// There are more states to be numbered than numbers.
    pub fn with_limit_ids(
        rules: Rules,
        store: S,
        numbering: &LimitIdAllocator,
    ) -> Result<Self, LimitIdsExhausted> {
        let mut registry = Registry {
            limit_ids: numbering.clone(),
            ..Registry::default()
        };
        let mut given = numbering.lock();
        let prepared = registry.prepare(rules, &given, 1, &store)?;
        for (_, new) in prepared.generation.quotas(None) {
            store.learn(new);
        }
        for (id, when_full) in prepared.generation.when_full() {
            store.set_when_full(id, when_full);
        }
        *given = prepared.limit_ids;
        drop(given);
        Ok(Self {
            store,
            current: ArcSwap::from_pointee(prepared.generation),
            lease_ids: LeaseIdGenerator::default(),
            registry: Mutex::new(registry),
        })
    }

    /// Puts other rules in force, for every decision that begins after this; those under way end as they began. States
    /// stay with the limits that have the same identity and algorithm. Answers the number of the new generation.
    ///
    /// # Errors
    /// There are no numbers left for new states. Then nothing changes.
    pub fn replace(&self, rules: Rules) -> Result<u64, LimitIdsExhausted> {
        let mut registry = self.registry();
        let numbering = registry.limit_ids.clone();
        let mut given = numbering.lock();
        let before = self.current.load_full();
        let number = before.number().saturating_add(1);
        let PreparedGeneration {
            generation,
            limit_ids: numbers,
            retired: gone,
        } = registry.prepare(rules, &given, number, &self.store)?;
        // Quotas of one number decide on the same states, and a window's counts are carried over to another length once.
        let mut carried = HashSet::new();
        for (old, new) in generation.quotas(Some(&before)) {
            if let Some(old) = old.filter(|old| *old != new)
                && (carried.insert(new.id) || !new.limit.has_to_carry_over(&old.limit))
            {
                self.store.replace(old, new);
            }
        }
        // A quota that took the place of one may be what another tier had.
        for (_, new) in generation.quotas(None) {
            self.store.learn(new);
        }
        for (id, when_full) in generation.when_full() {
            self.store.set_when_full(id, when_full);
        }
        self.apply_overrides(&generation, &registry.operator_state);
        self.current.store(Arc::new(generation));
        for id in gone {
            self.store.forget(id);
        }
        *given = numbers;
        Ok(number)
    }

    /// Decides on a request and charges it if it is admitted.
    #[must_use]
    pub fn decide(&self, request: &dyn Attributes) -> Verdict {
        self.check(request, CheckOptions::default())
    }

    /// What would be decided now. Nothing is charged, punished or counted.
    #[must_use]
    pub fn peek(&self, request: &dyn Attributes) -> Verdict {
        self.check(request, CheckOptions::new(CheckMode::Peek))
    }

    /// Decides on a request as the options say, on this engine's own store.
    ///
    /// With [`CheckMode::Reserve`] the ticket of an admitted request settles every limit that was charged, whether or not
    /// the policy knows the real cost from responses. With [`CheckMode::Refund`] units are given back that nobody can show a
    /// ticket for: each adds to what may be admitted, so the caller answers for the bound. Where a limit holds places, or
    /// counts responses or values, nothing is refunded.
    #[must_use]
    pub fn check(&self, request: &dyn Attributes, options: CheckOptions) -> Verdict {
        let mut decision = self.decision(request, options);
        run_local(&mut decision, &self.store);
        decision.into_verdict()
    }

    /// A decision for a driver of one's own: see [`StoreSteps`](crate::StoreSteps).
    pub fn decision<'a>(
        &'a self,
        request: &'a dyn Attributes,
        options: CheckOptions,
    ) -> Decision<'a> {
        let now = || self.store.now();
        Decision::begin(
            self.current.load(),
            request,
            options,
            &self.lease_ids,
            false,
            now,
        )
    }

    /// The same for a driver that asks a store which a fleet shares. It may be kept for a while.
    pub fn fleet_decision<'a>(
        &'a self,
        request: &'a dyn Attributes,
        options: CheckOptions,
    ) -> Decision<'a> {
        let now = || self.store.now();
        let generation = Guard::from_inner(self.current.load_full());
        Decision::begin(generation, request, options, &self.lease_ids, true, now)
    }

    /// Settles what an admitted request owed by its response: gives places back, corrects estimates, counts the response.
    ///
    /// # Errors
    /// The store did not carry out some of it; the rest was. Places return when their leases end.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is settled once")]
    pub fn respond(&self, ticket: Ticket, response: &dyn Response) -> Result<(), StoreError> {
        self.run(&ticket, SettleAction::Respond(response))
            .map(|_| ())
    }

    /// Settles what an admitted request was charged in advance at what it really cost, and gives its places back.
    ///
    /// # Errors
    /// The store did not carry out some of it; the rest was.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is settled once")]
    pub fn settle(&self, ticket: Ticket, actual: u64) -> Result<(), StoreError> {
        self.run(&ticket, SettleAction::Settle(actual)).map(|_| ())
    }

    /// Gives back what an admitted request was charged in advance, because its work did not happen.
    ///
    /// # Errors
    /// The store did not carry out some of it; the rest was.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is settled once")]
    pub fn cancel(&self, ticket: Ticket) -> Result<(), StoreError> {
        self.run(&ticket, SettleAction::Cancel).map(|_| ())
    }

    /// Extends the leases of an admitted request's places to their full length from now. Answers whether all are still held.
    ///
    /// # Errors
    /// The store did not answer.
    pub fn renew(&self, ticket: &Ticket) -> Result<bool, StoreError> {
        self.run(ticket, SettleAction::Renew)
    }

    fn run(&self, ticket: &Ticket, action: SettleAction<'_>) -> Result<bool, StoreError> {
        let mut settlement = ticket.settlement(action);
        run_local(&mut settlement, &self.store);
        settlement.finish()
    }

    /// What the limit of this name has decided so far; `None` if the policy has none of this name.
    #[must_use]
    pub fn totals(&self, rule: &str) -> Option<LimitTotals> {
        self.current.load().counters(rule).map(LimitCounters::read)
    }

    /// How the candidate of the limit of this name compares with what is enforced; `None` if it has none.
    #[must_use]
    pub fn divergence(&self, rule: &str) -> Option<Divergence> {
        let generation = self.current.load();
        generation.divergence(generation.rule_index(rule)?)
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
        Control::new(self)
    }

    /// The generation in force.
    #[must_use]
    pub fn generation(&self) -> Arc<Generation> {
        self.current.load_full()
    }

    /// The numbers of its store, for whoever else has a part in that.
    #[must_use]
    pub fn limit_ids(&self) -> LimitIdAllocator {
        self.registry().limit_ids.clone()
    }

    /// Makes denials void that drivers have cached: those of one key under one limit, or all.
    pub(crate) fn clear_cached_denials(&self) {
        self.current.load().overrides().bump();
    }

    /// The store that states are kept in.
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// Puts in force for one generation what operators have said.
    pub(crate) fn apply_overrides(&self, generation: &Generation, controls: &OperatorState) {
        let (snapshot, quotas) = control::compile_snapshot(generation, controls);
        for ruled in &quotas {
            self.store.learn(ruled);
        }
        generation.overrides().replace(snapshot);
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
        numbers: &LimitIdTable,
        number: u64,
        store: &S,
    ) -> Result<PreparedGeneration, LimitIdsExhausted> {
        self.carried_over.prune(&rules);
        Generation::prepare(rules, numbers, &mut self.carried_over, number, store.now())
    }
}

impl<S> fmt::Debug for Engine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("generation", &self.current.load().number())
            .finish_non_exhaustive()
    }
}

//! The engine: a store, the current generation, and the operations on both.
//!
//! Must not know: how decisions are made, files, who calls.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, Guard};
use tollgate_core::limit::{Limit, Quota};
use tollgate_core::{Nanos, SlidingCounter};
use tollgate_policy::attributes::Attributes;
use tollgate_policy::rules::Rules;
use tollgate_store::{IdentifiedLimit, StoreError};

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
use crate::ticket::{Response, SavedTicket, Ticket};
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
/// struct NoAttributes;
/// impl Attributes for NoAttributes {
///     fn get(&self, _: &Attribute) -> Option<&[u8]> {
///         None
///     }
/// }
///
/// let rules = Rules::compile(&Policy::default(), [7; 16]).map_err(|problems| format!("{problems:?}"))?;
/// let engine = Engine::new(rules, MemoryStore::for_keys(1_000)?)?;
/// assert_eq!(engine.decide(&NoAttributes).outcome(), Outcome::Allow);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Engine<S> {
    store: S,
    current: ArcSwap<Generation>,
    lease_ids: LeaseIdGenerator,
    /// Locked while rules are replaced.
    registry: Mutex<Registry>,
}

/// What survives a reload.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    limit_ids: LimitIdAllocator,
    carried_over: CarriedOverCounters,
    /// The operators' settings.
    pub(crate) operator_state: OperatorState,
    /// The operators' changes.
    pub(crate) audit_log: AuditLog,
    /// The changes that the fleet's register has not stored yet.
    pub(crate) outbox: RegisterOutbox,
}

impl<S: StateStore> Engine<S> {
    /// An engine with these rules and this store.
    ///
    /// # Errors
    /// There are more states than limit ids.
    pub fn new(rules: Rules, store: S) -> Result<Self, LimitIdsExhausted> {
        Self::with_limit_ids(rules, store, &LimitIdAllocator::default())
    }

    /// An engine on a store that other users share. They must share `limit_ids` too.
    ///
    /// # Errors
    /// There are more states than limit ids.
    pub fn with_limit_ids(
        rules: Rules,
        store: S,
        limit_ids: &LimitIdAllocator,
    ) -> Result<Self, LimitIdsExhausted> {
        let mut registry = Registry {
            limit_ids: limit_ids.clone(),
            ..Registry::default()
        };
        let mut table = limit_ids.lock();
        let prepared = registry.prepare(rules, &table, 1, &store)?;
        let mut carried = HashSet::new();
        for (_, new) in prepared.generation.quotas(None) {
            // The ids may come from an earlier process, which may have had a window of another length.
            let lifetime = table.lifetime_of(new.id);
            if let Some(old) = lifetime.and_then(|lifetime| window_before(new, lifetime))
                && carried.insert(new.id)
            {
                store.replace_limit(&old, new);
            }
            store.add_limit(new);
        }
        for (id, when_full) in prepared.generation.when_full() {
            store.set_when_full(id, when_full);
        }
        for id in prepared.retired {
            store.remove_limit(id);
        }
        *table = prepared.limit_ids;
        drop(table);
        Ok(Self {
            store,
            current: ArcSwap::from_pointee(prepared.generation),
            lease_ids: LeaseIdGenerator::default(),
            registry: Mutex::new(registry),
        })
    }

    /// Replaces the rules, for every decision that starts afterwards; running decisions finish by the old rules. Limits
    /// with the same identity and algorithm keep their states. Returns the number of the new generation.
    ///
    /// # Errors
    /// No limit ids are left for new states. Nothing changes then.
    pub fn replace(&self, rules: Rules) -> Result<u64, LimitIdsExhausted> {
        let mut registry = self.registry();
        let limit_ids = registry.limit_ids.clone();
        let mut table = limit_ids.lock();
        let before = self.current.load_full();
        let generation_number = before.number().saturating_add(1);
        let PreparedGeneration {
            generation,
            limit_ids: new_table,
            retired,
        } = registry.prepare(rules, &table, generation_number, &self.store)?;
        // Quotas with the same id share states. The counts of a window are converted to another length once.
        let mut carried = HashSet::new();
        for (old, new) in generation.quotas(Some(&before)) {
            if let Some(old) = old.filter(|old| *old != new)
                && (carried.insert(new.id) || !new.limit.has_to_carry_over(&old.limit))
            {
                self.store.replace_limit(old, new);
            }
        }
        // A replaced quota may still be the quota of another tier.
        for (_, new) in generation.quotas(None) {
            self.store.add_limit(new);
        }
        for (id, when_full) in generation.when_full() {
            self.store.set_when_full(id, when_full);
        }
        self.apply_overrides(&generation, &registry.operator_state);
        self.current.store(Arc::new(generation));
        for id in retired {
            self.store.remove_limit(id);
        }
        *table = new_table;
        Ok(generation_number)
    }

    /// Decides on a request and charges it if it is admitted.
    #[must_use]
    pub fn decide(&self, request: &dyn Attributes) -> Verdict {
        self.check(request, CheckOptions::default())
    }

    /// What the engine would decide now. Nothing is charged, penalised or counted.
    #[must_use]
    pub fn peek(&self, request: &dyn Attributes) -> Verdict {
        self.check(request, CheckOptions::new(CheckMode::Peek))
    }

    /// Decides on a request with these options, on this engine's own store.
    ///
    /// With [`CheckMode::Reserve`], the ticket settles every limit that was charged, even if the policy reads no cost
    /// from responses. [`CheckMode::Refund`] credits units back without a ticket. Each refund raises what the limit
    /// admits, so the caller is responsible for the bound. Concurrency limits and limits that count responses or
    /// distinct values are not refunded.
    #[must_use]
    pub fn check(&self, request: &dyn Attributes, options: CheckOptions) -> Verdict {
        let mut decision = self.new_decision(request, options);
        if !decision.decide_directly(&self.store) {
            decision.begin();
            run_local(&mut decision, &self.store);
        }
        decision.into_verdict()
    }

    /// A decision for your own driver: see [`StoreSteps`](crate::StoreSteps).
    pub fn decision<'a>(
        &'a self,
        request: &'a dyn Attributes,
        options: CheckOptions,
    ) -> Decision<'a> {
        let mut decision = self.new_decision(request, options);
        decision.begin();
        decision
    }

    #[inline(always)]
    fn new_decision<'a>(
        &'a self,
        request: &'a dyn Attributes,
        options: CheckOptions,
    ) -> Decision<'a> {
        let now = || self.store.now();
        Decision::new(
            self.current.load(),
            request,
            options,
            &self.lease_ids,
            false,
            now,
        )
    }

    /// A decision for a driver that asks a shared store. It can be kept across awaits.
    pub fn fleet_decision<'a>(
        &'a self,
        request: &'a dyn Attributes,
        options: CheckOptions,
    ) -> Decision<'a> {
        let now = || self.store.now();
        let generation = Guard::from_inner(self.current.load_full());
        let mut decision = Decision::new(generation, request, options, &self.lease_ids, true, now);
        decision.begin();
        decision
    }

    /// Settles the ticket of an admitted request with its response: releases permits, corrects estimates, counts the
    /// response.
    ///
    /// # Errors
    /// The store failed for some of the operations; all others were carried out. Permits return when their leases
    /// expire.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is settled once")]
    pub fn respond(&self, ticket: Ticket, response: &dyn Response) -> Result<(), StoreError> {
        self.run(&ticket, SettleAction::Respond(response))
            .map(|_| ())
    }

    /// Settles the ticket of an admitted request at its actual cost, and releases its permits.
    ///
    /// # Errors
    /// The store failed for some of the operations; all others were carried out.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is settled once")]
    pub fn settle(&self, ticket: Ticket, actual: u64) -> Result<(), StoreError> {
        self.run(&ticket, SettleAction::Settle(actual)).map(|_| ())
    }

    /// Cancels the ticket of an admitted request whose work did not happen: refunds its charges and releases its
    /// permits.
    ///
    /// # Errors
    /// The store failed for some of the operations; all others were carried out.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is settled once")]
    pub fn cancel(&self, ticket: Ticket) -> Result<(), StoreError> {
        self.run(&ticket, SettleAction::Cancel).map(|_| ())
    }

    /// Renews the leases of a ticket's permits to their full duration. Returns whether all are still held.
    ///
    /// # Errors
    /// The store did not answer.
    pub fn renew(&self, ticket: &Ticket) -> Result<bool, StoreError> {
        self.run(ticket, SettleAction::Renew)
    }

    /// Like [`renew`](Self::renew), also for leases that have expired, if nobody has taken their places meanwhile. For a
    /// process that holds a ticket and is the only one to ask the store.
    ///
    /// # Errors
    /// The store did not answer.
    pub fn reacquire(&self, ticket: &Ticket) -> Result<bool, StoreError> {
        self.run(ticket, SettleAction::Reacquire)
    }

    fn run(&self, ticket: &Ticket, action: SettleAction<'_>) -> Result<bool, StoreError> {
        let mut settlement = ticket.settlement(action);
        run_local(&mut settlement, &self.store);
        settlement.finish()
    }

    /// A saved ticket under the rules in force. Items of limits that are gone are dropped: their charges stay, and their leases
    /// expire. `None` if nothing is left.
    #[must_use]
    pub fn restore_ticket(&self, saved: SavedTicket) -> Option<Ticket> {
        Ticket::restore(saved, &self.current.load_full())
    }

    /// The totals of a limit; `None` if the policy has no limit of this name.
    #[must_use]
    pub fn totals(&self, rule: &str) -> Option<LimitTotals> {
        self.current.load().counters(rule).map(LimitCounters::read)
    }

    /// The comparison of a limit with its candidate; `None` if it has none.
    #[must_use]
    pub fn divergence(&self, rule: &str) -> Option<Divergence> {
        let generation = self.current.load();
        generation.divergence(generation.rule_index(rule)?)
    }

    /// The comparisons of all limits with a candidate, in the order of the policy.
    #[must_use]
    pub fn divergences(&self) -> Vec<Divergence> {
        let generation = self.current.load();
        let rules = 0..generation.rules().rules().len();
        rules
            .filter_map(|index| generation.divergence(index))
            .collect()
    }

    /// The operator interface.
    #[must_use]
    pub const fn control(&self) -> Control<'_, S> {
        Control::new(self)
    }

    /// The current generation.
    #[must_use]
    pub fn generation(&self) -> Arc<Generation> {
        self.current.load_full()
    }

    /// The limit ids of the store, for other users of the same store.
    #[must_use]
    pub fn limit_ids(&self) -> LimitIdAllocator {
        self.registry().limit_ids.clone()
    }

    /// Invalidates the denials that fleet drivers have cached.
    pub(crate) fn clear_cached_denials(&self) {
        self.current.load().overrides().bump();
    }

    /// The store.
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// Applies the operators' settings to one generation.
    pub(crate) fn apply_overrides(&self, generation: &Generation, controls: &OperatorState) {
        let (snapshot, quotas) = control::compile_snapshot(generation, controls);
        for limit in &quotas {
            self.store.add_limit(limit);
        }
        generation.overrides().replace(snapshot);
    }

    pub(crate) fn registry(&self) -> MutexGuard<'_, Registry> {
        // The state is replaced as a whole, so a poisoned lock leaves it consistent.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sliding window that this limit had when its states mattered for `lifetime`, if it had another length.
fn window_before(new: &IdentifiedLimit, lifetime: Nanos) -> Option<IdentifiedLimit> {
    let Quota::SlidingCounter(_) = new.limit.quota() else {
        return None;
    };
    // A state counts for two windows. Only the length matters to convert it.
    let window = Nanos::from_nanos(lifetime.as_nanos() / 2);
    let old = SlidingCounter::builder(u64::from(u32::MAX), window).build();
    let old = Limit::from(old.ok()?);
    new.limit
        .has_to_carry_over(&old)
        .then_some(IdentifiedLimit {
            id: new.id,
            limit: old,
        })
}

impl Registry {
    fn prepare<S: StateStore>(
        &mut self,
        rules: Rules,
        table: &LimitIdTable,
        generation_number: u64,
        store: &S,
    ) -> Result<PreparedGeneration, LimitIdsExhausted> {
        self.carried_over.prune(&rules);
        Generation::prepare(
            rules,
            table,
            &mut self.carried_over,
            generation_number,
            store.now(),
        )
    }
}

impl<S> fmt::Debug for Engine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("generation", &self.current.load().number())
            .finish_non_exhaustive()
    }
}

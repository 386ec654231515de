//! Synchronises operator state between the nodes of a fleet: local changes go to a register, and the register's entries
//! are applied locally.
//!
//! Of two changes to the same item, the one that reached the register last wins. A local change takes effect on this
//! node at once, even while the register does not answer; it is sent as soon as the register does. Must not know: which
//! register it is, how it is called.

use std::collections::HashSet;

use tollgate_core::{Nanos, Timestamp};
use tollgate_store::register::{RegisterEntry, RegisterSnapshot};

use super::attribution::{OwnedAttribution, check_attribution};
use super::audit_log::{OperatorChange, OperatorEvent};
use super::lookup::{resolve_key, rule_index};
use super::operator_error::OperatorError;
use super::operator_items::{self, OperatorItem, OperatorItems};
use super::register_codec;
use super::register_outbox::{RegisterChanges, WakeCallback};
use super::{Attribution, Control, OperatorState, Switch};
use crate::engine::Registry;
use crate::store::StateStore;

/// More changes than this at once are logged as a single event.
const MAX_LOGGED_CHANGES: usize = 64;
/// Two expiries of the same item that differ by at most this are equal: the difference is network latency.
const EXPIRY_TOLERANCE: Nanos = Nanos::from_secs(2);

/// The result of applying the register's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SyncOutcome {
    /// The number of items that were set, changed or removed.
    pub changed: usize,
    /// The number of entries in an unsupported format, written by a later version. They are left alone.
    pub unsupported: usize,
    /// The number of entries that did not fit.
    pub dropped: usize,
}

impl<S: StateStore> Control<'_, S> {
    /// Starts to queue local changes for a register. `wake` is called whenever [`next_changes`](Self::next_changes) has
    /// something. Items in force are queued too, but do not overwrite the register's entries.
    pub fn start_sharing(&self, wake: WakeCallback) {
        let mut registry = self.engine.registry();
        let Registry {
            operator_state: controls,
            outbox,
            ..
        } = &mut *registry;
        outbox.start(wake);
        outbox.backfill(&OperatorItems::from_state(controls.clone()), None);
    }

    /// The next changes to send to the register, at most as many as one call takes. They stay queued until
    /// [`mark_published`](Self::mark_published) or [`discard_changes`](Self::discard_changes).
    #[must_use]
    pub fn next_changes(&self) -> RegisterChanges {
        let registry = self.engine.registry();
        if registry.outbox.pending_count() == 0 {
            return RegisterChanges::default();
        }
        let now = self.engine.store().now();
        let mut controls = registry.operator_state.clone();
        controls.expire(now);
        registry
            .outbox
            .next_changes(&OperatorItems::from_state(controls), now)
    }

    /// The register has stored these changes.
    pub fn mark_published(&self, put: &RegisterChanges) {
        self.engine.registry().outbox.complete(put, true);
    }

    /// The register has refused these changes for good. They apply on this node only.
    pub fn discard_changes(&self, put: &RegisterChanges) {
        self.engine.registry().outbox.complete(put, false);
    }

    /// Tells other nodes that a key was [reset](Self::reset), so that they drop its cached denials. Call it after the
    /// shared store has erased the key: an earlier decision would cache the denial again.
    ///
    /// # Errors
    /// The limit or key does not exist, or the attribution is missing.
    pub fn publish_reset(
        &self,
        limit: &str,
        key: &[&str],
        attribution: Attribution<'_>,
    ) -> Result<(), OperatorError> {
        check_attribution(attribution)?;
        let generation = self.engine.generation();
        let index = rule_index(&generation, limit)?;
        let name = operator_items::reset_entry_name(&resolve_key(&generation, index, limit, key)?);
        let attribution = OwnedAttribution::from_borrowed(attribution);
        self.engine
            .registry()
            .outbox
            .enqueue_reset(name, attribution);
        Ok(())
    }

    /// The number of local changes that the register has not stored yet.
    #[must_use]
    pub fn pending_count(&self) -> usize {
        self.engine.registry().outbox.pending_count()
    }

    /// The number of local changes that the register will never store, because the queue was full or the register
    /// refused them.
    #[must_use]
    pub fn dropped_count(&self) -> u64 {
        self.engine.registry().outbox.dropped_count()
    }

    /// The switch for all limits.
    #[must_use]
    pub fn global_switch(&self) -> Switch {
        self.engine.registry().operator_state.everything
    }

    /// The register has lost its entries, or those after version `lost_after`. Queues what is in force here again.
    pub fn republish(&self, lost_after: Option<u64>) {
        let mut registry = self.engine.registry();
        let Registry {
            operator_state: controls,
            outbox,
            ..
        } = &mut *registry;
        outbox.backfill(&OperatorItems::from_state(controls.clone()), lost_after);
    }

    /// Applies the register's entries. Local changes that are still queued are newer and stay. Entries in an
    /// unsupported format are ignored and stay in the register.
    pub fn apply_register(&self, snapshot: &RegisterSnapshot) -> SyncOutcome {
        let mut registry = self.engine.registry();
        let registry = &mut *registry;
        let generation = self.engine.generation();
        let now = self.engine.store().now();
        let mut state = registry.operator_state.clone();
        state.expire(now);
        let before = OperatorItems::from_state(state.clone());
        let mut items = OperatorItems::from_state(state);
        let entry_names = snapshot.entries.iter().map(|entry| &*entry.name);
        let rejected_names = snapshot.rejected.iter().map(|entry| &*entry.name);
        let names: HashSet<&str> = entry_names.chain(rejected_names).collect();
        let is_in_register = |name: &str| names.contains(name);
        if snapshot.is_complete {
            remove_absent(&mut items, registry, &is_in_register);
        }
        let mut outcome = SyncOutcome::default();
        let mut has_resets = false;
        for entry in &snapshot.entries {
            if operator_items::is_reset_entry(&entry.name) {
                has_resets = true;
                continue;
            }
            if !registry.outbox.is_pending(&entry.name)
                && !apply_entry(&mut items, registry, entry, now)
            {
                outcome.dropped += 1;
            }
        }
        for entry in &snapshot.rejected {
            if entry.is_replayed && !operator_items::is_reset_entry(&entry.name) {
                registry.outbox.enqueue_again(&entry.name);
            }
        }
        let in_complete: Option<&dyn Fn(&str) -> bool> =
            snapshot.is_complete.then_some(&is_in_register);
        let changed = before.changed_names(&items);
        log_changes(registry, now, &changed, &before, &items);
        registry.outbox.prune(&items, in_complete, now);
        outcome.changed = changed.len();
        outcome.unsupported = registry.outbox.unsupported_count();
        if !changed.is_empty() {
            registry.operator_state = items.into_state();
            self.engine
                .apply_overrides(&generation, &registry.operator_state);
        }
        if has_resets {
            self.engine.clear_cached_denials();
        }
        outcome
    }
}

impl Registry {
    /// Queues the differences between `before` and the current state.
    pub(super) fn record_changes(
        &mut self,
        before: &OperatorState,
        attribution: &OwnedAttribution,
    ) {
        let items = OperatorItems::from_state(self.operator_state.clone());
        let names = OperatorItems::from_state(before.clone()).changed_names(&items);
        self.outbox.enqueue(names, &items, attribution);
    }
}

/// Removes items that a complete snapshot of the register does not contain, unless they are still queued.
fn remove_absent(
    items: &mut OperatorItems,
    registry: &Registry,
    is_in_register: &dyn Fn(&str) -> bool,
) {
    let absent: Vec<Box<str>> = items
        .names()
        .filter(|name| !is_in_register(name) && !registry.outbox.is_pending(name))
        .map(Box::from)
        .collect();
    for name in absent {
        items.remove(&name);
    }
}

/// Applies one entry. Returns whether there was room for it.
fn apply_entry(
    items: &mut OperatorItems,
    registry: &mut Registry,
    entry: &RegisterEntry,
    now: Timestamp,
) -> bool {
    let outbox = &mut registry.outbox;
    if entry.is_tombstone {
        items.remove(&entry.name);
        let attribution = register_codec::decode_attribution(&entry.body);
        outbox.record_known(entry, attribution.unwrap_or_default());
        return true;
    }
    if entry.expires_in == Some(Nanos::ZERO) {
        items.remove(&entry.name);
        return true;
    }
    let until = entry.expires_in.map(|left| now.after(left).as_nanos());
    let Some((mut item, attribution)) = register_codec::decode(&entry.name, &entry.body, until)
    else {
        // The previous, supported version of this entry no longer applies.
        items.remove(&entry.name);
        outbox.record_unsupported(entry, now);
        return true;
    };
    if let Some(existing) = items.get(&entry.name) {
        if item.has_same_effect(existing) && has_same_expiry(&item, existing) {
            outbox.record_known(entry, attribution);
            return true;
        }
        item.copy_shown_key(existing);
    }
    if !items.has_room_for(&item) {
        return false;
    }
    items.put(item);
    outbox.record_known(entry, attribution);
    true
}

fn has_same_expiry(one: &OperatorItem, two: &OperatorItem) -> bool {
    match (one.until(), two.until()) {
        (Some(one), Some(two)) => one.abs_diff(two) <= EXPIRY_TOLERANCE.as_nanos(),
        (one, two) => one == two,
    }
}

/// Logs the changes of other nodes: one event each, or a single event if there are many.
fn log_changes(
    registry: &mut Registry,
    now: Timestamp,
    changed: &[Box<str>],
    before: &OperatorItems,
    items: &OperatorItems,
) {
    if changed.len() > MAX_LOGGED_CHANGES {
        let event = OperatorEvent {
            who: "the fleet".into(),
            at: now,
            why: "changes of other nodes".into(),
            change: OperatorChange::Synced {
                entries: changed.len(),
            },
        };
        registry.audit_log.record(event, None);
        return;
    }
    for name in changed {
        let what = match (items.get(name), before.get(name)) {
            (Some(item), _) => (item.to_change(), item),
            (None, Some(item)) => (item.to_removal(), item),
            (None, None) => continue,
        };
        let (what, item) = what;
        let digest = item.key().and_then(super::KeyIdentity::digest);
        let attribution = registry.outbox.attribution_of(name);
        let event = OperatorEvent {
            who: attribution.who,
            at: now,
            why: attribution.why,
            change: what,
        };
        registry.audit_log.record(event, digest);
    }
}

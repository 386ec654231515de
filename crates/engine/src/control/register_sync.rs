//! What operators say on one node holds on all of them: what was said here is handed to a register, and what that has is
//! put in force here.
//!
//! Of two who say something about the same thing the one wins whom the register heard last. What is said here holds here at
//! once, whether or not a register answers, and is told when one does. Must not know: registers and how they are asked.

use std::collections::HashSet;

use tollgate_core::{Nanos, Timestamp};
use tollgate_store::register::{RegisterEntry, RegisterSnapshot};

use super::audit_log::{OperatorChange, OperatorEvent};
use super::lookup::{resolve_key, rule_index};
use super::operator_error::{OperatorError, check_attribution};
use super::operator_items::{self, OperatorItem, OperatorItems};
use super::register_codec::{self, OwnedAttribution};
use super::register_outbox::{RegisterChanges, WakeCallback};
use super::{Attribution, Control, OperatorState, Switch};
use crate::engine::Registry;
use crate::store::StateStore;

/// So many changes at once are logged one by one.
const MAX_LOGGED_CHANGES: usize = 64;
/// Ends of the same thing that lie so near each other are the same end, told over a network.
const EXPIRY_TOLERANCE: Nanos = Nanos::from_secs(2);

/// What came of what others have said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SyncOutcome {
    /// How much holds that did not, or no longer holds.
    pub changed: usize,
    /// Entries that are not understood, which a later version has put. They are left alone.
    pub unsupported: usize,
    /// Entries that there was no room for.
    pub dropped: usize,
}

impl<S: StateStore> Control<'_, S> {
    /// Begins to note what is said here, for a register: `wake` is told whenever there is something
    /// [to put](Self::to_put). What holds already is noted too, where the register says nothing else.
    pub fn start_sharing(&self, wake: WakeCallback) {
        let mut registry = self.engine.registry();
        let Registry {
            operator_state: controls,
            outbox: sharing,
            ..
        } = &mut *registry;
        sharing.start(wake);
        sharing.backfill(&OperatorItems::from_state(controls.clone()), None);
    }

    /// The next of what was said here that the register has not heard: at most one call's worth. It stays so until it
    /// [was put](Self::was_put).
    #[must_use]
    pub fn next_changes(&self) -> RegisterChanges {
        let registry = self.engine.registry();
        if registry.outbox.waiting() == 0 {
            return RegisterChanges::default();
        }
        let now = self.engine.store().now();
        let mut controls = registry.operator_state.clone();
        controls.expire(now);
        registry
            .outbox
            .next_changes(&OperatorItems::from_state(controls), now)
    }

    /// The register has these.
    pub fn mark_published(&self, put: &RegisterChanges) {
        self.engine.registry().outbox.complete(put, true);
    }

    /// The register will never take these: they hold here and nowhere else.
    pub fn discard_changes(&self, put: &RegisterChanges) {
        self.engine.registry().outbox.complete(put, false);
    }

    /// Tells other nodes that a key was [reset](Self::reset), so that they forget that it was denied. To be said once the store
    /// that is shared has forgotten it, too: a decision before that caches the denial again.
    ///
    /// # Errors
    /// There is no such limit or key, or it is not signed.
    pub fn publish_reset(
        &self,
        limit: &str,
        key: &[&str],
        by: Attribution<'_>,
    ) -> Result<(), OperatorError> {
        check_attribution(by)?;
        let generation = self.engine.generation();
        let index = rule_index(&generation, limit)?;
        let name = operator_items::reset_entry_name(&resolve_key(&generation, index, limit, key)?);
        let signed = OwnedAttribution::from_borrowed(by);
        self.engine.registry().outbox.enqueue_reset(name, signed);
        Ok(())
    }

    /// How much was said here that the register has not heard.
    #[must_use]
    pub fn pending_count(&self) -> usize {
        self.engine.registry().outbox.waiting()
    }

    /// How much was said here that the register will never hear, because too much waited for it or it was refused.
    #[must_use]
    pub fn dropped_count(&self) -> u64 {
        self.engine.registry().outbox.dropped_count()
    }

    /// The switch over everything.
    #[must_use]
    pub fn global_switch(&self) -> Switch {
        self.engine.registry().operator_state.everything
    }

    /// The register has lost everything that it was told, or what was put after a version: it is told again what holds
    /// here.
    pub fn republish(&self, lost_after: Option<u64>) {
        let mut registry = self.engine.registry();
        let Registry {
            operator_state: controls,
            outbox: sharing,
            ..
        } = &mut *registry;
        sharing.backfill(&OperatorItems::from_state(controls.clone()), lost_after);
    }

    /// Puts in force what the register says. What was said here meanwhile and has not been put yet is newer and stays. What
    /// is not understood stays in the register and is ignored.
    pub fn apply_register(&self, said: &RegisterSnapshot) -> SyncOutcome {
        let mut registry = self.engine.registry();
        let registry = &mut *registry;
        let generation = self.engine.generation();
        let now = self.engine.store().now();
        let mut held = registry.operator_state.clone();
        held.expire(now);
        let before = OperatorItems::from_state(held.clone());
        let mut items = OperatorItems::from_state(held);
        let told: HashSet<&str> = said.entries.iter().map(|entry| &*entry.name).collect();
        let is_told = |name: &str| told.contains(name);
        if said.is_complete {
            remove_absent(&mut items, registry, &is_told);
        }
        let mut adopted = SyncOutcome::default();
        let mut has_resets = false;
        for entry in &said.entries {
            if operator_items::is_reset_entry(&entry.name) {
                has_resets = true;
                continue;
            }
            if !registry.outbox.is_pending(&entry.name)
                && !apply_entry(&mut items, registry, entry, now)
            {
                adopted.dropped += 1;
            }
        }
        let whole: Option<&dyn Fn(&str) -> bool> = said.is_complete.then_some(&is_told);
        let changed = before.changed_names(&items);
        log_changes(registry, now, &changed, &before, &items);
        registry.outbox.prune(&items, whole, now);
        adopted.changed = changed.len();
        adopted.unsupported = registry.outbox.unsupported_count();
        if !changed.is_empty() {
            registry.operator_state = items.into_state();
            self.engine
                .apply_overrides(&generation, &registry.operator_state);
        }
        if has_resets {
            self.engine.clear_cached_denials();
        }
        adopted
    }
}

impl Registry {
    /// Something was said here, which changed this into that.
    pub(super) fn record_changes(&mut self, before: &OperatorState, signed: &OwnedAttribution) {
        let items = OperatorItems::from_state(self.operator_state.clone());
        let names = OperatorItems::from_state(before.clone()).changed_names(&items);
        self.outbox.enqueue(names, &items, signed);
    }
}

/// What a whole answer does not have is gone, unless it was only said here.
fn remove_absent(items: &mut OperatorItems, registry: &Registry, is_told: &dyn Fn(&str) -> bool) {
    let untold: Vec<Box<str>> = items
        .names()
        .filter(|name| !is_told(name) && !registry.outbox.is_pending(name))
        .map(Box::from)
        .collect();
    for name in untold {
        items.remove(&name);
    }
}

/// Takes over one entry. Whether there was room for it.
fn apply_entry(
    items: &mut OperatorItems,
    registry: &mut Registry,
    entry: &RegisterEntry,
    now: Timestamp,
) -> bool {
    let sharing = &mut registry.outbox;
    if entry.is_tombstone {
        items.remove(&entry.name);
        let signed = register_codec::decode_attribution(&entry.body);
        sharing.record_known(entry, signed.unwrap_or_default());
        return true;
    }
    if entry.expires_in == Some(Nanos::ZERO) {
        items.remove(&entry.name);
        return true;
    }
    let until = entry.expires_in.map(|left| now.after(left).as_nanos());
    let Some((mut item, signed)) = register_codec::decode(&entry.name, &entry.body, until) else {
        // What it said before, in words that were understood, no longer holds.
        items.remove(&entry.name);
        sharing.record_unsupported(entry, now);
        return true;
    };
    if let Some(held) = items.get(&entry.name) {
        if item.has_same_effect(held) && has_same_expiry(&item, held) {
            sharing.record_known(entry, signed);
            return true;
        }
        item.copy_shown_key(held);
    }
    if !items.has_room_for(&item) {
        return false;
    }
    items.put(item);
    sharing.record_known(entry, signed);
    true
}

fn has_same_expiry(one: &OperatorItem, two: &OperatorItem) -> bool {
    match (one.until(), two.until()) {
        (Some(one), Some(two)) => one.abs_diff(two) <= EXPIRY_TOLERANCE.as_nanos(),
        (one, two) => one == two,
    }
}

/// Logs what others have said: one by one or, if it is a lot, as one event.
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
            why: "others have said so".into(),
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
        let signed = registry.outbox.attribution_of(name);
        let event = OperatorEvent {
            who: signed.who,
            at: now,
            why: signed.why,
            change: what,
        };
        registry.audit_log.record(event, digest);
    }
}

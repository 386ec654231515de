//! What operators say on one node holds on all of them: what was said here is handed to a register, and what that has is
//! put in force here.
//!
//! Of two who say something about the same thing the one wins whom the register heard last. What is said here holds here at
//! once, whether or not a register answers, and is told when one does. Must not know: registers and how they are asked.

use std::collections::HashSet;

use tollgate_core::{Nanos, Timestamp};
use tollgate_store::register::{RegisterEntry, RegisterSnapshot};

use super::entry::{self, Signature};
use super::item::{self, Item, Items};
use super::log::{Event, OperatorChange};
use super::naming::{known, named};
use super::refused::{OperatorError, check_signature};
use super::sharing::{ToPut, Wake};
use super::{By, Control, Controls, Switch};
use crate::engine::Registry;
use crate::store::StateStore;

/// So many changes at once are logged one by one.
const MOST_TOLD: usize = 64;
/// Ends of the same thing that lie so near each other are the same end, told over a network.
const SAME_END: Nanos = Nanos::from_secs(2);

/// What came of what others have said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Adopted {
    /// How much holds that did not, or no longer holds.
    pub changed: usize,
    /// Entries that are not understood, which a later version has put. They are left alone.
    pub not_understood: usize,
    /// Entries that there was no room for.
    pub left_out: usize,
}

impl<S: StateStore> Control<'_, S> {
    /// Begins to note what is said here, for a register: `wake` is told whenever there is something
    /// [to put](Self::to_put). What holds already is noted too, where the register says nothing else.
    pub fn share(&self, wake: Wake) {
        let mut registry = self.engine.registry();
        let Registry {
            controls, sharing, ..
        } = &mut *registry;
        sharing.begin(wake);
        sharing.heal(&Items::of(controls.clone()), None);
    }

    /// The next of what was said here that the register has not heard: at most one call's worth. It stays so until it
    /// [was put](Self::was_put).
    #[must_use]
    pub fn to_put(&self) -> ToPut {
        let registry = self.engine.registry();
        if registry.sharing.waiting() == 0 {
            return ToPut::default();
        }
        let now = self.engine.store().now();
        let mut controls = registry.controls.clone();
        controls.expire(now);
        registry.sharing.to_put(&Items::of(controls), now)
    }

    /// The register has these.
    pub fn was_put(&self, put: &ToPut) {
        self.engine.registry().sharing.done(put, true);
    }

    /// The register will never take these: they hold here and nowhere else.
    pub fn give_up(&self, put: &ToPut) {
        self.engine.registry().sharing.done(put, false);
    }

    /// Tells other nodes that a key was [reset](Self::reset), so that they forget that it was denied. To be said once the store
    /// that is shared has forgotten it, too: a decision before that caches the denial again.
    ///
    /// # Errors
    /// There is no such limit or key, or it is not signed.
    pub fn tell_of_reset(
        &self,
        limit: &str,
        key: &[&str],
        by: By<'_>,
    ) -> Result<(), OperatorError> {
        check_signature(by)?;
        let generation = self.engine.generation();
        let index = known(&generation, limit)?;
        let name = item::of_reset(&named(&generation, index, limit, key)?);
        let signed = Signature::of(by);
        self.engine.registry().sharing.note_reset(name, signed);
        Ok(())
    }

    /// How much was said here that the register has not heard.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.engine.registry().sharing.waiting()
    }

    /// How much was said here that the register will never hear, because too much waited for it or it was refused.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.engine.registry().sharing.left_out()
    }

    /// The switch over everything.
    #[must_use]
    pub fn everything(&self) -> Switch {
        self.engine.registry().controls.everything
    }

    /// The register has lost everything that it was told, or what was put after a version: it is told again what holds
    /// here.
    pub fn tell_again(&self, lost_after: Option<u64>) {
        let mut registry = self.engine.registry();
        let Registry {
            controls, sharing, ..
        } = &mut *registry;
        sharing.heal(&Items::of(controls.clone()), lost_after);
    }

    /// Puts in force what the register says. What was said here meanwhile and has not been put yet is newer and stays. What
    /// is not understood stays in the register and is ignored.
    pub fn adopt(&self, said: &RegisterSnapshot) -> Adopted {
        let mut registry = self.engine.registry();
        let registry = &mut *registry;
        let generation = self.engine.generation();
        let now = self.engine.store().now();
        let mut held = registry.controls.clone();
        held.expire(now);
        let before = Items::of(held.clone());
        let mut items = Items::of(held);
        let told: HashSet<&str> = said.entries.iter().map(|entry| &*entry.name).collect();
        let is_told = |name: &str| told.contains(name);
        if said.is_whole {
            drop_untold(&mut items, registry, &is_told);
        }
        let mut adopted = Adopted::default();
        let mut has_resets = false;
        for entry in &said.entries {
            if item::is_reset(&entry.name) {
                has_resets = true;
                continue;
            }
            if !registry.sharing.is_waiting(&entry.name) && !take(&mut items, registry, entry, now)
            {
                adopted.left_out += 1;
            }
        }
        let whole: Option<&dyn Fn(&str) -> bool> = said.is_whole.then_some(&is_told);
        let changed = before.differences(&items);
        tell(registry, now, &changed, &before, &items);
        registry.sharing.tidy(&items, whole, now);
        adopted.changed = changed.len();
        adopted.not_understood = registry.sharing.not_understood();
        if !changed.is_empty() {
            registry.controls = items.into_controls();
            self.engine.apply_overrides(&generation, &registry.controls);
        }
        if has_resets {
            self.engine.forget_denials();
        }
        adopted
    }
}

impl Registry {
    /// Something was said here, which changed this into that.
    pub(super) fn note_changes(&mut self, before: &Controls, signed: &Signature) {
        let items = Items::of(self.controls.clone());
        let names = Items::of(before.clone()).differences(&items);
        self.sharing.note(names, &items, signed);
    }
}

/// What a whole answer does not have is gone, unless it was only said here.
fn drop_untold(items: &mut Items, registry: &Registry, is_told: &dyn Fn(&str) -> bool) {
    let untold: Vec<Box<str>> = items
        .names()
        .filter(|name| !is_told(name) && !registry.sharing.is_waiting(name))
        .map(Box::from)
        .collect();
    for name in untold {
        items.remove(&name);
    }
}

/// Takes over one entry. Whether there was room for it.
fn take(items: &mut Items, registry: &mut Registry, entry: &RegisterEntry, now: Timestamp) -> bool {
    let sharing = &mut registry.sharing;
    if entry.is_gone {
        items.remove(&entry.name);
        let signed = entry::read_signature(&entry.body);
        sharing.learn(entry, signed.unwrap_or_default());
        return true;
    }
    if entry.left == Some(Nanos::ZERO) {
        items.remove(&entry.name);
        return true;
    }
    let until = entry.left.map(|left| now.after(left).as_nanos());
    let Some((mut item, signed)) = entry::read(&entry.name, &entry.body, until) else {
        // What it said before, in words that were understood, no longer holds.
        items.remove(&entry.name);
        sharing.keep(entry, now);
        return true;
    };
    if let Some(held) = items.get(&entry.name) {
        if item.says_as(held) && ends_like(&item, held) {
            sharing.learn(entry, signed);
            return true;
        }
        item.show_as(held);
    }
    if !items.has_room_for(&item) {
        return false;
    }
    items.put(item);
    sharing.learn(entry, signed);
    true
}

fn ends_like(one: &Item, two: &Item) -> bool {
    match (one.until(), two.until()) {
        (Some(one), Some(two)) => one.abs_diff(two) <= SAME_END.as_nanos(),
        (one, two) => one == two,
    }
}

/// Logs what others have said: one by one or, if it is a lot, as one event.
fn tell(
    registry: &mut Registry,
    now: Timestamp,
    changed: &[Box<str>],
    before: &Items,
    items: &Items,
) {
    if changed.len() > MOST_TOLD {
        let event = Event {
            who: "the fleet".into(),
            when: now,
            why: "others have said so".into(),
            what: OperatorChange::Adopted {
                entries: changed.len(),
            },
        };
        registry.log.add(event, None);
        return;
    }
    for name in changed {
        let what = match (items.get(name), before.get(name)) {
            (Some(item), _) => (item.said(), item),
            (None, Some(item)) => (item.taken_back(), item),
            (None, None) => continue,
        };
        let (what, item) = what;
        let digest = item.key().and_then(super::NamedKey::digest);
        let signed = registry.sharing.signature(name);
        let event = Event {
            who: signed.who,
            when: now,
            why: signed.why,
            what,
        };
        registry.log.add(event, digest);
    }
}

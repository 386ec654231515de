//! The queue of local changes for the fleet's register, and what this node knows about the register's entries: their
//! versions, their attributions, and those in an unsupported format.
//!
//! Everything is bounded. Nothing is queued before a register exists. Must not know: which register it is, how items
//! take effect.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use tollgate_core::{Nanos, Timestamp};
use tollgate_store::register::{
    MAX_BODY_LEN, MAX_ENTRIES, MAX_PUTS, PutMode, RegisterEntry, RegisterPut,
};

use super::attribution::OwnedAttribution;
use super::operator_items::{OperatorItem, OperatorItems};
use super::register_codec;

/// The most queued changes. A change beyond applies on this node only, and is counted as dropped.
const MAX_PENDING: usize = 2 * MAX_ENTRIES;
/// The most bytes of one batch, unless a single entry is larger.
const MAX_BATCH_BYTES: usize = 16 * MAX_BODY_LEN;

/// How long the register keeps the announcement of a reset. A node that reads nothing for longer has no cached denials
/// left, or reads everything anew.
const RESET_TTL: Nanos = Nanos::MINUTE;

/// Called when something is queued.
pub type WakeCallback = Arc<dyn Fn() + Send + Sync>;

/// A batch of changes for the register.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RegisterChanges {
    changes: Vec<RegisterPut>,
    /// The sequence number of each change.
    sequences: Vec<u64>,
}

impl RegisterChanges {
    /// The changes, at most [`MAX_PUTS`].
    #[must_use]
    pub fn changes(&self) -> &[RegisterPut] {
        &self.changes
    }
}

/// The queue, and what is known about the register. See the module.
#[derive(Default)]
pub(crate) struct RegisterOutbox {
    wake: Option<WakeCallback>,
    next: u64,
    pending: BTreeMap<Box<str>, PendingEntry>,
    known: HashMap<Box<str>, KnownEntry>,
    /// Queued announcements of resets. They are not items.
    resets: BTreeMap<Box<str>, OwnedAttribution>,
    unsupported: BTreeMap<Box<str>, UnsupportedEntry>,
    dropped: u64,
}

/// A queued change.
#[derive(Clone, Copy)]
struct PendingEntry {
    number: u64,
    /// Whether the register's own entry, if it has one, wins.
    is_backfill: bool,
}

/// What is known about an entry, apart from its item.
struct KnownEntry {
    /// 0 until the register has assigned a version.
    version: u64,
    attribution: OwnedAttribution,
    is_tombstone: bool,
}

/// An entry in an unsupported format.
struct UnsupportedEntry {
    body: Box<[u8]>,
    until: Option<Timestamp>,
    version: u64,
}

impl RegisterOutbox {
    /// Starts to queue changes.
    pub(super) fn start(&mut self, wake: WakeCallback) {
        self.wake = Some(wake);
    }

    /// Queues items that were set or removed here.
    pub(super) fn enqueue(
        &mut self,
        names: Vec<Box<str>>,
        items: &OperatorItems,
        attribution: &OwnedAttribution,
    ) {
        let Some(wake) = self.wake.clone() else {
            return;
        };
        for name in names {
            let version = self.known.get(&name).map_or(0, |known| known.version);
            let known = KnownEntry {
                version,
                attribution: attribution.clone(),
                is_tombstone: items.get(&name).is_none(),
            };
            self.unsupported.remove(&name);
            self.known.insert(name.clone(), known);
            self.push(name, false);
        }
        wake();
    }

    /// Queues the announcement that a key was reset, because other nodes may have cached its denials.
    pub(super) fn enqueue_reset(&mut self, name: Box<str>, attribution: OwnedAttribution) {
        let Some(wake) = self.wake.clone() else {
            return;
        };
        if self.resets.len() < MAX_PENDING {
            self.resets.insert(name.clone(), attribution);
            self.push(name, false);
            wake();
        }
    }

    /// Queues what this node knows about a name, because somebody else has changed the register's entry.
    pub(super) fn enqueue_again(&mut self, name: &str) {
        if !self.pending.contains_key(name) {
            self.push(name.into(), false);
        }
    }

    fn push(&mut self, name: Box<str>, is_filling: bool) {
        if self.pending.len() >= MAX_PENDING && !self.pending.contains_key(&name) {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        self.next = self.next.saturating_add(1);
        let number = self.next;
        self.pending.insert(
            name,
            PendingEntry {
                number,
                is_backfill: is_filling,
            },
        );
    }

    /// The number of queued changes.
    pub(super) fn pending_count(&self) -> usize {
        self.pending.len()
    }

    pub(super) const fn dropped_count(&self) -> u64 {
        self.dropped
    }

    pub(super) fn unsupported_count(&self) -> usize {
        self.unsupported.len()
    }

    /// Whether a newer local change of this name is queued.
    pub(super) fn is_pending(&self, name: &str) -> bool {
        self.pending.contains_key(name)
    }

    /// The next batch: removals first, new entries last, because the register's room is bounded.
    pub(super) fn next_changes(&self, items: &OperatorItems, now: Timestamp) -> RegisterChanges {
        let takes_room = |name: &str| {
            let is_new = self.known.get(name).is_none_or(|known| known.version == 0);
            (items.get(name).is_some(), is_new)
        };
        let mut names: Vec<&Box<str>> = self.pending.keys().collect();
        names.sort_by_key(|name| takes_room(name));
        let mut put = RegisterChanges::default();
        let mut bytes = 0_usize;
        for name in names {
            let Some(pending_entry) = self.pending.get(name) else {
                continue;
            };
            let change = self.put_for(name, items.get(name), pending_entry.is_backfill, now);
            bytes = bytes.saturating_add(change.body.len());
            let is_full = put.changes.len() >= MAX_PUTS || bytes > MAX_BATCH_BYTES;
            if is_full && !put.changes.is_empty() {
                break;
            }
            put.changes.push(change);
            put.sequences.push(pending_entry.number);
        }
        put
    }

    fn put_for(
        &self,
        name: &str,
        item: Option<&OperatorItem>,
        is_filling: bool,
        now: Timestamp,
    ) -> RegisterPut {
        let expires_in = |until: Timestamp| until.since(now);
        let how = match is_filling {
            true => PutMode::SetIfAbsent,
            false => PutMode::Set,
        };
        let name: Box<str> = name.into();
        if let Some(attribution) = self.resets.get(&name) {
            return RegisterPut {
                body: register_codec::encode(None, attribution),
                expires_in: Some(RESET_TTL),
                name,
                mode: how,
            };
        }
        if let Some(unsupported) = self.unsupported.get(&name) {
            return RegisterPut {
                body: unsupported.body.clone(),
                expires_in: unsupported.until.map(expires_in),
                name,
                mode: how,
            };
        }
        let attribution = self.attribution_of(&name);
        RegisterPut {
            body: register_codec::encode(item, &attribution),
            expires_in: item
                .and_then(OperatorItem::until)
                .map(|until| expires_in(Timestamp::from_nanos(until))),
            mode: item.map_or(PutMode::Remove, |_| how),
            name,
        }
    }

    /// Removes a batch from the queue; `is_there`: the register has stored it.
    pub(super) fn complete(&mut self, put: &RegisterChanges, is_stored: bool) {
        for (change, number) in put.changes.iter().zip(&put.sequences) {
            let pending_entry = self.pending.get(&change.name);
            if pending_entry.is_some_and(|pending_entry| pending_entry.number == *number) {
                self.pending.remove(&change.name);
                self.resets.remove(&change.name);
            }
        }
        if !is_stored {
            let lost = u64::try_from(put.changes.len()).unwrap_or(u64::MAX);
            self.dropped = self.dropped.saturating_add(lost);
        }
    }

    /// An entry was read in a supported format, or is a removal.
    pub(super) fn record_known(&mut self, entry: &RegisterEntry, attribution: OwnedAttribution) {
        self.unsupported.remove(&entry.name);
        let known = KnownEntry {
            version: entry.version,
            attribution,
            is_tombstone: entry.is_tombstone,
        };
        self.known.insert(entry.name.clone(), known);
    }

    /// An entry was read in an unsupported format. It is kept, to restore it if the register loses it.
    pub(super) fn record_unsupported(&mut self, entry: &RegisterEntry, now: Timestamp) {
        self.known.remove(&entry.name);
        if self.unsupported.len() >= MAX_ENTRIES {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        let unsupported = UnsupportedEntry {
            body: entry.body.clone(),
            until: entry.expires_in.map(|expires_in| now.after(expires_in)),
            version: entry.version,
        };
        self.unsupported.insert(entry.name.clone(), unsupported);
    }

    /// Drops what is known about entries that no longer exist.
    pub(super) fn prune(
        &mut self,
        items: &OperatorItems,
        is_in_register: Option<&dyn Fn(&str) -> bool>,
        now: Timestamp,
    ) {
        let pending = &self.pending;
        let is_stored = |name: &str| is_in_register.is_none_or(|contains| contains(name));
        self.unsupported.retain(|name, unsupported| {
            let is_active = unsupported.until.is_none_or(|until| now < until);
            is_active && (is_stored(name) || pending.contains_key(name))
        });
        let has_room = self.known.len() <= MAX_PENDING;
        self.known.retain(|name, known| {
            let is_in_force = items.get(name).is_some() || pending.contains_key(name);
            is_in_force || (known.is_tombstone && has_room && is_stored(name))
        });
    }

    /// The attribution of an item, as far as it is known.
    pub(super) fn attribution_of(&self, name: &str) -> OwnedAttribution {
        let attribution = self.known.get(name).map(|known| &known.attribution);
        let attribution = attribution.filter(|attribution| !attribution.who.is_empty());
        attribution.cloned().unwrap_or_else(|| OwnedAttribution {
            who: "the fleet".into(),
            why: "attribution unknown".into(),
        })
    }

    /// The register has lost its entries, or those after version `lost_after`. Queues them again.
    pub(super) fn backfill(&mut self, items: &OperatorItems, lost_after: Option<u64>) {
        let is_lost = |version: u64| lost_after.is_none_or(|after| version > after);
        let held = items.names().filter(|name| {
            let version = self.known.get(*name).map_or(0, |known| known.version);
            is_lost(version)
        });
        let unsupported = self
            .unsupported
            .iter()
            .filter(|(_, unsupported)| is_lost(unsupported.version));
        // A register that has lost everything needs no removals.
        let removed = self.known.iter().filter(|(_, known)| {
            known.is_tombstone && lost_after.is_some_and(|after| known.version > after)
        });
        let names: Vec<Box<str>> = held
            .map(Box::from)
            .chain(unsupported.map(|(name, _)| name.clone()))
            .chain(removed.map(|(name, _)| name.clone()))
            .filter(|name| !self.pending.contains_key(name))
            .collect();
        for name in names {
            self.push(name, lost_after.is_none());
        }
    }
}

impl fmt::Debug for RegisterOutbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sharing")
            .field("waiting", &self.pending.len())
            .field("known", &self.known.len())
            .field("not_understood", &self.unsupported.len())
            .finish_non_exhaustive()
    }
}

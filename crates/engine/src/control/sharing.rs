//! What is between this node and the register of its fleet: what was said here and is not there yet, which version of what is
//! there is known, and what is there and not understood.
//!
//! Everything is bounded, and nothing is noted until a register is there to be told. Must not know: registers, how
//! anything is put in force.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use tollgate_core::{Nanos, Timestamp};
use tollgate_store::register::{
    How, MOST_BODY, MOST_CHANGES, MOST_ENTRIES, RegisterEntry, RegisterPut,
};

use super::entry::{self, Signature};
use super::item::{Item, Items};

/// The most that waits for the register. What is said beyond holds here and nowhere else, and is counted.
const MOST_WAITING: usize = 2 * MOST_ENTRIES;
/// The most bytes that are put at once, unless a single entry has more.
const MOST_BYTES: usize = 16 * MOST_BODY;

/// For how long it is told that a key was reset. Who hears nothing for so long has no denials left to forget, or asks for
/// everything.
const RESET_TOLD_FOR: Nanos = Nanos::MINUTE;

/// Told when something waits.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// What to put into the register, and what it answers for.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ToPut {
    changes: Vec<RegisterPut>,
    /// Which saying of each name it was.
    numbers: Vec<u64>,
}

impl ToPut {
    /// What is to be put, at most [`MOST_CHANGES`].
    #[must_use]
    pub fn changes(&self) -> &[RegisterPut] {
        &self.changes
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Sharing {
    wake: Option<Wake>,
    next: u64,
    waiting: BTreeMap<Box<str>, Waiting>,
    known: HashMap<Box<str>, Known>,
    /// Resets that the register has not heard: nothing that holds, only news.
    resets: BTreeMap<Box<str>, Signature>,
    foreign: BTreeMap<Box<str>, Foreign>,
    left_out: u64,
}

/// Something that the register has not heard.
#[derive(Clone, Copy)]
struct Waiting {
    number: u64,
    /// Whether it only fills a gap.
    is_filling: bool,
}

/// What is known of an entry besides what it says.
struct Known {
    /// 0 as long as the register has not given it one.
    version: u64,
    signed: Signature,
    is_gone: bool,
}

/// An entry that is not understood.
struct Foreign {
    body: Box<[u8]>,
    until: Option<Timestamp>,
    version: u64,
}

impl Sharing {
    /// From now on what is said is noted.
    pub(super) fn begin(&mut self, wake: Wake) {
        self.wake = Some(wake);
    }

    /// These were said or taken back here.
    pub(super) fn note(&mut self, names: Vec<Box<str>>, items: &Items, signed: &Signature) {
        let Some(wake) = self.wake.clone() else {
            return;
        };
        for name in names {
            let version = self.known.get(&name).map_or(0, |known| known.version);
            let known = Known {
                version,
                signed: signed.clone(),
                is_gone: items.get(&name).is_none(),
            };
            self.foreign.remove(&name);
            self.known.insert(name.clone(), known);
            self.wait(name, false);
        }
        wake();
    }

    /// A key was reset here, and others may remember that it was denied.
    pub(super) fn note_reset(&mut self, name: Box<str>, signed: Signature) {
        let Some(wake) = self.wake.clone() else {
            return;
        };
        if self.resets.len() < MOST_WAITING {
            self.resets.insert(name.clone(), signed);
            self.wait(name, false);
            wake();
        }
    }

    fn wait(&mut self, name: Box<str>, is_filling: bool) {
        if self.waiting.len() >= MOST_WAITING && !self.waiting.contains_key(&name) {
            self.left_out = self.left_out.saturating_add(1);
            return;
        }
        self.next = self.next.saturating_add(1);
        let number = self.next;
        self.waiting.insert(name, Waiting { number, is_filling });
    }

    /// How much waits.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) const fn left_out(&self) -> u64 {
        self.left_out
    }

    pub(super) fn not_understood(&self) -> usize {
        self.foreign.len()
    }

    /// Whether something newer was said here of this name.
    pub(super) fn is_waiting(&self, name: &str) -> bool {
        self.waiting.contains_key(name)
    }

    /// The next of what waits: first what makes room, last what takes some.
    pub(super) fn to_put(&self, items: &Items, now: Timestamp) -> ToPut {
        let takes_room = |name: &str| {
            let is_new = self.known.get(name).is_none_or(|known| known.version == 0);
            (items.get(name).is_some(), is_new)
        };
        let mut names: Vec<&Box<str>> = self.waiting.keys().collect();
        names.sort_by_key(|name| takes_room(name));
        let mut put = ToPut::default();
        let mut bytes = 0_usize;
        for name in names {
            let Some(waiting) = self.waiting.get(name) else {
                continue;
            };
            let change = self.change(name, items.get(name), waiting.is_filling, now);
            bytes = bytes.saturating_add(change.body.len());
            let is_full = put.changes.len() >= MOST_CHANGES || bytes > MOST_BYTES;
            if is_full && !put.changes.is_empty() {
                break;
            }
            put.changes.push(change);
            put.numbers.push(waiting.number);
        }
        put
    }

    fn change(
        &self,
        name: &str,
        item: Option<&Item>,
        is_filling: bool,
        now: Timestamp,
    ) -> RegisterPut {
        let left = |until: Timestamp| until.since(now);
        let how = match is_filling {
            true => How::SetIfAbsent,
            false => How::Set,
        };
        let name: Box<str> = name.into();
        if let Some(signed) = self.resets.get(&name) {
            return RegisterPut {
                body: entry::write(None, signed),
                left: Some(RESET_TOLD_FOR),
                name,
                how,
            };
        }
        if let Some(foreign) = self.foreign.get(&name) {
            return RegisterPut {
                body: foreign.body.clone(),
                left: foreign.until.map(left),
                name,
                how,
            };
        }
        let signed = self.signature(&name);
        RegisterPut {
            body: entry::write(item, &signed),
            left: item
                .and_then(Item::until)
                .map(|until| left(Timestamp::from_nanos(until))),
            how: item.map_or(How::Remove, |_| how),
            name,
        }
    }

    /// These are in the register, or will never be.
    pub(super) fn done(&mut self, put: &ToPut, is_there: bool) {
        for (change, number) in put.changes.iter().zip(&put.numbers) {
            let waiting = self.waiting.get(&change.name);
            if waiting.is_some_and(|waiting| waiting.number == *number) {
                self.waiting.remove(&change.name);
                self.resets.remove(&change.name);
            }
        }
        if !is_there {
            let lost = u64::try_from(put.changes.len()).unwrap_or(u64::MAX);
            self.left_out = self.left_out.saturating_add(lost);
        }
    }

    /// An entry was read and is understood, or says that something is gone.
    pub(super) fn learn(&mut self, entry: &RegisterEntry, signed: Signature) {
        self.foreign.remove(&entry.name);
        let known = Known {
            version: entry.version,
            signed,
            is_gone: entry.is_gone,
        };
        self.known.insert(entry.name.clone(), known);
    }

    /// An entry was read and is not understood. It is kept, to be told again if the register loses it.
    pub(super) fn keep(&mut self, entry: &RegisterEntry, now: Timestamp) {
        self.known.remove(&entry.name);
        if self.foreign.len() >= MOST_ENTRIES {
            self.left_out = self.left_out.saturating_add(1);
            return;
        }
        let foreign = Foreign {
            body: entry.body.clone(),
            until: entry.left.map(|left| now.after(left)),
            version: entry.version,
        };
        self.foreign.insert(entry.name.clone(), foreign);
    }

    /// Forgets what no longer holds, and who said so.
    pub(super) fn tidy(
        &mut self,
        items: &Items,
        is_told: Option<&dyn Fn(&str) -> bool>,
        now: Timestamp,
    ) {
        let waiting = &self.waiting;
        let is_there = |name: &str| is_told.is_none_or(|told| told(name));
        self.foreign.retain(|name, foreign| {
            let holds = foreign.until.is_none_or(|until| now < until);
            holds && (is_there(name) || waiting.contains_key(name))
        });
        let has_room = self.known.len() <= MOST_WAITING;
        self.known.retain(|name, known| {
            let is_held = items.get(name).is_some() || waiting.contains_key(name);
            is_held || (known.is_gone && has_room && is_there(name))
        });
    }

    /// Who said it, as far as that is known.
    pub(super) fn signature(&self, name: &str) -> Signature {
        let signed = self.known.get(name).map(|known| &known.signed);
        let signed = signed.filter(|signed| !signed.who.is_empty());
        signed.cloned().unwrap_or_else(|| Signature {
            who: "the fleet".into(),
            why: "nobody knows any more who said it".into(),
        })
    }

    /// The register has lost everything, or what was put after a version: it is told again.
    pub(super) fn heal(&mut self, items: &Items, lost_after: Option<u64>) {
        let is_lost = |version: u64| lost_after.is_none_or(|after| version > after);
        let held = items.names().filter(|name| {
            let version = self.known.get(*name).map_or(0, |known| known.version);
            is_lost(version)
        });
        let foreign = self
            .foreign
            .iter()
            .filter(|(_, foreign)| is_lost(foreign.version));
        // That something is gone need not be said to a register that has lost that it was there.
        let gone = self.known.iter().filter(|(_, known)| {
            known.is_gone && lost_after.is_some_and(|after| known.version > after)
        });
        let names: Vec<Box<str>> = held
            .map(Box::from)
            .chain(foreign.map(|(name, _)| name.clone()))
            .chain(gone.map(|(name, _)| name.clone()))
            .filter(|name| !self.waiting.contains_key(name))
            .collect();
        for name in names {
            self.wait(name, lost_after.is_none());
        }
    }
}

impl fmt::Debug for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sharing")
            .field("waiting", &self.waiting.len())
            .field("known", &self.known.len())
            .field("not_understood", &self.foreign.len())
            .finish_non_exhaustive()
    }
}

//! A register of a fleet in memory, written as plainly as possible: what the real one is compared with, and what nodes are
//! tested on. Its time is moved by tests, and it can be gone, lose answers and lose what it was told.
//!
//! Must not know: how real registers keep anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::Nanos;
use tollgate_store::register::{
    Heartbeat, MAX_ENTRIES, MAX_NODES, MemberList, NodeId, PutMode, Register, RegisterCursor,
    RegisterEntry, RegisterFuture, RegisterPut, RegisterSnapshot, RegisteredNode, TOMBSTONE_TTL,
    too_many_entries, too_many_nodes, validate_puts,
};
use tollgate_store::{StoreError, StoreErrorKind};

/// How a register answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RegisterFault {
    /// As it should.
    #[default]
    Well,
    /// Nothing reaches it.
    Gone,
    /// It does what it is asked, and nobody hears that it did.
    Mute,
}

/// A register in memory.
#[derive(Debug, Default)]
pub struct ModelRegister(Mutex<RegisterModel>);

#[derive(Debug, Default)]
struct RegisterModel {
    mood: RegisterFault,
    now: Nanos,
    calls: u64,
    epochs: u64,
    /// The last version that was given to an entry; none is given twice.
    issued: u64,
    mark: RegisterCursor,
    floor: u64,
    /// The versions that nodes were told of.
    marks: BTreeSet<u64>,
    nodes: BTreeMap<NodeId, (Heartbeat, Nanos, Nanos)>,
    entries: BTreeMap<Box<str>, StoredEntry>,
    numbers: BTreeMap<NodeId, u64>,
}

#[derive(Debug, Clone)]
struct StoredEntry {
    body: Box<[u8]>,
    is_gone: bool,
    ends: Option<Nanos>,
    version: u64,
}

impl ModelRegister {
    fn model(&self) -> MutexGuard<'_, RegisterModel> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It answers like this from now on.
    pub fn be(&self, mood: RegisterFault) {
        self.model().mood = mood;
    }

    /// Time passes.
    pub fn advance(&self, by: Nanos) {
        let mut model = self.model();
        model.now = model.now.saturating_add(by);
    }

    /// It forgets everything, as a server that starts empty.
    pub fn lose_everything(&self) {
        let mut model = self.model();
        *model = RegisterModel {
            mood: model.mood,
            now: model.now,
            calls: model.calls,
            epochs: model.epochs,
            issued: model.issued,
            ..RegisterModel::default()
        };
    }

    /// It forgets what was put after a version, as a replica that was promoted too early.
    pub fn lose_after(&self, version: u64) {
        let mut model = self.model();
        model.entries.retain(|_, kept| kept.version <= version);
        model.mark.version = version;
        model.marks.retain(|mark| *mark <= version);
        model.numbers.clear();
    }

    /// How often it was asked anything, whether or not it answered.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.model().calls
    }

    /// Carries out a call as its mood is.
    fn answer<T>(
        &self,
        work: impl FnOnce(&mut RegisterModel) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut model = self.model();
        model.calls += 1;
        match model.mood {
            RegisterFault::Well => work(&mut model),
            RegisterFault::Gone => Err(StoreError::new(StoreErrorKind::Unreachable, "it is gone")),
            RegisterFault::Mute => {
                work(&mut model)?;
                Err(StoreError::new(StoreErrorKind::TimedOut, "it is mute"))
            }
        }
    }

    /// See [`Register::heartbeat`].
    ///
    /// # Errors
    /// It is in no mood to answer, or full.
    pub fn beat_now(&self, beat: &Heartbeat, life: Nanos) -> Result<MemberList, StoreError> {
        self.answer(|model| {
            let now = model.now;
            model.nodes.retain(|_, (_, _, ends)| now < *ends);
            if model.nodes.len() >= MAX_NODES && !model.nodes.contains_key(&beat.node) {
                return Err(too_many_nodes());
            }
            let ends = now.saturating_add(life);
            model.nodes.insert(beat.node, (beat.clone(), now, ends));
            let seen = model.nodes.values().map(|(beat, heard, _)| RegisteredNode {
                heartbeat: beat.clone(),
                age: now.saturating_sub(*heard),
            });
            Ok(MemberList::new(seen.collect(), 0, model.mark))
        })
    }

    /// See [`Register::entries`].
    ///
    /// # Errors
    /// It is in no mood to answer.
    pub fn entries_now(
        &self,
        since: Option<RegisterCursor>,
    ) -> Result<RegisterSnapshot, StoreError> {
        self.answer(|model| {
            model.tidy();
            let mark = model.mark;
            let known = since.filter(|since| {
                mark.epoch != 0 && since.epoch == mark.epoch && model.floor <= since.version
            });
            let lost = known.filter(|since| !model.marks.contains(&since.version));
            let lost_after = lost.map(|lost| {
                let last = model.marks.range(..lost.version).next_back();
                last.copied().unwrap_or(model.floor)
            });
            let known = known.filter(|_| lost.is_none());
            let after = known.map_or(0, |since| since.version);
            let now = model.now;
            let of = |name: &str, kept: &StoredEntry| RegisterEntry {
                name: name.into(),
                body: kept.body.clone(),
                is_tombstone: kept.is_gone,
                expires_in: kept.ends.map(|ends| ends.saturating_sub(now)),
                version: kept.version,
            };
            let later = model
                .entries
                .iter()
                .filter(|(_, kept)| kept.version > after);
            let mut entries: Vec<RegisterEntry> =
                later.map(|(name, kept)| of(name, kept)).collect();
            entries.sort_by_key(|entry| entry.version);
            Ok(RegisterSnapshot {
                cursor: mark,
                is_complete: known.is_none(),
                lost_after,
                entries,
            })
        })
    }

    /// See [`Register::put`].
    ///
    /// # Errors
    /// It is in no mood to answer, or full, or what it is told makes no sense.
    pub fn put_now(
        &self,
        from: NodeId,
        number: u64,
        changes: &[RegisterPut],
    ) -> Result<RegisterCursor, StoreError> {
        validate_puts(changes)?;
        self.answer(|model| {
            if model.mark.epoch != 0 && model.numbers.get(&from).is_some_and(|put| *put >= number) {
                return Ok(model.mark);
            }
            model.tidy();
            let is_new = |change: &&RegisterPut| {
                change.mode != PutMode::Remove && !model.entries.contains_key(&change.name)
            };
            if model.entries.len() + changes.iter().filter(is_new).count() > MAX_ENTRIES {
                return Err(too_many_entries());
            }
            if model.mark.epoch == 0 {
                model.epochs += 1;
                model.mark.epoch = model.epochs;
            }
            for change in changes {
                model.put(change);
            }
            model.numbers.insert(from, number);
            model.marks.insert(model.mark.version);
            Ok(model.mark)
        })
    }
}

impl RegisterModel {
    fn tidy(&mut self) {
        let (now, mut floor) = (self.now, self.floor);
        self.entries.retain(|_, kept| {
            let holds = kept.ends.is_none_or(|ends| now < ends);
            if !holds && kept.is_gone {
                floor = floor.max(kept.version);
            }
            holds
        });
        self.floor = floor;
    }

    fn put(&mut self, change: &RegisterPut) {
        let is_known = self.entries.contains_key(&change.name);
        let is_gone = change.mode == PutMode::Remove;
        if is_known && change.mode == PutMode::SetIfAbsent
            || !is_known && is_gone && self.entries.len() >= MAX_ENTRIES
        {
            return;
        }
        self.issued += 1;
        self.mark.version = self.issued;
        let left = if is_gone {
            Some(TOMBSTONE_TTL)
        } else {
            change.expires_in
        };
        let kept = StoredEntry {
            body: change.body.clone(),
            is_gone,
            ends: left.map(|left| self.now.saturating_add(left)),
            version: self.mark.version,
        };
        self.entries.insert(change.name.clone(), kept);
    }
}

impl Register for ModelRegister {
    fn heartbeat<'a>(&'a self, beat: &'a Heartbeat, life: Nanos) -> RegisterFuture<'a, MemberList> {
        Box::pin(async move { self.beat_now(beat, life) })
    }

    fn leave(&self, node: NodeId) -> RegisterFuture<'_, ()> {
        Box::pin(async move {
            self.answer(|model| {
                model.nodes.remove(&node);
                Ok(())
            })
        })
    }

    fn entries(&self, since: Option<RegisterCursor>) -> RegisterFuture<'_, RegisterSnapshot> {
        Box::pin(async move { self.entries_now(since) })
    }

    fn put<'a>(
        &'a self,
        from: NodeId,
        number: u64,
        changes: &'a [RegisterPut],
    ) -> RegisterFuture<'a, RegisterCursor> {
        Box::pin(async move { self.put_now(from, number, changes) })
    }
}

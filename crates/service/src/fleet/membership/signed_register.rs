//! A register whose messages are authenticated: signs what this node sends, and ignores what no holder of the fleet's
//! secret has sent, or what the fleet has replaced since.
//!
//! A client that can write to the register can delete entries and counts, but cannot add or bring back an entry. See ADR 0034.
//! Must not know: where the register is, what entries mean.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::Nanos;
use tollgate_store::register::{
    Heartbeat, HeartbeatSeal, MAX_ENTRIES, MAX_NODES, MAX_PUTS, MemberList, NodeId, PutMode,
    Register, RegisterCursor, RegisterEntry, RegisterFuture, RegisterPut, RegisterSnapshot,
    RejectedEntry, TOMBSTONE_TTL,
};
use tollgate_store::{StoreError, StoreErrorKind};

use super::forged_usage::drop_forged_usage;
use super::message_key::{Mac, MessageKey, OpenedEntry, SignedBody, is_equal};
use super::rejections::{Rejection, Rejections};

/// The most names whose last sequence number is remembered: all entries, and as many removed ones.
const MAX_SEEN_ENTRIES: usize = 2 * MAX_ENTRIES;
/// The most nodes whose last sequence number is remembered.
const MAX_SEEN_NODES: usize = 4 * MAX_NODES;
/// A node whose heartbeat did not change for more than this many heartbeats of ours, and for twice its life, is gone,
/// whatever the register says.
const MAX_UNCHANGED_BEATS: u32 = 12;

/// The register may delete an entry this much before this node thinks that it ends.
const EXPIRY_TOLERANCE: Duration = Duration::from_secs(2);

/// A register with authenticated messages. See the module.
pub(super) struct SignedRegister {
    inner: Arc<dyn Register>,
    key: MessageKey,
    /// Whether messages without a signature are accepted, during an upgrade.
    accepts_unsigned: bool,
    rejections: Arc<Rejections>,
    /// The sender of entries that are signed again.
    signer: NodeId,
    state: Mutex<SeenMessages>,
}

/// What was seen in the register so far.
#[derive(Debug, Default)]
struct SeenMessages {
    entries: HashMap<Box<str>, SeenEntry>,
    nodes: HashMap<NodeId, SeenNode>,
    /// The lowest sequence number for the next entry, so that it is above those of all earlier entries.
    next_sequence: u64,
    heartbeats: u64,
    signer_puts: u64,
    last_heartbeat: Option<Instant>,
    /// Whether tombstones may have expired since the last read, so that a missing entry may have been removed.
    may_have_missed_tombstones: bool,
    epoch: u64,
    /// Whether the register has said that it lost entries.
    has_lost_entries: bool,
}

/// The last authentic entry of a name.
#[derive(Clone, Copy, Debug)]
struct SeenEntry {
    sequence: u64,
    mac: Mac,
    is_tombstone: bool,
    /// When it ends, counted from when it was first seen.
    ends: Option<Instant>,
}

/// The last heartbeat of a node.
#[derive(Clone, Copy, Debug)]
struct SeenNode {
    sequence: u64,
    since: Instant,
    unchanged_beats: u32,
}

impl SignedRegister {
    pub(super) fn new(
        inner: Arc<dyn Register>,
        key: MessageKey,
        accepts_unsigned: bool,
        rejections: Arc<Rejections>,
    ) -> Self {
        Self {
            inner,
            key,
            accepts_unsigned,
            rejections,
            // A fresh hasher is keyed by the operating system's randomness.
            signer: NodeId(RandomState::new().hash_one(0_u8)),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, SeenMessages> {
        // Every change is a single insertion, so a poisoned state is still usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signed_heartbeat(&self, heartbeat: &Heartbeat) -> Heartbeat {
        let sequence = {
            let mut state = self.state();
            state.heartbeats = state.heartbeats.saturating_add(1);
            state.heartbeats
        };
        let mac = self.key.heartbeat_mac(heartbeat, sequence);
        let mut signed = Heartbeat {
            seal: Some(HeartbeatSeal { sequence, mac }),
            ..heartbeat.clone()
        };
        if !signed.usage.targets.is_empty() {
            signed.usage.mac = Some(self.key.usage_mac(heartbeat, sequence));
        }
        signed
    }

    /// Separates the authentic nodes from the others.
    fn verify_members(&self, members: MemberList, own: &Heartbeat, life: Nanos) -> MemberList {
        let now = Instant::now();
        let mut state = self.state();
        state.record_contact(&members, now);
        let listed: HashSet<NodeId> = members.nodes.iter().map(|n| n.heartbeat.node).collect();
        let (mut nodes, mut unverified) = (Vec::with_capacity(members.nodes.len()), Vec::new());
        for mut node in members.nodes {
            match self.check_heartbeat(&mut state, &node.heartbeat, life, now) {
                None => {
                    drop_forged_usage(&mut node.heartbeat, &self.key, &self.rejections);
                    nodes.push(node);
                }
                Some(why) => {
                    // A node with another secret is reported as such, because it is a common mistake.
                    if node.heartbeat.secret_fingerprint == own.secret_fingerprint {
                        let id = node.heartbeat.node.to_string();
                        self.rejections.record(why, "heartbeat", &id);
                    }
                    unverified.push(node);
                }
            }
        }
        state.forget_nodes(&listed);
        for _ in 0..members.unreadable {
            self.rejections.record(Rejection::Forged, "heartbeat", "");
        }
        MemberList {
            unverified,
            ..MemberList::new(nodes, members.unreadable, members.cursor, members.clock)
        }
    }

    fn check_heartbeat(
        &self,
        state: &mut SeenMessages,
        heartbeat: &Heartbeat,
        life: Nanos,
        now: Instant,
    ) -> Option<Rejection> {
        let Some(HeartbeatSeal { sequence, mac }) = heartbeat.seal else {
            return (!self.accepts_unsigned).then_some(Rejection::Unsigned);
        };
        if !is_equal(&mac, &self.key.heartbeat_mac(heartbeat, sequence)) {
            return Some(Rejection::Forged);
        }
        let fresh = SeenNode {
            sequence,
            since: now,
            unchanged_beats: 0,
        };
        let seen = state.nodes.entry(heartbeat.node).or_insert(fresh);
        if sequence > seen.sequence {
            *seen = fresh;
        }
        seen.unchanged_beats = seen.unchanged_beats.saturating_add(1);
        let is_gone = seen.unchanged_beats > MAX_UNCHANGED_BEATS
            && now.saturating_duration_since(seen.since) > duration(life).saturating_mul(2);
        (sequence < seen.sequence || is_gone).then_some(Rejection::Replayed)
    }

    /// The authentic entries, and those without a signature that are accepted.
    fn verify_entries(
        &self,
        mut snapshot: RegisterSnapshot,
    ) -> (RegisterSnapshot, Vec<RegisterPut>) {
        let now = Instant::now();
        let mut state = self.state();
        for rejected in &snapshot.rejected {
            self.rejections
                .record(Rejection::Forged, "entry", &rejected.name);
        }
        let mut to_sign = Vec::new();
        let mut entries = Vec::with_capacity(snapshot.entries.len());
        for entry in std::mem::take(&mut snapshot.entries) {
            let checked = match self.key.open_entry(&entry) {
                OpenedEntry::Signed(signed) => state.check_entry(&entry, signed, now),
                OpenedEntry::Unsigned if self.accepts_unsigned => {
                    to_sign.extend(put_again(&entry));
                    Ok(entry.clone())
                }
                OpenedEntry::Unsigned => Err(Rejection::Unsigned),
                OpenedEntry::Forged => Err(Rejection::Forged),
            };
            match checked {
                Ok(entry) => entries.push(entry),
                Err(why) => {
                    self.rejections.record(why, "entry", &entry.name);
                    snapshot.rejected.push(RejectedEntry {
                        name: entry.name,
                        is_replayed: why == Rejection::Replayed,
                    });
                }
            }
        }
        snapshot.entries = entries;
        let has_lost = snapshot.lost_after.is_some()
            || state.epoch != 0 && snapshot.cursor.epoch != state.epoch;
        state.epoch = snapshot.cursor.epoch;
        let is_accident = std::mem::replace(&mut state.has_lost_entries, has_lost) || has_lost;
        let was_away = std::mem::replace(&mut state.may_have_missed_tombstones, false);
        if snapshot.is_complete {
            let missing = state.take_missing(&snapshot, was_away, now);
            for name in missing {
                if !is_accident {
                    self.rejections.record(Rejection::Forged, "removal", &name);
                }
                snapshot.rejected.push(RejectedEntry {
                    name,
                    is_replayed: true,
                });
            }
        }
        (snapshot, to_sign)
    }

    fn sign_puts(&self, puts: &[RegisterPut]) -> Result<Vec<RegisterPut>, StoreError> {
        let state = self.state();
        let sign = |put: &RegisterPut| {
            let seen = state.entries.get(&put.name);
            let sequence = seen.map_or(0, |seen| seen.sequence).saturating_add(1);
            let sequence = sequence.max(state.next_sequence);
            let is_tombstone = put.mode == PutMode::Remove;
            let body =
                self.key
                    .sign_entry(&put.name, &put.body, is_tombstone, sequence, put.expires_in);
            let body = body.ok_or_else(|| {
                let detail = "entry body: it must be a JSON object";
                StoreError::new(StoreErrorKind::BadRequest, detail)
            })?;
            Ok(RegisterPut {
                body,
                ..put.clone()
            })
        };
        puts.iter().map(sign).collect()
    }

    /// Signs entries of a version without signatures, so that they hold when unsigned entries are no longer accepted.
    /// An entry that has changed meanwhile is left alone.
    async fn sign_again(&self, puts: &[RegisterPut]) -> Result<(), StoreError> {
        for batch in puts.chunks(MAX_PUTS) {
            let signed = self.sign_puts(batch)?;
            let number = {
                let mut state = self.state();
                state.signer_puts = state.signer_puts.saturating_add(1);
                state.signer_puts
            };
            self.inner.put(self.signer, number, &signed).await?;
        }
        Ok(())
    }
}

impl SeenMessages {
    fn record_contact(&mut self, members: &MemberList, now: Instant) {
        self.record_cursor(members.cursor);
        // An empty register has no versions yet. Its clock is above all versions that it gave before it lost them.
        if members.cursor.epoch == 0 {
            self.next_sequence = members.clock;
        }
        let away = self
            .last_heartbeat
            .map(|last| now.saturating_duration_since(last));
        self.may_have_missed_tombstones |= away.is_none_or(|away| away >= duration(TOMBSTONE_TTL));
        self.last_heartbeat = Some(now);
    }

    const fn record_cursor(&mut self, cursor: RegisterCursor) {
        if cursor.epoch != 0 {
            self.next_sequence = cursor.version;
        }
    }

    /// The entry without its signature, unless it is older than what was seen.
    fn check_entry(
        &mut self,
        entry: &RegisterEntry,
        signed: SignedBody,
        now: Instant,
    ) -> Result<RegisterEntry, Rejection> {
        let SignedBody {
            sequence,
            ttl,
            mac,
            body,
        } = signed;
        let seen = self.entries.get(&entry.name).copied();
        if seen.is_some_and(|seen| seen.sequence > sequence) {
            return Err(Rejection::Replayed);
        }
        let mut expires_in = match entry.is_tombstone {
            true => entry.expires_in,
            // The register's expiry is not signed: it may end an entry early, as a deletion would, but not prolong it.
            false => ttl.map(|ttl| entry.expires_in.map_or(ttl, |left| left.min(ttl))),
        };
        let same = seen.filter(|seen| is_equal(&seen.mac, &mac));
        if let (Some(ends), false) = (same.and_then(|seen| seen.ends), entry.is_tombstone) {
            let left = nanos(ends.saturating_duration_since(now));
            expires_in = Some(expires_in.map_or(left, |expires_in| expires_in.min(left)));
        }
        let fresh = SeenEntry {
            sequence,
            mac,
            is_tombstone: entry.is_tombstone,
            ends: expires_in.and_then(|left| now.checked_add(duration(left))),
        };
        self.remember(&entry.name, same.unwrap_or(fresh), now);
        Ok(RegisterEntry {
            body,
            expires_in,
            ..entry.clone()
        })
    }

    /// The entries that are missing without a tombstone: somebody else has deleted them, or the register has lost them.
    /// A node that was away for longer than tombstones are kept forgets them instead.
    fn take_missing(
        &mut self,
        snapshot: &RegisterSnapshot,
        was_away: bool,
        now: Instant,
    ) -> Vec<Box<str>> {
        let names = snapshot.entries.iter().map(|entry| &*entry.name);
        let rejected = snapshot.rejected.iter().map(|entry| &*entry.name);
        let listed: HashSet<&str> = names.chain(rejected).collect();
        let missing = self.entries.iter().filter(|(name, seen)| {
            let name: &str = name;
            seen.is_in_force(now) && !listed.contains(name)
        });
        let missing: Vec<Box<str>> = missing.map(|(name, _)| name.clone()).collect();
        if !was_away {
            return missing;
        }
        for name in &missing {
            self.entries.remove(name);
        }
        Vec::new()
    }

    fn remember(&mut self, name: &str, seen: SeenEntry, now: Instant) {
        if self.entries.len() >= MAX_SEEN_ENTRIES && !self.entries.contains_key(name) {
            self.entries.retain(|_, seen| seen.is_in_force(now));
        }
        self.entries.insert(name.into(), seen);
    }

    /// Nodes that left are remembered, so that nobody can bring them back; but not without bound.
    fn forget_nodes(&mut self, listed: &HashSet<NodeId>) {
        if self.nodes.len() > MAX_SEEN_NODES {
            self.nodes.retain(|node, _| listed.contains(node));
        }
    }
}

impl SeenEntry {
    fn is_in_force(&self, now: Instant) -> bool {
        !self.is_tombstone && self.ends.is_none_or(|ends| now + EXPIRY_TOLERANCE < ends)
    }
}

impl Register for SignedRegister {
    fn heartbeat<'a>(&'a self, beat: &'a Heartbeat, life: Nanos) -> RegisterFuture<'a, MemberList> {
        Box::pin(async move {
            let signed = self.signed_heartbeat(beat);
            let members = self.inner.heartbeat(&signed, life).await?;
            Ok(self.verify_members(members, beat, life))
        })
    }

    fn leave(&self, node: NodeId) -> RegisterFuture<'_, ()> {
        self.inner.leave(node)
    }

    fn entries(&self, since: Option<RegisterCursor>) -> RegisterFuture<'_, RegisterSnapshot> {
        Box::pin(async move {
            let snapshot = self.inner.entries(since).await?;
            self.state().record_cursor(snapshot.cursor);
            let (snapshot, to_sign) = self.verify_entries(snapshot);
            if let Err(error) = self.sign_again(&to_sign).await {
                tracing::warn!(%error, "unsigned entries of the fleet register not signed");
            }
            Ok(snapshot)
        })
    }

    fn put<'a>(
        &'a self,
        from: NodeId,
        number: u64,
        changes: &'a [RegisterPut],
    ) -> RegisterFuture<'a, RegisterCursor> {
        Box::pin(async move {
            let signed = self.sign_puts(changes)?;
            let cursor = self.inner.put(from, number, &signed).await?;
            self.state().record_cursor(cursor);
            Ok(cursor)
        })
    }
}

/// The put that replaces an unsigned entry by the same entry with a signature. Tombstones expire soon enough.
fn put_again(entry: &RegisterEntry) -> Option<RegisterPut> {
    let is_in_force = !entry.is_tombstone && entry.expires_in != Some(Nanos::ZERO);
    is_in_force.then(|| RegisterPut {
        name: entry.name.clone(),
        body: entry.body.clone(),
        mode: PutMode::Replace(entry.version),
        expires_in: entry.expires_in,
    })
}

const fn duration(span: Nanos) -> Duration {
    Duration::from_nanos(span.as_nanos())
}

fn nanos(span: Duration) -> Nanos {
    Nanos::from_nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

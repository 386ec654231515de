//! Assigns a limit id to each state in the store: two bytes, stable for the state's lifetime.
//!
//! A policy file can request an id. Other ids are a hash of the identity that every process and version computes alike.
//! If two collide, the later identity in alphabetical order takes the next free id. An identity keeps its id over
//! reloads. Another algorithm is another state with another id.
//!
//! The id of a removed limit stays reserved while its states may live, so that rolling back a bad policy resets no usage.
//! Then the store drops the states, and the id is never used again. Must not know: keys, sizes of quotas, rules.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tollgate_core::limit::{AlgorithmKind, Limit};
use tollgate_core::{Nanos, Timestamp};
use tollgate_store::LimitId;

/// A state that needs an id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdRequest<'a> {
    /// The identity of its limit.
    pub(crate) identity: &'a str,
    /// The id that the policy file requests.
    pub(crate) requested: Option<u16>,
    /// Its algorithm.
    pub(crate) kind: AlgorithmKind,
    /// How long a state matters after its last charge.
    pub(crate) lifetime: Nanos,
}

/// How long a state of this limit matters after its last charge.
pub(crate) fn state_lifetime(limit: &Limit) -> Nanos {
    limit.state_lifetime()
}

/// All limit ids are used up: limits were renamed or changed their algorithm too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitIdsExhausted;

impl fmt::Display for LimitIdsExhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "all 65535 limit ids are used up since the process started; restart it to continue",
        )
    }
}

impl std::error::Error for LimitIdsExhausted {}

/// Which rules a state belongs to, by its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdOwner {
    /// The limits of the policy.
    Policy,
    /// Limits of Envoy's files, whose identities start with [`ENVOY_PREFIX`].
    Envoy,
}

/// No identity of the policy starts with this: names have no colon, and ids start with `id:`.
pub(crate) const ENVOY_PREFIX: &str = "envoy:";

impl IdOwner {
    fn from_identity(identity: &str) -> Self {
        if identity.starts_with(ENVOY_PREFIX) {
            Self::Envoy
        } else {
            Self::Policy
        }
    }
}

/// The limit ids of one store. Engines that share a store must share this too, or they would mix up their limits.
#[derive(Clone, Debug, Default)]
pub struct LimitIdAllocator {
    table: Arc<Mutex<LimitIdTable>>,
}

/// One limit id with the state that it stands for, as it is saved for a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedLimitId {
    identity: Box<str>,
    algorithm: Box<str>,
    id: NonZeroU16,
    /// How long a state matters after its last charge, in nanoseconds.
    lifetime: u64,
    /// For a removed limit: when its last state expires, in nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<u64>,
}

impl LimitIdAllocator {
    /// All assigned ids, to save them beside the states that they stand for.
    #[must_use]
    pub fn save(&self) -> Vec<SavedLimitId> {
        let table = self.lock();
        let mut saved: Vec<SavedLimitId> = Vec::new();
        for (identity, ids) in &table.assigned {
            saved.extend(ids.iter().map(|assigned| SavedLimitId {
                identity: identity.clone(),
                algorithm: algorithm_name(assigned.kind).into(),
                id: assigned.id.0,
                lifetime: assigned.lifetime.as_nanos(),
                expires_at: assigned.expires_at.map(Timestamp::as_nanos),
            }));
        }
        saved.sort_by_key(|one| one.id);
        saved
    }

    /// The allocator with saved ids; `None` if one id stands for two states or an algorithm is unknown.
    #[must_use]
    pub fn restore(saved: Vec<SavedLimitId>) -> Option<Self> {
        let mut table = LimitIdTable::default();
        for one in saved {
            if !table.taken.insert(one.id) {
                return None;
            }
            let kind = ALGORITHM_NAMES
                .into_iter()
                .find(|(_, name)| *name == &*one.algorithm);
            let assigned = AssignedId {
                kind: kind?.0,
                id: LimitId(one.id),
                lifetime: Nanos::from_nanos(one.lifetime),
                expires_at: one.expires_at.map(Timestamp::from_nanos),
                was_retired: one.expires_at.is_some(),
            };
            let ids = table.assigned.entry(one.identity).or_default();
            if ids.iter().any(|other| other.kind == assigned.kind) {
                return None;
            }
            ids.push(assigned);
        }
        Some(Self {
            table: Arc::new(Mutex::new(table)),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, LimitIdTable> {
        // The table is replaced as a whole, so a poisoned lock leaves it consistent.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The names of algorithms in a saved state. They never change.
const ALGORITHM_NAMES: [(AlgorithmKind, &str); 7] = [
    (AlgorithmKind::TokenBucket, "token_bucket"),
    (AlgorithmKind::LeakyBucket, "leaky_bucket"),
    (AlgorithmKind::LeakyQueue, "leaky_queue"),
    (AlgorithmKind::FixedWindow, "fixed_window"),
    (AlgorithmKind::SlidingLog, "sliding_log"),
    (AlgorithmKind::SlidingCounter, "sliding_counter"),
    (AlgorithmKind::Concurrency, "concurrency"),
];

/// The name of an algorithm in a saved state. One without a name is unknown when it is restored.
fn algorithm_name(kind: AlgorithmKind) -> &'static str {
    let named = ALGORITHM_NAMES.into_iter().find(|(one, _)| *one == kind);
    named.map_or("unknown", |(_, name)| name)
}

/// The assigned ids.
#[derive(Clone, Debug, Default)]
pub(crate) struct LimitIdTable {
    assigned: HashMap<Box<str>, Vec<AssignedId>>,
    taken: HashSet<NonZeroU16>,
}

#[derive(Clone, Copy, Debug)]
struct AssignedId {
    kind: AlgorithmKind,
    id: LimitId,
    lifetime: Nanos,
    /// For a removed limit: when its last state expires.
    expires_at: Option<Timestamp>,
    /// Whether the limit was removed before the current rules.
    was_retired: bool,
}

/// The result of assigning ids.
#[derive(Debug)]
pub(crate) struct IdAssignment {
    /// One id for each request, in their order.
    pub(crate) ids: Vec<LimitId>,
    /// Ids whose states the store may drop.
    pub(crate) retired: Vec<LimitId>,
    /// The new table.
    pub(crate) table: LimitIdTable,
}

impl LimitIdTable {
    /// Assigns an id to each requested state. Nothing changes until `table` replaces this table.
    pub(crate) fn assign(
        &self,
        requests: &[IdRequest<'_>],
        now: Timestamp,
    ) -> Result<IdAssignment, LimitIdsExhausted> {
        self.assign_for(IdOwner::Policy, requests, now)
    }

    /// Assigns ids for one owner. The other owner's ids stay.
    pub(crate) fn assign_for(
        &self,
        owner: IdOwner,
        requests: &[IdRequest<'_>],
        now: Timestamp,
    ) -> Result<IdAssignment, LimitIdsExhausted> {
        let mut table = self.clone();
        let mut retired = table.retire(owner, now);
        // Existing ids stay. Then requested ids are assigned if they are free. All others follow in an order that does
        // not depend on the order in the file.
        let mut order: Vec<&IdRequest<'_>> = requests.iter().collect();
        order.sort_by_key(|request| (request.requested.is_none(), request.identity, request.kind));
        for request in order {
            retired.extend(table.assign_one(request)?);
        }
        let ids = requests
            .iter()
            .filter_map(|request| table.find(request))
            .collect();
        Ok(IdAssignment {
            ids,
            retired,
            table,
        })
    }

    /// Marks all ids of an owner as removed until they are requested again. Returns the ids whose states have expired.
    fn retire(&mut self, owner: IdOwner, now: Timestamp) -> Vec<LimitId> {
        let mut retired = Vec::new();
        self.assigned.retain(|identity, ids| {
            if IdOwner::from_identity(identity) != owner {
                return true;
            }
            ids.retain_mut(|assigned| match assigned.expires_at {
                Some(leaves) if leaves <= now => {
                    retired.push(assigned.id);
                    false
                }
                Some(_) => {
                    assigned.was_retired = true;
                    true
                }
                None => {
                    assigned.expires_at = Some(now.after(assigned.lifetime));
                    true
                }
            });
            !ids.is_empty()
        });
        retired
    }

    /// Assigns one id. Returns an id that is given up for it, if there is one.
    fn assign_one(
        &mut self,
        request: &IdRequest<'_>,
    ) -> Result<Option<LimitId>, LimitIdsExhausted> {
        let ids = self.assigned.get_mut(request.identity);
        let assigned = ids.and_then(|ids| {
            ids.iter_mut()
                .find(|assigned| assigned.kind == request.kind)
        });
        let mut released = None;
        if let Some(assigned) = assigned {
            // Counts in windows of one length cannot be read in another length, and a store only converts those of the
            // previous rules.
            let is_unreadable = assigned.was_retired
                && assigned.kind.is_tied_to_window_length()
                && assigned.lifetime != request.lifetime;
            if !is_unreadable {
                assigned.expires_at = None;
                assigned.was_retired = false;
                assigned.lifetime = if assigned.kind.is_tied_to_window_length() {
                    request.lifetime
                } else {
                    assigned.lifetime.max(request.lifetime)
                };
                return Ok(None);
            }
            released = Some(assigned.id);
            self.remove(request);
        }
        let requested = request.requested.and_then(NonZeroU16::new);
        let first = requested.unwrap_or_else(|| preferred_id(request.identity));
        let id = LimitId(self.next_free(first)?);
        self.taken.insert(id.0);
        self.assigned
            .entry(request.identity.into())
            .or_default()
            .push(AssignedId {
                kind: request.kind,
                id,
                lifetime: request.lifetime,
                expires_at: None,
                was_retired: false,
            });
        Ok(released)
    }

    fn remove(&mut self, request: &IdRequest<'_>) {
        if let Some(ids) = self.assigned.get_mut(request.identity) {
            ids.retain(|assigned| assigned.kind != request.kind);
        }
    }

    /// The first id from this one on that was never assigned.
    fn next_free(&self, first: NonZeroU16) -> Result<NonZeroU16, LimitIdsExhausted> {
        let mut number = first;
        for _ in 0..=u16::MAX {
            if !self.taken.contains(&number) {
                return Ok(number);
            }
            number = number.checked_add(1).unwrap_or(NonZeroU16::MIN);
        }
        Err(LimitIdsExhausted)
    }

    /// How long a state of this id matters after its last charge, if the id is assigned.
    pub(crate) fn lifetime_of(&self, id: LimitId) -> Option<Nanos> {
        let mut ids = self.assigned.values().flatten();
        ids.find(|assigned| assigned.id == id)
            .map(|assigned| assigned.lifetime)
    }

    fn find(&self, request: &IdRequest<'_>) -> Option<LimitId> {
        let ids = self.assigned.get(request.identity)?;
        let assigned = ids.iter().find(|assigned| assigned.kind == request.kind)?;
        Some(assigned.id)
    }
}

/// The preferred id of an identity: FNV-1a, folded to 1..=65,535. Every process of every version must compute the same
/// id, so this never changes.
fn preferred_id(identity: &str) -> NonZeroU16 {
    let hash = identity
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    let above_one = u16::try_from(hash % 65_535).unwrap_or(0);
    NonZeroU16::MIN.saturating_add(above_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn request(identity: &str) -> IdRequest<'_> {
        IdRequest {
            identity,
            requested: None,
            kind: AlgorithmKind::TokenBucket,
            lifetime: Nanos::MINUTE,
        }
    }

    fn id_numbers(assigned: &IdAssignment) -> Vec<u16> {
        assigned.ids.iter().map(|id| id.0.get()).collect()
    }

    #[test]
    fn an_id_depends_on_the_identity_and_not_on_the_order_of_the_file() {
        let (a, b) = (request("login"), request("search"));
        let one = id_numbers(&LimitIdTable::default().assign(&[a, b], NOW).unwrap());
        let other = id_numbers(&LimitIdTable::default().assign(&[b, a], NOW).unwrap());
        assert_eq!(one, [other[1], other[0]]);
        assert_ne!(one[0], one[1]);
    }

    #[test]
    fn identities_with_the_same_hash_get_ids_in_alphabetical_order() {
        let first = preferred_id("login");
        let twin = (0..200_000)
            .map(|n| format!("x{n}"))
            .find(|name| preferred_id(name) == first)
            .unwrap();
        let (a, b) = (request("login"), request(&twin));
        let one = id_numbers(&LimitIdTable::default().assign(&[a, b], NOW).unwrap());
        assert_eq!(one, [first.get(), first.get() + 1]);
        let other = id_numbers(&LimitIdTable::default().assign(&[b, a], NOW).unwrap());
        assert_eq!(other, [first.get() + 1, first.get()]);
    }

    #[test]
    fn requested_ids_are_assigned_before_hashed_ones() {
        let number = preferred_id("login").get();
        let explicit = IdRequest {
            requested: Some(number),
            ..request("zebra")
        };
        let assigned = LimitIdTable::default()
            .assign(&[request("login"), explicit], NOW)
            .unwrap();
        assert_eq!(id_numbers(&assigned), [number + 1, number]);
    }

    #[test]
    fn an_assigned_id_is_kept_even_if_a_new_limit_requests_it() {
        let before = LimitIdTable::default()
            .assign(&[request("login")], NOW)
            .unwrap();
        let number = id_numbers(&before)[0];
        let explicit = IdRequest {
            requested: Some(number),
            ..request("zebra")
        };
        let after = before
            .table
            .assign(&[explicit, request("login")], NOW)
            .unwrap();
        assert_eq!(id_numbers(&after), [number + 1, number]);
    }

    #[test]
    fn limits_that_share_a_bucket_share_its_id() {
        let assigned = LimitIdTable::default()
            .assign(&[request("@all"), request("@all")], NOW)
            .unwrap();
        assert_eq!(assigned.ids[0], assigned.ids[1]);
    }

    #[test]
    fn another_algorithm_has_another_id_and_changing_back_restores_the_old_one() {
        let bucket = request("login");
        let window = IdRequest {
            kind: AlgorithmKind::FixedWindow,
            ..bucket
        };
        let one = LimitIdTable::default().assign(&[bucket], NOW).unwrap();
        let two = one.table.assign(&[window], NOW).unwrap();
        let three = two.table.assign(&[bucket], NOW).unwrap();
        assert_ne!(id_numbers(&one), id_numbers(&two));
        assert_eq!(id_numbers(&one), id_numbers(&three));
    }

    #[test]
    fn a_removed_limit_that_returns_keeps_its_id_while_its_states_live_and_then_gets_a_new_one() {
        let one = LimitIdTable::default()
            .assign(&[request("login")], NOW)
            .unwrap();
        let none = one.table.assign(&[], NOW).unwrap();
        assert!(none.retired.is_empty());
        let soon = NOW.after(Nanos::from_secs(59));
        let back = none.table.assign(&[request("login")], soon).unwrap();
        assert_eq!(id_numbers(&back), id_numbers(&one));
        let late = NOW.after(Nanos::MINUTE);
        let retired = none.table.assign(&[request("login")], late).unwrap();
        assert_eq!(retired.retired, one.ids);
        assert_ne!(id_numbers(&retired), id_numbers(&one));
    }

    #[test]
    fn a_removed_window_that_returns_with_another_length_gets_a_new_id() {
        let window = |secs| IdRequest {
            kind: AlgorithmKind::SlidingCounter,
            lifetime: Nanos::from_secs(secs),
            ..request("login")
        };
        let one = LimitIdTable::default().assign(&[window(120)], NOW).unwrap();
        let changed = one.table.assign(&[window(240)], NOW).unwrap();
        assert_eq!(
            changed.ids, one.ids,
            "a store converts the counts of a changed window"
        );
        let none = one.table.assign(&[], NOW).unwrap();
        let back = none.table.assign(&[window(240)], NOW).unwrap();
        assert_ne!(back.ids, one.ids);
        assert_eq!(back.retired, one.ids);
        let same = none.table.assign(&[window(120)], NOW).unwrap();
        assert_eq!(same.ids, one.ids);
    }

    #[test]
    fn policy_and_envoy_neither_share_ids_nor_retire_each_others() {
        let one = LimitIdTable::default()
            .assign(&[request("login")], NOW)
            .unwrap();
        let twin = (0..200_000)
            .map(|n| format!("{ENVOY_PREFIX}{n}"))
            .find(|name| preferred_id(name) == preferred_id("login"))
            .unwrap();
        let both = one
            .table
            .assign_for(IdOwner::Envoy, &[request(&twin)], NOW)
            .unwrap();
        assert_ne!(both.ids, one.ids);
        let late = NOW.after(Nanos::HOUR);
        let again = both.table.assign_for(IdOwner::Envoy, &[], late).unwrap();
        let again = again.table.assign(&[request("login")], late).unwrap();
        assert_eq!((again.ids, again.retired), (one.ids, Vec::new()));
    }

    #[test]
    fn running_out_of_ids_is_an_error() {
        let full = LimitIdTable {
            taken: (1..=u16::MAX).filter_map(NonZeroU16::new).collect(),
            ..LimitIdTable::default()
        };
        let more = full.assign(&[request("one more")], NOW);
        assert_eq!(more.unwrap_err(), LimitIdsExhausted);
    }
}

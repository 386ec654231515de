//! Which number a limit's state has in the store: two bytes, the same for as long as the state may live.
//!
//! A file may ask for a number; all others follow from the identity by a hash that every process and version computes
//! alike, and where two meet, the later in the order of identities takes the next free one. An identity keeps its number
//! over reloads. Another algorithm is another state and so has another number. A limit that is gone keeps its number while
//! its state may live, so that taking a bad policy back forgives nobody; after that the store forgets the state, and the
//! number is never given out again. Must not know: keys, quotas' sizes, rules.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate_core::limit::Limit;
use tollgate_core::{Nanos, Timestamp};
use tollgate_store::LimitId;

pub(crate) use tollgate_core::limit::AlgorithmKind as Kind;

/// A state that wants a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdRequest<'a> {
    /// Whose state it is.
    pub(crate) identity: &'a str,
    /// The number that the file asks for.
    pub(crate) requested: Option<u16>,
    /// How it is counted.
    pub(crate) kind: Kind,
    /// How long a state may still matter after its last charge.
    pub(crate) lifetime: Nanos,
}

/// How long a state of this limit may matter after it was last charged.
pub(crate) fn state_lifetime(limit: &Limit) -> Nanos {
    limit.state_lifetime()
}

/// Every number there is has been given out: limits were renamed or changed their algorithm that often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitIdsExhausted;

impl fmt::Display for LimitIdsExhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("all 65535 numbers of limits have been given out since this process began; restart it to go on")
    }
}

impl std::error::Error for LimitIdsExhausted {}

/// Whose states they are, told by the identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdOwner {
    /// A policy's own limits.
    Policy,
    /// Limits of Envoy's files, whose identities begin with [`ENVOY`].
    Envoy,
}

/// What no limit's own identity begins with: names have no colon, and ids begin with `id:`.
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

/// The numbers of one store. Engines that share a store must share this too, or their limits would be taken for each
/// other's.
#[derive(Clone, Debug, Default)]
pub struct LimitIdAllocator {
    table: Arc<Mutex<LimitIdTable>>,
}

impl LimitIdAllocator {
    pub(crate) fn lock(&self) -> MutexGuard<'_, LimitIdTable> {
        // Numbers are replaced as a whole, so a thread that died left nothing half done.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who has which number.
#[derive(Clone, Debug, Default)]
pub(crate) struct LimitIdTable {
    assigned: HashMap<Box<str>, Vec<AssignedId>>,
    taken: HashSet<NonZeroU16>,
}

#[derive(Clone, Copy, Debug)]
struct AssignedId {
    kind: Kind,
    id: LimitId,
    lifetime: Nanos,
    /// For a limit that is gone: when the last of its states will have been, too.
    expires_at: Option<Timestamp>,
    /// Whether it was gone already before the rules that are being numbered.
    was_retired: bool,
}

/// What came of a request for numbers.
#[derive(Debug)]
pub(crate) struct IdAssignment {
    /// One for each that was wanted, in that order.
    pub(crate) ids: Vec<LimitId>,
    /// Numbers whose states the store may forget.
    pub(crate) retired: Vec<LimitId>,
    /// Who has which number from now on.
    pub(crate) table: LimitIdTable,
}

impl LimitIdTable {
    /// Gives each wanted state its number. Nothing changes until the answer's `numbers` take the place of these.
    pub(crate) fn assign(
        &self,
        wanted: &[IdRequest<'_>],
        now: Timestamp,
    ) -> Result<IdAssignment, LimitIdsExhausted> {
        self.assign_for(IdOwner::Policy, wanted, now)
    }

    /// The same for one of those who share a store. What others have stays theirs.
    pub(crate) fn assign_for(
        &self,
        party: IdOwner,
        wanted: &[IdRequest<'_>],
        now: Timestamp,
    ) -> Result<IdAssignment, LimitIdsExhausted> {
        let mut numbers = self.clone();
        let mut gone = numbers.retire(party, now);
        // Who is there stays; then who asks for a number gets it if it is free; then all others in one order that does
        // not depend on the order of the file.
        let mut order: Vec<&IdRequest<'_>> = wanted.iter().collect();
        order.sort_by_key(|one| (one.requested.is_none(), one.identity, one.kind));
        for one in order {
            gone.extend(numbers.assign_one(one)?);
        }
        let ids = wanted.iter().filter_map(|one| numbers.find(one)).collect();
        Ok(IdAssignment {
            ids,
            retired: gone,
            table: numbers,
        })
    }

    /// Everyone of a party is on their way out until they are wanted again. Whoever's time has come is gone for good.
    fn retire(&mut self, party: IdOwner, now: Timestamp) -> Vec<LimitId> {
        let mut gone = Vec::new();
        self.assigned.retain(|identity, kinds| {
            if IdOwner::from_identity(identity) != party {
                return true;
            }
            kinds.retain_mut(|given| match given.expires_at {
                Some(leaves) if leaves <= now => {
                    gone.push(given.id);
                    false
                }
                Some(_) => {
                    given.was_retired = true;
                    true
                }
                None => {
                    given.expires_at = Some(now.after(given.lifetime));
                    true
                }
            });
            !kinds.is_empty()
        });
        gone
    }

    /// Answers the number that is given up for it, if there is one.
    fn assign_one(&mut self, wanted: &IdRequest<'_>) -> Result<Option<LimitId>, LimitIdsExhausted> {
        let kinds = self.assigned.get_mut(wanted.identity);
        let known = kinds.and_then(|kinds| kinds.iter_mut().find(|one| one.kind == wanted.kind));
        let mut given_up = None;
        if let Some(known) = known {
            // Counts in windows of one length cannot be read in another, and a store carries them over only from the rules
            // before.
            let is_unreadable = known.was_retired
                && known.kind.is_tied_to_window_length()
                && known.lifetime != wanted.lifetime;
            if !is_unreadable {
                known.expires_at = None;
                known.was_retired = false;
                known.lifetime = if known.kind.is_tied_to_window_length() {
                    wanted.lifetime
                } else {
                    known.lifetime.max(wanted.lifetime)
                };
                return Ok(None);
            }
            given_up = Some(known.id);
            self.remove(wanted);
        }
        let asked = wanted.requested.and_then(NonZeroU16::new);
        let first = asked.unwrap_or_else(|| preferred_id(wanted.identity));
        let id = LimitId(self.next_free(first)?);
        self.taken.insert(id.0);
        self.assigned
            .entry(wanted.identity.into())
            .or_default()
            .push(AssignedId {
                kind: wanted.kind,
                id,
                lifetime: wanted.lifetime,
                expires_at: None,
                was_retired: false,
            });
        Ok(given_up)
    }

    fn remove(&mut self, wanted: &IdRequest<'_>) {
        if let Some(kinds) = self.assigned.get_mut(wanted.identity) {
            kinds.retain(|one| one.kind != wanted.kind);
        }
    }

    /// The first number from this one on that nobody has or ever had.
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

    fn find(&self, wanted: &IdRequest<'_>) -> Option<LimitId> {
        let kinds = self.assigned.get(wanted.identity)?;
        let found = kinds.iter().find(|one| one.kind == wanted.kind)?;
        Some(found.id)
    }
}

/// The number that follows from an identity: FNV-1a, folded to 1..=65,535. Every process of every version must find the
/// same, so this never changes.
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

    fn wanted(identity: &str) -> IdRequest<'_> {
        IdRequest {
            identity,
            requested: None,
            kind: Kind::TokenBucket,
            lifetime: Nanos::MINUTE,
        }
    }

    fn numbers(assigned: &IdAssignment) -> Vec<u16> {
        assigned.ids.iter().map(|id| id.0.get()).collect()
    }

    #[test]
    fn a_number_follows_from_the_identity_and_not_from_the_order_of_the_file() {
        let (a, b) = (wanted("login"), wanted("search"));
        let one = numbers(&LimitIdTable::default().assign(&[a, b], NOW).unwrap());
        let other = numbers(&LimitIdTable::default().assign(&[b, a], NOW).unwrap());
        assert_eq!(one, [other[1], other[0]]);
        assert_ne!(one[0], one[1]);
    }

    #[test]
    fn identities_that_hash_alike_get_numbers_by_their_own_order() {
        let first = preferred_id("login");
        let twin = (0..200_000)
            .map(|n| format!("x{n}"))
            .find(|name| preferred_id(name) == first)
            .unwrap();
        let (a, b) = (wanted("login"), wanted(&twin));
        let one = numbers(&LimitIdTable::default().assign(&[a, b], NOW).unwrap());
        assert_eq!(one, [first.get(), first.get() + 1]);
        let other = numbers(&LimitIdTable::default().assign(&[b, a], NOW).unwrap());
        assert_eq!(other, [first.get() + 1, first.get()]);
    }

    #[test]
    fn what_the_file_asks_for_goes_before_what_follows_from_names() {
        let number = preferred_id("login").get();
        let asks = IdRequest {
            requested: Some(number),
            ..wanted("zebra")
        };
        let assigned = LimitIdTable::default()
            .assign(&[wanted("login"), asks], NOW)
            .unwrap();
        assert_eq!(numbers(&assigned), [number + 1, number]);
    }

    #[test]
    fn who_has_a_number_keeps_it_whatever_newcomers_ask_for() {
        let before = LimitIdTable::default()
            .assign(&[wanted("login")], NOW)
            .unwrap();
        let number = numbers(&before)[0];
        let asks = IdRequest {
            requested: Some(number),
            ..wanted("zebra")
        };
        let after = before.table.assign(&[asks, wanted("login")], NOW).unwrap();
        assert_eq!(numbers(&after), [number + 1, number]);
    }

    #[test]
    fn limits_that_share_a_bucket_share_its_number() {
        let assigned = LimitIdTable::default()
            .assign(&[wanted("@all"), wanted("@all")], NOW)
            .unwrap();
        assert_eq!(assigned.ids[0], assigned.ids[1]);
    }

    #[test]
    fn another_algorithm_has_another_number_and_the_old_one_is_there_on_the_way_back() {
        let bucket = wanted("login");
        let window = IdRequest {
            kind: Kind::FixedWindow,
            ..bucket
        };
        let one = LimitIdTable::default().assign(&[bucket], NOW).unwrap();
        let two = one.table.assign(&[window], NOW).unwrap();
        let three = two.table.assign(&[bucket], NOW).unwrap();
        assert_ne!(numbers(&one), numbers(&two));
        assert_eq!(numbers(&one), numbers(&three));
    }

    #[test]
    fn a_limit_that_returns_while_its_state_lives_has_its_number_and_later_a_new_one() {
        let one = LimitIdTable::default()
            .assign(&[wanted("login")], NOW)
            .unwrap();
        let none = one.table.assign(&[], NOW).unwrap();
        assert!(none.retired.is_empty());
        let soon = NOW.after(Nanos::from_secs(59));
        let back = none.table.assign(&[wanted("login")], soon).unwrap();
        assert_eq!(numbers(&back), numbers(&one));
        let late = NOW.after(Nanos::MINUTE);
        let gone = none.table.assign(&[wanted("login")], late).unwrap();
        assert_eq!(gone.retired, one.ids);
        assert_ne!(numbers(&gone), numbers(&one));
    }

    #[test]
    fn a_window_that_returns_with_another_length_has_a_new_number() {
        let window = |secs| IdRequest {
            kind: Kind::SlidingCounter,
            lifetime: Nanos::from_secs(secs),
            ..wanted("login")
        };
        let one = LimitIdTable::default().assign(&[window(120)], NOW).unwrap();
        let changed = one.table.assign(&[window(240)], NOW).unwrap();
        assert_eq!(
            changed.ids, one.ids,
            "a store carries over what is changed in place"
        );
        let none = one.table.assign(&[], NOW).unwrap();
        let back = none.table.assign(&[window(240)], NOW).unwrap();
        assert_ne!(back.ids, one.ids);
        assert_eq!(back.retired, one.ids);
        let same = none.table.assign(&[window(120)], NOW).unwrap();
        assert_eq!(same.ids, one.ids);
    }

    #[test]
    fn those_who_share_a_store_neither_get_each_others_numbers_nor_retire_them() {
        let one = LimitIdTable::default()
            .assign(&[wanted("login")], NOW)
            .unwrap();
        let twin = (0..200_000)
            .map(|n| format!("{ENVOY_PREFIX}{n}"))
            .find(|name| preferred_id(name) == preferred_id("login"))
            .unwrap();
        let both = one
            .table
            .assign_for(IdOwner::Envoy, &[wanted(&twin)], NOW)
            .unwrap();
        assert_ne!(both.ids, one.ids);
        let late = NOW.after(Nanos::HOUR);
        let again = both.table.assign_for(IdOwner::Envoy, &[], late).unwrap();
        let again = again.table.assign(&[wanted("login")], late).unwrap();
        assert_eq!((again.ids, again.retired), (one.ids, Vec::new()));
    }

    #[test]
    fn when_all_numbers_are_gone_the_answer_says_so() {
        let full = LimitIdTable {
            taken: (1..=u16::MAX).filter_map(NonZeroU16::new).collect(),
            ..LimitIdTable::default()
        };
        let more = full.assign(&[wanted("one more")], NOW);
        assert_eq!(more.unwrap_err(), LimitIdsExhausted);
    }
}

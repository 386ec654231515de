//! Limit ids in Redis: derived from names or set explicitly, and which limit of a connection has which id.
//!
//! Must not know: quotas, keys, connections.

use std::collections::HashMap;
use std::num::NonZeroU16;

use tollgate_core::limit::Limit;
use tollgate_store::LimitId;

use crate::invalid::InvalidLimiter;
use crate::limit_name::LimitName;

/// The id of a name: FNV-1a, folded to 1..=65,535. Every process of every version must compute the same id, so this function
/// must never change.
pub(super) fn limit_id_from_name(name: &str) -> LimitId {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let above_one = u16::try_from(hash % 65_535).unwrap_or(0);
    LimitId(NonZeroU16::MIN.saturating_add(above_one))
}

/// The ids that were set explicitly, by name. All other limits have the ids of their names.
#[derive(Debug)]
pub(super) struct LimitIdOverrides(pub(super) Vec<(LimitName, u16)>);

impl LimitIdOverrides {
    pub(super) fn limit_id(&self, name: &LimitName) -> Result<LimitId, InvalidLimiter> {
        match self.0.iter().rev().find(|(chosen, _)| chosen == name) {
            Some((_, id)) => checked_limit_id(name, *id),
            None => Ok(limit_id_from_name(name.as_str())),
        }
    }

    /// Every limit with its id.
    pub(super) fn with_limit_ids(
        &self,
        limits: &[(LimitName, Limit)],
    ) -> Result<Vec<(LimitName, LimitId)>, InvalidLimiter> {
        let numbered = limits
            .iter()
            .map(|(name, _)| Ok((name.clone(), self.limit_id(name)?)));
        numbered.collect()
    }
}

/// Validates an id that was set explicitly.
pub(super) fn checked_limit_id(name: &LimitName, id: u16) -> Result<LimitId, InvalidLimiter> {
    NonZeroU16::new(id)
        .map(LimitId)
        .ok_or_else(|| InvalidLimiter::Id {
            name: name.clone(),
            id,
            problem: "it must be at least 1",
        })
}

/// The ids in use over one connection.
#[derive(Debug, Default)]
pub(super) struct LimitIdRegistry {
    by_id: HashMap<LimitId, LimitIdOwner>,
}

#[derive(Debug)]
struct LimitIdOwner {
    name: LimitName,
    is_active: bool,
}

impl LimitIdRegistry {
    /// Claims all of these ids or none.
    pub(super) fn claim(&mut self, wanted: &[(LimitName, LimitId)]) -> Result<(), InvalidLimiter> {
        for (index, (name, id)) in wanted.iter().enumerate() {
            let among = wanted.iter().take(index).find(|(_, other)| other == id);
            // A limit may take over the id, and so the state, of a dropped limit with the same name. A limit with another name
            // would read state that is not its own.
            let before = self.by_id.get(id);
            let before = before.filter(|owner| owner.is_active || owner.name != *name);
            let owner = among.map(|(other, _)| other);
            if let Some(other) = owner.or(before.map(|owner| &owner.name)) {
                return Err(InvalidLimiter::SameId {
                    name: name.clone(),
                    other: other.clone(),
                    id: id.0.get(),
                });
            }
        }
        self.by_id.extend(wanted.iter().map(|(name, id)| {
            let name = name.clone();
            let is_there = true;
            (
                *id,
                LimitIdOwner {
                    name,
                    is_active: is_there,
                },
            )
        }));
        Ok(())
    }

    /// Claims all of `wanted` instead of `held`, or changes nothing.
    pub(super) fn replace(
        &mut self,
        held: &[LimitId],
        wanted: &[(LimitName, LimitId)],
    ) -> Result<(), InvalidLimiter> {
        self.release(held);
        let claimed = self.claim(wanted);
        if claimed.is_err() {
            self.set_active(held, true);
        }
        claimed
    }

    pub(super) fn release(&mut self, held: &[LimitId]) {
        self.set_active(held, false);
    }

    fn set_active(&mut self, ids: &[LimitId], is_there: bool) {
        for id in ids {
            if let Some(owner) = self.by_id.get_mut(id) {
                owner.is_active = is_there;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_names_never_change() {
        let known = [
            ("", 4128),
            ("rate", 46791),
            ("per-user", 49056),
            ("concurrency", 51176),
        ];
        let found = known.map(|(name, _)| (name, limit_id_from_name(name).0.get()));
        assert_eq!(found, known);
    }

    #[test]
    fn an_id_has_one_limit_at_a_time_and_one_name_forever() {
        let id = |n| checked_limit_id(&LimitName::literal("x"), n).unwrap();
        let limit = |name, n| (LimitName::literal(name), id(n));
        let mut numbers = LimitIdRegistry::default();
        assert!(
            numbers.claim(&[limit("a", 1), limit("b", 1)]).is_err(),
            "the same id twice in one claim"
        );
        numbers.claim(&[limit("a", 1), limit("b", 2)]).unwrap();
        let refused = numbers.claim(&[limit("c", 3), limit("a", 1)]);
        assert_eq!(
            refused.unwrap_err().to_string(),
            "limit \"a\": id: 1 is not valid: limit \"a\" over this connection has the same id, and they would share \
             state: choose another name or id"
        );
        numbers
            .claim(&[limit("c", 3)])
            .expect("a refused claim takes nothing");
        let collision = numbers.replace(&[id(1)], &[limit("a", 1), limit("z", 1)]);
        assert!(collision.is_err(), "the same id twice in one limiter");
        assert!(numbers.claim(&[limit("a", 1)]).is_err(), "still held");
        numbers.replace(&[id(2)], &[limit("e", 5)]).unwrap();
        numbers.claim(&[limit("b", 2)]).unwrap();
        numbers.release(&[id(1)]);
        assert!(
            numbers.claim(&[limit("d", 1)]).is_err(),
            "the state of \"a\" may still exist"
        );
        numbers.claim(&[limit("a", 1)]).unwrap();
        assert!(checked_limit_id(&LimitName::literal("x"), 0).is_err());
    }
}

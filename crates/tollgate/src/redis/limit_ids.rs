//! A limit's number in the server: from its name, unless somebody chose one; and who has which.
//!
//! Must not know: quotas, keys, connections.

use std::collections::HashMap;
use std::num::NonZeroU16;

use tollgate_core::limit::Limit;
use tollgate_store::LimitId;

use crate::invalid::InvalidLimiter;
use crate::limit_name::LimitName;

/// The number that follows from a name: FNV-1a, folded to 1..=65,535. Every process of every version must find the same,
/// so this never changes.
pub(super) fn limit_id_from_name(name: &str) -> LimitId {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let above_one = u16::try_from(hash % 65_535).unwrap_or(0);
    LimitId(NonZeroU16::MIN.saturating_add(above_one))
}

/// The numbers that somebody chose, by name. All other limits have those of their names.
#[derive(Debug)]
pub(super) struct LimitIdOverrides(pub(super) Vec<(LimitName, u16)>);

impl LimitIdOverrides {
    pub(super) fn limit_id(&self, name: &LimitName) -> Result<LimitId, InvalidLimiter> {
        match self.0.iter().rev().find(|(chosen, _)| chosen == name) {
            Some((_, id)) => checked_limit_id(name, *id),
            None => Ok(limit_id_from_name(name.as_str())),
        }
    }

    /// Every limit with its number.
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

/// A number that somebody chose.
pub(super) fn checked_limit_id(name: &LimitName, id: u16) -> Result<LimitId, InvalidLimiter> {
    NonZeroU16::new(id)
        .map(LimitId)
        .ok_or_else(|| InvalidLimiter::Id {
            name: name.clone(),
            id,
            problem: "the least is 1",
        })
}

/// Which numbers are in use over one connection.
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
    /// Takes all of these numbers or none.
    pub(super) fn claim(&mut self, wanted: &[(LimitName, LimitId)]) -> Result<(), InvalidLimiter> {
        for (index, (name, id)) in wanted.iter().enumerate() {
            let among = wanted.iter().take(index).find(|(_, other)| other == id);
            // A limit of the same name may follow one that is gone, and goes on with its state; one of another name would
            // read a state that is not its own.
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

    /// Takes all of `wanted` instead of `held`, or changes nothing.
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
    fn numbers_of_names_never_change() {
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
    fn a_number_has_one_limit_at_a_time_and_one_name_for_ever() {
        let id = |n| checked_limit_id(&LimitName::literal("x"), n).unwrap();
        let limit = |name, n| (LimitName::literal(name), id(n));
        let mut numbers = LimitIdRegistry::default();
        assert!(
            numbers.claim(&[limit("a", 1), limit("b", 1)]).is_err(),
            "twice in one limiter"
        );
        numbers.claim(&[limit("a", 1), limit("b", 2)]).unwrap();
        let refused = numbers.claim(&[limit("c", 3), limit("a", 1)]);
        assert_eq!(
            refused.unwrap_err().to_string(),
            "limit \"a\": id: 1 is not valid: limit \"a\" has it over this connection, and they would share state: \
             choose another name or id"
        );
        numbers
            .claim(&[limit("c", 3)])
            .expect("a refused claim takes nothing");
        let met = numbers.replace(&[id(1)], &[limit("a", 1), limit("z", 1)]);
        assert!(met.is_err(), "with one of its own");
        assert!(numbers.claim(&[limit("a", 1)]).is_err(), "still held");
        numbers.replace(&[id(2)], &[limit("e", 5)]).unwrap();
        numbers.claim(&[limit("b", 2)]).unwrap();
        numbers.release(&[id(1)]);
        assert!(
            numbers.claim(&[limit("d", 1)]).is_err(),
            "the state of \"a\" is still there"
        );
        numbers.claim(&[limit("a", 1)]).unwrap();
        assert!(checked_limit_id(&LimitName::literal("x"), 0).is_err());
    }
}

//! The slots that one lock guards, and who must leave when they are all in use.
//!
//! Must not know: quotas, locks, clocks.

use tollgate_core::Timestamp;
use tollgate_core::token_bucket::Tat;

use crate::fingerprint::Fingerprint;

pub(crate) const SLOTS_PER_GROUP: usize = 8;

/// The only slots that their keys may be in.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) slots: [Slot; SLOTS_PER_GROUP],
}

/// One key's bucket. An instant that has passed, zero among them, is a free slot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slot {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) tat: Tat,
}

impl Group {
    /// The key's state, or that of a bucket nobody has used.
    pub(crate) fn tat(&self, fingerprint: Fingerprint) -> Tat {
        let mut slots = self.slots.iter();
        let own = slots.find(|slot| slot.fingerprint == fingerprint);
        own.map_or(0, |slot| slot.tat)
    }

    /// Stores a key's state: in its own slot, else where nothing is lost, else where the least is. Says whether
    /// another key was forgiven a debt.
    ///
    /// Taking the smallest debt protects those who are being limited: a flood of fresh keys, each owing little,
    /// displaces itself. The newcomer is always stored, because a key that is not stored is not limited.
    pub(crate) fn put(&mut self, newcomer: Slot, now: Timestamp) -> bool {
        let own = |slot: &&mut Slot| slot.fingerprint == newcomer.fingerprint;
        if let Some(slot) = self.slots.iter_mut().find(own) {
            *slot = newcomer;
            return false;
        }
        let Some(victim) = self.slots.iter_mut().min_by_key(|slot| slot.tat) else {
            return false;
        };
        let in_use = victim.tat > now.as_nanos();
        *victim = newcomer;
        in_use
    }
}

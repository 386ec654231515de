//! Concurrency limits. There may be many leases, so the reply holds only the values that a decision depends on. Core
//! decides on an equivalent short list. See `lua/leases.lua`.
//!
//! Must not know: other algorithms.

use tollgate_core::Concurrency;
use tollgate_core::concurrency::{Lease, LeaseId, LeaseSet};
use tollgate_core::limit::{Op, State};

use super::ScriptedAlgorithm;
use crate::script::ScriptKind;
use crate::wire::bytes::Blob;
use crate::wire::code;
use crate::wire::observed_state::{ObservedState, ReplyReader};

impl ScriptedAlgorithm for Concurrency {
    const SCRIPT: ScriptKind = ScriptKind::Leases;

    fn encode(&self, op: Op) -> Option<Blob> {
        let (operation, id, weight) = match op {
            Op::Acquire { weight: 0, .. } => (code::LOOK, 0, 0),
            // Also if the weight exceeds the limit: the lease may be held since before the limit was lowered.
            Op::Acquire { id, weight } => (code::ACQUIRE, id.0, weight),
            Op::Renew(id) => (code::RENEW, id.0, 0),
            Op::Release(id) => (code::RELEASE, id.0, 0),
            _ => return None,
        };
        let blob = Blob::new(5, operation)
            .count(self.limit())
            .pair(self.lease_duration().as_nanos())
            .count(weight)
            .id(id);
        Some(blob)
    }

    fn observe(&self, reader: &mut ReplyReader<'_>, id: LeaseId) -> Option<ObservedState> {
        let (found, used) = (reader.int()?, reader.count()?);
        let (held, leaves, gone) = (reader.pair()?, reader.pair()?, reader.count()?);
        reader.int()?;
        let (last, used_after) = (reader.pair()?, reader.count()?);
        let last_after = reader.pair()?;
        reader.int()?;
        let rest = used.checked_sub(gone)?;
        // The ids of the other leases do not matter, as long as no operation looks for them.
        let other = LeaseId(!id.0);
        let leases = |leases: [(LeaseId, u64, u64); 2]| {
            let leases = leases.into_iter().filter(|(_, weight, _)| *weight > 0);
            State::Leases(LeaseSet::from_iter(leases.map(|(id, weight, expires)| {
                Lease {
                    id,
                    weight,
                    expires,
                }
            })))
        };
        let nothing = (other, 0, 0);
        let is_held = found == 1;
        let before = if is_held {
            leases([(id, used, held), nothing])
        } else {
            leases([(other, gone, leaves), (other, rest, last)])
        };
        Some(ObservedState {
            before,
            unchanged: Some(leases([(other, used, last), nothing])),
            changed: Some(leases([(other, used_after, last_after), nothing])),
            is_held,
        })
    }
}

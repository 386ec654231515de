//! Counters of rules that are not the engine's own, in the same store: numbered beside the policy's limits and replaced as
//! they are.
//!
//! Must not know: what such rules say, how they decide.

use std::collections::HashMap;

use tollgate_core::Nanos;
use tollgate_core::limit::Limit;
use tollgate_store::{IdentifiedLimit, LimitId, WhenFull};

use crate::limit_ids::{
    ENVOY_PREFIX, IdAssignment, IdOwner, IdRequest, Kind, LimitIdAllocator, LimitIdsExhausted,
    state_lifetime,
};
use crate::store::StateStore;

/// The counters of guest rules: fixed windows, by identity.
#[derive(Clone, Copy, Debug)]
pub struct ExternalCounters<'a> {
    /// The identity of every counter.
    pub identities: &'a [&'a str],
    /// The limits that are known, each with the index of its identity. A counter may have several limits, or none if its
    /// limits come with requests.
    pub limits: &'a [(usize, Limit)],
}

impl LimitIdAllocator {
    /// Puts the counters of other rules in force. Counters of the same identity keep their numbers and counts. `swap` gets
    /// the number of every identity, in their order, and lets requests see the new rules; after it the store forgets
    /// counters that are gone. `before` are the limits in force until now.
    ///
    /// # Errors
    /// There are no numbers left for new counters. Then nothing changes.
    pub fn replace_external<S: StateStore, T>(
        &self,
        store: &S,
        before: &[IdentifiedLimit],
        counters: ExternalCounters<'_>,
        swap: impl FnOnce(Box<[LimitId]>) -> T,
    ) -> Result<T, LimitIdsExhausted> {
        let names: Vec<String> = counters
            .identities
            .iter()
            .map(|identity| format!("{ENVOY_PREFIX}{identity}"))
            .collect();
        let mut given = self.lock();
        let assigned =
            given.assign_for(IdOwner::Envoy, &id_requests(&names, counters), store.now())?;
        let IdAssignment {
            ids,
            retired: gone,
            table: numbers,
        } = assigned;
        let old: HashMap<LimitId, &IdentifiedLimit> =
            before.iter().map(|ruled| (ruled.id, ruled)).collect();
        for (index, limit) in counters.limits {
            let Some(id) = ids.get(*index).copied() else {
                continue;
            };
            let new = IdentifiedLimit { id, limit: *limit };
            if let Some(old) = old.get(&id).filter(|old| ***old != new) {
                store.replace(old, &new);
            }
            store.learn(&new);
            // Values of descriptors come with requests, so clients choose them.
            store.set_when_full(id, WhenFull::Forget);
        }
        let swapped = swap(ids.into());
        for id in gone {
            store.forget(id);
        }
        *given = numbers;
        Ok(swapped)
    }
}

fn id_requests<'a>(names: &'a [String], counters: ExternalCounters<'_>) -> Vec<IdRequest<'a>> {
    let lifetimes: HashMap<usize, Nanos> = counters
        .limits
        .iter()
        .map(|(index, limit)| (*index, state_lifetime(limit)))
        .collect();
    let one = |(index, identity): (usize, &'a String)| IdRequest {
        identity,
        requested: None,
        kind: Kind::FixedWindow,
        // Limits that come with requests may have any unit.
        lifetime: lifetimes.get(&index).copied().unwrap_or(Nanos::YEAR),
    };
    names.iter().enumerate().map(one).collect()
}

//! Counters of rules outside the policy (Envoy's files) in the engine's store. They get limit ids beside the policy's
//! limits, and are replaced the same way.
//!
//! Must not know: what such rules contain, how they decide.

use std::collections::HashMap;

use tollgate_core::Nanos;
use tollgate_core::limit::{AlgorithmKind, Limit};
use tollgate_store::{IdentifiedLimit, LimitId};

use crate::limit_ids::{
    ENVOY_PREFIX, IdAssignment, IdOwner, IdRequest, LimitIdAllocator, LimitIdsExhausted,
    state_lifetime,
};
use crate::store::StateStore;

/// The counters of external rules: fixed windows, by identity.
#[derive(Clone, Copy, Debug)]
pub struct ExternalCounters<'a> {
    /// The identity of every counter.
    pub identities: &'a [&'a str],
    /// The known limits, each with the index of its identity. A counter may have several limits, or none if requests
    /// carry them.
    pub limits: &'a [(usize, Limit)],
}

impl LimitIdAllocator {
    /// Replaces the external counters. Counters of the same identity keep their id and count. `swap` gets the id of
    /// every identity, in their order, and makes the new rules visible to requests. Afterwards the store drops removed
    /// counters. `before` are the limits in force so far.
    ///
    /// # Errors
    /// No limit ids are left for new counters. Nothing changes then.
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
        let mut table = self.lock();
        let assigned =
            table.assign_for(IdOwner::Envoy, &id_requests(&names, counters), store.now())?;
        let IdAssignment {
            ids,
            retired,
            table: new_table,
        } = assigned;
        let old: HashMap<LimitId, &IdentifiedLimit> =
            before.iter().map(|limit| (limit.id, limit)).collect();
        for (index, limit) in counters.limits {
            let Some(id) = ids.get(*index).copied() else {
                continue;
            };
            let new = IdentifiedLimit { id, limit: *limit };
            if let Some(old) = old.get(&id).filter(|old| ***old != new) {
                store.replace_limit(old, &new);
            }
            store.add_limit(&new);
        }
        let swapped = swap(ids.into());
        for id in retired {
            store.remove_limit(id);
        }
        *table = new_table;
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
        kind: AlgorithmKind::FixedWindow,
        // A limit that comes with a request may have any unit.
        lifetime: lifetimes.get(&index).copied().unwrap_or(Nanos::YEAR),
    };
    names.iter().enumerate().map(one).collect()
}

//! All states of one key under one limit, for resetting a key in a shared store.
//!
//! Must not know: stores, who resets keys.

use tollgate_policy::rules::{KeyBuffer, Meter, MeterRef, MeterRole};
use tollgate_store::IdentifiedLimit;

use crate::generation::Generation;
use crate::meter_state::MeterState;

/// One state of a key.
#[derive(Clone, Debug)]
pub struct KeyState {
    /// The encoded key.
    pub key: Vec<u8>,
    /// The key that selects the hash slot, if not the state's own.
    pub slot_key: Option<Vec<u8>>,
    /// The limit of the state.
    pub limit: IdentifiedLimit,
}

impl Generation {
    /// All states of the key with these values under a limit.
    #[must_use]
    pub fn key_states(&self, limit: &str, values: &[&str]) -> Vec<KeyState> {
        let Some(index) = self.rule_index(limit) else {
            return Vec::new();
        };
        let Some((rule, entry)) = self.rule(index) else {
            return Vec::new();
        };
        let rules = self.rules();
        let of_meter = |(meter, (definition, state)): (usize, (&Meter, &MeterState))| {
            let meter_ref = MeterRef { rule: index, meter };
            let mut buffer = KeyBuffer::new();
            if definition.role == MeterRole::Distinct {
                return None;
            }
            rules.write_key_of_values(meter_ref, values, &mut buffer)?;
            let key = buffer.as_bytes().to_vec();
            let has_slot_key = rules.write_colocation_of_values(meter_ref, values, &mut buffer);
            Some(KeyState {
                key,
                slot_key: has_slot_key.then(|| buffer.as_bytes().to_vec()),
                limit: *state.quotas.first()?,
            })
        };
        let meters = rule.meters.iter().zip(&entry.meters).enumerate();
        meters.filter_map(of_meter).collect()
    }
}

//! Resolves the limits, keys and networks that operators name.
//!
//! Must not know: what is done with them.

use tollgate_policy::grammar;
use tollgate_policy::model::ShedMechanism;
use tollgate_policy::rules::{KeyBuffer, MeterRef, MeterRole};

use super::operator_error::OperatorError;
use super::operator_state::{self, KeyIdentity, key_spec_text};
use crate::generation::Generation;

/// Checks that a limit has this name, or a mechanism against overload that the policy uses.
pub(super) fn check_switch(generation: &Generation, name: &str) -> Result<(), OperatorError> {
    let has_overload = generation.rules().priorities().is_some();
    let mut mechanisms = ShedMechanism::ALL.iter();
    if has_overload && mechanisms.any(|mechanism| mechanism.switch_name() == name) {
        return Ok(());
    }
    rule_index(generation, name).map(|_| ())
}

/// The index of the limit with this name.
pub(super) fn rule_index(generation: &Generation, name: &str) -> Result<usize, OperatorError> {
    generation.rule_index(name).ok_or_else(|| {
        let names = generation.rules().rules().iter().map(|rule| &*rule.name);
        OperatorError::UnknownLimit {
            name: name.into(),
            nearest: grammar::nearest_name(name, names).map(Box::from),
        }
    })
}

/// The key with these values, at the level that they fit.
pub(super) fn resolve_key(
    generation: &Generation,
    index: usize,
    limit: &str,
    values: &[&str],
) -> Result<KeyIdentity, OperatorError> {
    let rules = generation.rules();
    let meters = rules
        .rules()
        .get(index)
        .map_or(&[][..], |rule| &rule.meters);
    let mut buffer = KeyBuffer::new();
    let mut parts = Vec::new();
    for (meter, _) in meters
        .iter()
        .enumerate()
        .filter(|(_, definition)| definition.role == MeterRole::Main)
    {
        let meter_ref = MeterRef { rule: index, meter };
        let Some(key_spec) = rules.key_spec(meter_ref) else {
            continue;
        };
        if rules
            .write_key_of_values(meter_ref, values, &mut buffer)
            .is_some()
        {
            return Ok(KeyIdentity {
                limit: limit.into(),
                made_of: key_spec_text(key_spec).into(),
                key: operator_state::hex(&rules.digest(buffer.as_bytes())).into(),
                shown: key_spec.display_key(buffer.as_bytes()).into(),
            });
        }
        let names = key_spec
            .parts
            .iter()
            .map(|part| part.attribute.value.to_string());
        let names: Vec<String> = names.collect();
        if !parts.contains(&names) {
            parts.push(names);
        }
    }
    Err(OperatorError::BadKey {
        limit: limit.into(),
        value_count: values.len(),
        parts,
    })
}

/// An address or a network in canonical form.
pub(super) fn normalize_network(text: &str) -> Result<String, OperatorError> {
    let network = grammar::parse_network(text).map_err(|error| OperatorError::InvalidField {
        field: "address",
        error,
    })?;
    Ok(if network.prefix_len() == network.max_prefix_len() {
        network.addr().to_string()
    } else {
        network.to_string()
    })
}

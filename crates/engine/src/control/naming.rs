//! Limits, keys and networks as operators name them.
//!
//! Must not know: what is done with them.

use tollgate_policy::rules::{KeyBuffer, MeterRef, Role};
use tollgate_policy::words;

use super::controls::{self, NamedKey, signature};
use super::refused::OperatorError;
use crate::generation::Generation;

/// Where the limit of this name stands.
pub(super) fn known(generation: &Generation, name: &str) -> Result<usize, OperatorError> {
    generation.index(name).ok_or_else(|| {
        let names = generation.rules().rules().iter().map(|rule| &*rule.name);
        OperatorError::UnknownLimit {
            name: name.into(),
            nearest: words::nearest(name, names).map(Box::from),
        }
    })
}

/// The key that these values make, of whichever level they are for.
pub(super) fn named(
    generation: &Generation,
    index: usize,
    limit: &str,
    values: &[&str],
) -> Result<NamedKey, OperatorError> {
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
        .filter(|(_, of)| of.role == Role::Main)
    {
        let place = MeterRef { rule: index, meter };
        let Some(recipe) = rules.recipe(place) else {
            continue;
        };
        if rules.key_of(place, values, &mut buffer).is_some() {
            return Ok(NamedKey {
                limit: limit.into(),
                made_of: signature(recipe).into(),
                key: controls::hex(&rules.digest(buffer.as_bytes())).into(),
                shown: recipe.readable(buffer.as_bytes()).into(),
            });
        }
        let names = recipe
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
        given: values.len(),
        parts,
    })
}

/// An address or a network, spelt in its one way.
pub(super) fn network(text: &str) -> Result<String, OperatorError> {
    let network = words::network(text).map_err(|wrong| OperatorError::Wrong {
        field: "address",
        wrong,
    })?;
    Ok(if network.prefix_len() == network.max_prefix_len() {
        network.addr().to_string()
    } else {
        network.to_string()
    })
}

//! Indexes of a policy's key specs: equal specs have equal indexes, so that each key of a request is built once.
//!
//! Must not know: how keys are built.

use std::collections::HashMap;

use tollgate_policy::model::KeyPart;
use tollgate_policy::rules::KeySpec;

/// Indexes of key specs, so that each key of a request is built once.
#[derive(Default)]
pub(crate) struct KeySpecIndex {
    known: HashMap<String, u32>,
}

impl KeySpecIndex {
    /// The index of a key spec.
    pub(crate) fn index_of(&mut self, key_spec: Option<&KeySpec>) -> u32 {
        let mut text = String::new();
        let parts = key_spec.map_or(&[][..], |key_spec| &key_spec.parts);
        for part in parts {
            text.push_str(&key_part_text(part));
        }
        text.push_str(&format!(
            "{:?}",
            key_spec.map(|key_spec| &key_spec.distinct)
        ));
        self.index_of_text(text)
    }

    /// Slot keys are built like keys and share their indexes.
    pub(crate) fn slot_index_of(&mut self, part: &KeyPart) -> u32 {
        self.index_of_text(format!("place {}", key_part_text(part)))
    }

    fn index_of_text(&mut self, text: String) -> u32 {
        let next = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
        *self.known.entry(text).or_insert(next)
    }
}

fn key_part_text(part: &KeyPart) -> String {
    let how = (
        part.lower,
        part.hash,
        part.v4_bits,
        part.v6_bits,
        part.missing,
    );
    format!("{:?} {how:?};", part.attribute.value)
}

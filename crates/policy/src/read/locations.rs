//! Where the fields of each limit stand, for messages about values that do not carry their own place.
//!
//! Must not know: what the fields mean.

use crate::source::{Located, MapEntry, SourceLocation, SourceValue};

/// The places of the fields of each limit, by the limit's index in the model. Where nothing is known, as for a policy
/// that was not read from a file, every place is nowhere.
#[derive(Default)]
pub(crate) struct FieldLocations {
    limits: Vec<Vec<(Box<str>, SourceLocation)>>,
    /// What each limit is called, also of those that could not be read for another reason.
    pub(crate) names: Vec<Located<Box<str>>>,
    /// Where each `exempt` entry begins.
    pub(crate) exempt: Vec<SourceLocation>,
    /// Where each `deny` entry begins.
    pub(crate) deny: Vec<SourceLocation>,
}

impl FieldLocations {
    /// Remembers where the next limit's fields stand.
    pub(crate) fn add_limit(&mut self, entries: &[MapEntry]) {
        let places = entries
            .iter()
            .map(|entry| (entry.name.value.clone(), entry.value.location))
            .collect();
        self.limits.push(places);
    }

    /// Remembers what a limit is called, whatever else is wrong with it.
    pub(crate) fn add_name(&mut self, entries: &[MapEntry]) {
        let name = entries.iter().find(|entry| &*entry.name.value == "name");
        if let Some(MapEntry { value, .. }) = name
            && let SourceValue::Scalar { text, .. } = &value.value
        {
            self.names.push(Located::new(text.clone(), value.location));
        }
    }

    /// Where the value of a field of a limit stands, if the file gives it.
    pub(crate) fn field_location(&self, limit: usize, field: &str) -> Option<SourceLocation> {
        let fields = self.limits.get(limit)?;
        let (_, place) = fields.iter().find(|(name, _)| **name == *field)?;
        Some(*place)
    }
}

//! The locations of the fields of each limit, for diagnostics about values without a location.
//!
//! Must not know: what the fields mean.

use crate::source::{Located, MapEntry, SourceLocation, SourceValue};

/// The locations of the fields of each limit, by the limit's index in the model. Empty if the policy does not come from
/// a file.
#[derive(Default)]
pub(crate) struct FieldLocations {
    limits: Vec<Vec<(Box<str>, SourceLocation)>>,
    /// The names of all limits, including limits that could not be read.
    pub(crate) names: Vec<Located<Box<str>>>,
    /// The location of each `exempt` entry.
    pub(crate) exempt: Vec<SourceLocation>,
    /// The location of each `deny` entry.
    pub(crate) deny: Vec<SourceLocation>,
}

impl FieldLocations {
    /// Adds the field locations of the next limit.
    pub(crate) fn add_limit(&mut self, entries: &[MapEntry]) {
        let locations = entries
            .iter()
            .map(|entry| (entry.name.value.clone(), entry.value.location))
            .collect();
        self.limits.push(locations);
    }

    /// Adds the name of a limit, valid or not.
    pub(crate) fn add_name(&mut self, entries: &[MapEntry]) {
        let name = entries.iter().find(|entry| &*entry.name.value == "name");
        if let Some(MapEntry { value, .. }) = name
            && let SourceValue::Scalar { text, .. } = &value.value
        {
            self.names.push(Located::new(text.clone(), value.location));
        }
    }

    /// The location of a field's value, if the file sets the field.
    pub(crate) fn field_location(&self, limit: usize, field: &str) -> Option<SourceLocation> {
        let fields = self.limits.get(limit)?;
        let (_, location) = fields.iter().find(|(name, _)| **name == *field)?;
        Some(*location)
    }
}

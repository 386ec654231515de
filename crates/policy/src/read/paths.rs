//! Reads how the servers behind read paths, and which of several values of an attribute counts.
//!
//! Must not know: how paths are matched.

use super::TreeReader;
use super::field_reader::FieldReader;
use super::field_spec::{Field, FieldDefault, set_if_some};
use crate::attributes::Attribute;
use crate::model::{DuplicateRule, DuplicateSetting, PathCase, PathParameters, PathSettings};
use crate::schema::enumeration;
use crate::source::{Located, SourceNode};

const CASES: [(&str, PathCase); 3] = [
    ("any", PathCase::Any),
    ("sensitive", PathCase::Sensitive),
    ("insensitive", PathCase::Insensitive),
];

const PARAMETERS: [(&str, PathParameters); 3] = [
    ("any", PathParameters::Any),
    ("keep", PathParameters::Keep),
    ("strip", PathParameters::Strip),
];

/// The values of `duplicates`.
pub(crate) const DUPLICATES: [(&str, DuplicateRule); 4] = [
    ("first", DuplicateRule::First),
    ("last", DuplicateRule::Last),
    ("joined", DuplicateRule::Joined),
    ("refused", DuplicateRule::Refused),
];

/// The fields of `paths`.
pub(crate) const PATHS: [Field<PathSettings>; 2] = [
    Field::new(
        "case",
        FieldDefault::Value("any"),
        "Whether the servers tell `/API` from `/api`: `sensitive`, `insensitive`, or `any` if some do. With `any`, limits apply either way and keys keep the case.",
        || enumeration(&CASES),
        |reader, node, name, paths| {
            set_if_some(&mut paths.case, reader.keyword(node, name, &CASES));
        },
    ),
    Field::new(
        "parameters",
        FieldDefault::Value("any"),
        "What the servers do with `;v=1` in `/api;v=1`: `keep` it as part of the segment, `strip` it, or `any` if some strip it. With `any`, limits apply either way and keys are without it.",
        || enumeration(&PARAMETERS),
        |reader, node, name, paths| {
            set_if_some(
                &mut paths.parameters,
                reader.keyword(node, name, &PARAMETERS),
            );
        },
    ),
];

/// `paths`: how the servers behind read paths.
pub(super) fn read_paths(reader: &mut TreeReader, node: &SourceNode) -> PathSettings {
    let mut paths = PathSettings::default();
    let example = "paths: { case: insensitive }";
    if let Some(mut fields) = FieldReader::open(reader, node, "`paths`", example) {
        fields.read(reader, &PATHS, &mut paths);
        fields.finish(reader);
    }
    paths
}

/// `duplicates`: attributes and which of their values counts.
pub(super) fn read_duplicates(reader: &mut TreeReader, node: &SourceNode) -> Vec<DuplicateSetting> {
    let mut settings: Vec<DuplicateSetting> = Vec::new();
    let example = "duplicates: { header.x-api-key: first }";
    let Some(fields) = FieldReader::open(reader, node, "`duplicates`", example) else {
        return settings;
    };
    for entry in fields.entries {
        let location = entry.name.location;
        let attribute = reader.parse_attribute(&entry.name.value, location, "duplicates");
        let rule = reader.keyword(&entry.value, &entry.name.value, &DUPLICATES);
        let (Some(attribute), Some(rule)) = (attribute, rule) else {
            continue;
        };
        if !matches!(
            attribute,
            Attribute::Header(_) | Attribute::Query(_) | Attribute::Cookie(_)
        ) {
            reader.diagnostics.add(
                location,
                format!("`duplicates`: a request has only one `{attribute}`"),
                "name a header, a cookie or a query parameter",
            );
            continue;
        }
        if settings
            .iter()
            .any(|known| known.attribute.value == attribute)
        {
            reader.diagnostics.add(
                location,
                format!("`duplicates` has `{attribute}` twice"),
                "keep one of the two; header names are not case-sensitive",
            );
            continue;
        }
        settings.push(DuplicateSetting {
            attribute: Located::new(attribute, location),
            rule,
        });
    }
    settings
}

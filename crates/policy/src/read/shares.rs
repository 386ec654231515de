//! Reads `shares`: guaranteed parts of a limit's quota, by the value of an attribute.
//!
//! Must not know: whether they fit the quota; `check` does.

use serde_json::Value as Json;

use super::TreeReader;
use super::field_reader::FieldReader;
use super::field_spec::{Field, FieldDefault, field_specs};
use super::tiers::canonical_value;
use crate::attributes::Attribute;
use crate::grammar;
use crate::model::Shares;
use crate::schema::{definition_ref, object_with_values};
use crate::source::{Located, SourceNode};

/// The maximum number of shares: each has its own state for every key.
const MAX_SHARES: usize = 32;

/// The field of `shares` besides the shares.
pub(crate) const SHARES: [Field<Option<Located<Attribute>>>; 1] = [Field::new(
    "by",
    FieldDefault::Required("header.x-team"),
    "The attribute whose value selects the share. A request with any other value only borrows.",
    || definition_ref("attribute"),
    |reader, node, name, by| *by = reader.text_attribute(node, name),
)];

/// The schema of `shares`.
pub(crate) fn schema() -> Json {
    object_with_values(field_specs(&SHARES), &definition_ref("percent"))
}

/// `shares: { by: header.x-team, team-a: 50%, team-b: 30% }`
pub(super) fn read_shares(reader: &mut TreeReader, node: &SourceNode) -> Option<Shares> {
    let example = "shares: { by: header.x-team, team-a: 50% }";
    let mut fields = FieldReader::open(reader, node, "`shares`", example)?;
    let mut by = None;
    fields.read(reader, &SHARES, &mut by);
    let count = fields.unread_entries().count();
    if !(1..=MAX_SHARES).contains(&count) {
        reader.diagnostics.add(
            node.location,
            format!("`shares` has {count} shares"),
            format!("write from 1 to {MAX_SHARES}: `team-a: 50%`"),
        );
        return None;
    }
    let mut shares = Vec::new();
    for entry in fields.unread_entries() {
        let name = canonical_value(by.as_ref().map(|by| &by.value), &entry.name.value);
        let part = reader.parse(&entry.value, &entry.name.value, grammar::parse_percent)?;
        let part = Located::new(part, entry.value.location);
        shares.push((Located::new(name, entry.name.location), part));
    }
    Some(Shares { by: by?, shares })
}

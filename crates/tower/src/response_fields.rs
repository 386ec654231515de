//! The rate limit fields of a response, from the decision until the response.
//!
//! Must not know: dialects, how fields are rendered.

use arrayvec::ArrayVec;
use bytes::Bytes;
use http::header::{Entry, HeaderMap, HeaderName, HeaderValue};
use tollgate_service::{HeaderFields, Merge, copy_to_shared};

/// The fields of the default dialect fit, with room for one more dialect.
const USUAL_FIELDS: usize = 4;

/// Names of the default dialect, which need not be parsed.
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Rendered header fields.
#[derive(Debug, Default)]
pub(crate) struct ResponseFields {
    /// The values, one after the other.
    values: Bytes,
    usual: ArrayVec<ResponseField, USUAL_FIELDS>,
    more: Vec<ResponseField>,
}

#[derive(Debug)]
struct ResponseField {
    name: &'static str,
    value_len: u32,
    merge: Merge,
}

impl ResponseFields {
    #[inline]
    pub(crate) fn new(fields: &HeaderFields) -> Self {
        let mut new = Self {
            values: copy_to_shared(fields.text()),
            ..Self::default()
        };
        for field in fields.fields() {
            let field = ResponseField {
                name: field.name,
                value_len: u32::try_from(field.value.len()).unwrap_or(0),
                merge: field.merge,
            };
            if let Err(full) = new.usual.try_push(field) {
                new.more.push(full.element());
            }
        }
        new
    }

    /// Adds the fields to a response. A field that the response has is not replaced: list fields get another line, others stay.
    pub(crate) fn merge_into(mut self, headers: &mut HeaderMap) {
        for field in self.usual.iter().chain(&self.more) {
            let len = usize::try_from(field.value_len).unwrap_or(0);
            let value = self.values.split_to(len.min(self.values.len()));
            // A response that has no room for a field goes without it.
            if let (Ok(value), Ok(entry)) = (
                HeaderValue::from_maybe_shared(value),
                headers.try_entry(header_name(field.name)),
            ) {
                merge(entry, value, field.merge);
            }
        }
    }
}

fn merge(entry: Entry<'_, HeaderValue>, value: HeaderValue, rule: Merge) {
    match (entry, rule) {
        (Entry::Vacant(entry), _) => drop(entry.try_insert(value)),
        (Entry::Occupied(mut entry), Merge::Append) => {
            // An identical value adds nothing.
            if !entry.iter().any(|one| *one == value) {
                entry.append(value);
            }
        }
        (Entry::Occupied(_), Merge::KeepExisting) => {}
    }
}

fn header_name(name: &'static str) -> HeaderName {
    match name {
        "ratelimit" => RATELIMIT,
        "ratelimit-policy" => RATELIMIT_POLICY,
        other => HeaderName::from_static(other),
    }
}

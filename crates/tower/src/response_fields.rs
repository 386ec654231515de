//! The rate limit fields of a response, from the decision until the response.
//!
//! Must not know: dialects, how fields are rendered.

use arrayvec::ArrayVec;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use tollgate_service::{HeaderFields, Merge, shared_header_value};

/// The fields of the default dialect fit, with room for one more dialect.
const USUAL_FIELDS: usize = 4;

/// Rendered header fields.
#[derive(Debug, Default)]
pub(crate) struct ResponseFields {
    usual: ArrayVec<ResponseField, USUAL_FIELDS>,
    more: Vec<ResponseField>,
}

#[derive(Debug)]
struct ResponseField {
    name: &'static str,
    value: HeaderValue,
    merge: Merge,
}

impl ResponseFields {
    pub(crate) fn new(fields: &HeaderFields) -> Self {
        let mut new = Self::default();
        for field in fields.fields() {
            let Some(value) = shared_header_value(field.value) else {
                continue;
            };
            let field = ResponseField {
                name: field.name,
                value,
                merge: field.merge,
            };
            if let Err(full) = new.usual.try_push(field) {
                new.more.push(full.element());
            }
        }
        new
    }

    /// Adds the fields to a response. A field that the response has is not replaced: list fields get another line, others stay.
    pub(crate) fn merge_into(self, headers: &mut HeaderMap) {
        for field in self.usual.into_iter().chain(self.more) {
            let name = HeaderName::from_static(field.name);
            match field.merge {
                Merge::KeepExisting if headers.contains_key(&name) => {}
                // An identical value adds nothing.
                Merge::Append if headers.get_all(&name).iter().any(|one| one == field.value) => {}
                Merge::KeepExisting | Merge::Append => {
                    headers.append(name, field.value);
                }
            }
        }
    }
}

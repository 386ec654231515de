//! The rate limit fields of a response, from the decision until the response.
//!
//! Must not know: dialects, how fields are rendered.

use std::cell::RefCell;

use bytes::Bytes;
use http::header::{Entry, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use tollgate_service::{HeaderFields, Merge, copy_to_shared};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Lists of fields that a thread keeps for its next requests. More are in use only while more of its requests wait for a handler.
const MAX_SPARE_LISTS: usize = 32;

thread_local! {
    /// Empty lists whose memory is used again, because a list for each response would be an allocation for each.
    static SPARE_LISTS: RefCell<Vec<Vec<ResponseField>>> = const { RefCell::new(Vec::new()) };
}

/// Rendered header fields. Small, because they are moved with the request's future several times.
#[derive(Debug, Default)]
pub(crate) struct ResponseFields {
    /// The values, one after the other.
    values: Bytes,
    names: FieldNames,
}

/// Which fields there are.
#[derive(Debug)]
enum FieldNames {
    /// `RateLimit-Policy` with a value of this length, then `RateLimit`: an admission in the default dialect.
    Draft11(usize),
    Others(Vec<ResponseField>),
}

#[derive(Debug)]
struct ResponseField {
    name: &'static str,
    value_len: usize,
    merge: Merge,
}

impl Default for FieldNames {
    fn default() -> Self {
        Self::Others(Vec::new())
    }
}

impl FieldNames {
    fn new(fields: &HeaderFields) -> Self {
        let mut all = fields.fields();
        if let (Some(policy), Some(limit), None) = (all.next(), all.next(), all.next())
            && (policy.name, limit.name) == ("ratelimit-policy", "ratelimit")
            && (policy.merge, limit.merge) == (Merge::Append, Merge::Append)
        {
            return Self::Draft11(policy.value.len());
        }
        let mut others = SPARE_LISTS.with_borrow_mut(Vec::pop).unwrap_or_default();
        others.extend(fields.fields().map(|field| ResponseField {
            name: field.name,
            value_len: field.value.len(),
            merge: field.merge,
        }));
        Self::Others(others)
    }
}

impl Drop for FieldNames {
    /// Keeps the memory of a list, also if the request is cancelled.
    fn drop(&mut self) {
        let Self::Others(list) = self else { return };
        if list.capacity() == 0 {
            return;
        }
        let mut list = std::mem::take(list);
        list.clear();
        // A thread that ends has no spare lists any more.
        let _is_ending = SPARE_LISTS.try_with(|spare| {
            if let Ok(mut spare) = spare.try_borrow_mut()
                && spare.len() < MAX_SPARE_LISTS
            {
                spare.push(list);
            }
        });
    }
}

impl ResponseFields {
    #[inline]
    pub(crate) fn new(fields: &HeaderFields) -> Self {
        Self {
            values: copy_to_shared(fields.text()),
            names: FieldNames::new(fields),
        }
    }

    /// Adds the fields to a response. A field that the response has is not replaced: list fields get another line, others stay.
    pub(crate) fn merge_into(self, headers: &mut HeaderMap) {
        let mut values = self.values;
        match &self.names {
            FieldNames::Draft11(policy_len) => {
                let policy = values.split_to((*policy_len).min(values.len()));
                add(headers, RATELIMIT_POLICY, policy, Merge::Append);
                add(headers, RATELIMIT, values, Merge::Append);
            }
            FieldNames::Others(fields) => {
                for field in fields {
                    let value = values.split_to(field.value_len.min(values.len()));
                    add(headers, header_name(field.name), value, field.merge);
                }
            }
        }
    }
}

/// The name of a field. Most are known, and reading one costs as much as adding it.
fn header_name(name: &'static str) -> HeaderName {
    match name {
        "ratelimit" => RATELIMIT,
        "ratelimit-policy" => RATELIMIT_POLICY,
        "retry-after" => RETRY_AFTER,
        other => HeaderName::from_static(other),
    }
}

/// Adds a field. A response that has no room for it goes without it.
fn add(headers: &mut HeaderMap, name: HeaderName, value: Bytes, rule: Merge) {
    if let (Ok(value), Ok(entry)) = (
        HeaderValue::from_maybe_shared(value),
        headers.try_entry(name),
    ) {
        merge(entry, value, rule);
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

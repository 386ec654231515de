//! The rate limit fields of a response, from the decision until the response.
//!
//! Must not know: dialects, how fields are rendered.

use std::cell::RefCell;

use bytes::Bytes;
use http::header::{Entry, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use tollgate_service::{AdmittedFields, HeaderFields, Merge, copy_to_shared};

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
    /// `RateLimit-Policy` with this value, then `RateLimit`.
    WithPolicy(HeaderValue),
    Others(FieldList),
}

/// A list whose memory the thread uses again.
#[derive(Debug, Default)]
struct FieldList(Vec<ResponseField>);

#[derive(Debug)]
struct ResponseField {
    name: &'static str,
    value_len: usize,
    merge: Merge,
}

impl Default for FieldNames {
    fn default() -> Self {
        Self::Others(FieldList::default())
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
        Self::Others(FieldList(others))
    }
}

impl Drop for FieldList {
    /// Keeps the memory of a list, also if the request is cancelled.
    fn drop(&mut self) {
        if self.0.capacity() == 0 {
            return;
        }
        let mut list = std::mem::take(&mut self.0);
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

    #[inline]
    pub(crate) fn from_admitted(fields: AdmittedFields) -> Self {
        Self {
            values: fields.limit,
            names: FieldNames::WithPolicy(fields.policy),
        }
    }

    /// Adds the fields to a response. A field that the response has is not replaced: list fields get another line, others stay.
    pub(crate) fn merge_into(self, headers: &mut HeaderMap) {
        let mut values = self.values;
        match self.names {
            FieldNames::WithPolicy(policy) => {
                append(headers, || RATELIMIT_POLICY, Some(policy));
                append(
                    headers,
                    || RATELIMIT,
                    HeaderValue::from_maybe_shared(values).ok(),
                );
            }
            FieldNames::Draft11(policy_len) => {
                let policy = values.split_to(policy_len.min(values.len()));
                append(
                    headers,
                    || RATELIMIT_POLICY,
                    HeaderValue::from_maybe_shared(policy).ok(),
                );
                append(
                    headers,
                    || RATELIMIT,
                    HeaderValue::from_maybe_shared(values).ok(),
                );
            }
            FieldNames::Others(fields) => {
                for field in &fields.0 {
                    let value = values.split_to(field.value_len.min(values.len()));
                    add(headers, &header_name(field.name), value, field.merge);
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

/// Adds a field.
fn add(headers: &mut HeaderMap, name: &HeaderName, value: Bytes, rule: Merge) {
    // Looking first is one more search, but most fields are appended to a response that has none of them.
    if rule == Merge::KeepExisting && headers.contains_key(name) {
        return;
    }
    append(
        headers,
        || name.clone(),
        HeaderValue::from_maybe_shared(value).ok(),
    );
}

/// Appends a value to a field. A response that has no room for it goes without it. The name is made where it is stored, because
/// a name that is cloned first waits for its own writes.
#[inline]
fn append(headers: &mut HeaderMap, name: impl Fn() -> HeaderName, value: Option<HeaderValue>) {
    let Some(value) = value else { return };
    if let Ok(true) = headers.try_append(name(), value) {
        remove_repetition(headers, name());
    }
}

/// An identical value adds nothing: removes the last value of a field if it is there before.
#[cold]
fn remove_repetition(headers: &mut HeaderMap, name: HeaderName) {
    let mut entry = match headers.entry(name) {
        Entry::Occupied(entry) => entry,
        Entry::Vacant(_) => return,
    };
    let mut before: Vec<HeaderValue> = entry.iter().cloned().collect();
    let Some(last) = before.pop().filter(|last| before.contains(last)) else {
        return;
    };
    drop(last);
    let mut before = before.into_iter();
    if let Some(first) = before.next() {
        entry.insert_mult(first);
        before.for_each(|value| entry.append(value));
    }
}

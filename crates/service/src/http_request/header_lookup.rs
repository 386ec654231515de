//! Finds header fields by the names in a policy, without parsing the names again for each request.
//!
//! Must not know: which limits exist, what values mean.

use std::cell::RefCell;

use arrayvec::ArrayVec;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

/// The most names of a request that is searched name by name: comparing lengths takes fewer instructions than hashing a name.
const MAX_SEARCHED: usize = 16;

/// Names that a thread keeps. Policies choose them, not clients; further names are parsed each time.
const MAX_NAMES: usize = 16;

/// The first field with this name.
///
/// ```
/// use http::HeaderMap;
/// use tollgate_service::find_header;
///
/// let mut headers = HeaderMap::new();
/// headers.insert("x-api-key", "k-1".parse()?);
/// assert_eq!(find_header(&headers, "x-api-key").unwrap(), "k-1");
/// assert_eq!(find_header(&headers, "x-other"), None);
/// assert_eq!(find_header(&headers, "no name"), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
#[inline]
pub fn find_header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a HeaderValue> {
    if headers.keys_len() > MAX_SEARCHED {
        return find_by_hash(headers, name);
    }
    // The first value of a name comes before its others.
    let found = headers.iter().find(|(known, _)| known.as_str() == name);
    match found {
        Some((_, value)) => Some(value),
        // Names of requests are lower-case.
        None if name.bytes().any(|byte| byte.is_ascii_uppercase()) => find_by_hash(headers, name),
        None => None,
    }
}

fn find_by_hash<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a HeaderValue> {
    thread_local! {
        static NAMES: RefCell<ArrayVec<HeaderName, MAX_NAMES>> = const { RefCell::new(ArrayVec::new_const()) };
    }
    NAMES.with_borrow_mut(|names| {
        if let Some(known) = names.iter().find(|known| known.as_str() == name) {
            return headers.get(known);
        }
        let parsed = HeaderName::try_from(name).ok()?;
        let value = headers.get(&parsed);
        if parsed.as_str() == name {
            // If there is no room, it is parsed again next time.
            drop(names.try_push(parsed));
        }
        value
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small and large requests, repeated fields, and names that no policy should have.
    #[test]
    fn both_ways_of_searching_find_the_same_value() {
        for count in [0, 1, 2, MAX_SEARCHED - 3, MAX_SEARCHED, MAX_SEARCHED + 5] {
            let mut headers = HeaderMap::new();
            headers.append("x-api-key", HeaderValue::from_static("first"));
            for number in 0..count {
                let name = HeaderName::try_from(format!("x-field-{number}")).unwrap();
                headers.append(name, HeaderValue::from(number));
            }
            headers.append("x-api-key", HeaderValue::from_static("second"));
            headers.append("host", HeaderValue::from_static("a.example"));
            for name in [
                "x-api-key",
                "X-Api-Key",
                "host",
                "Host",
                "x-field-1",
                "x-none",
                "X-None",
                "",
                "no name",
            ] {
                let found = find_header(&headers, name);
                assert_eq!(found, find_by_hash(&headers, name), "{name} of {count}");
            }
            assert_eq!(find_header(&headers, "X-Api-Key").unwrap(), "first");
        }
    }
}

//! Finds header fields by the names in a policy, without parsing the names again for each request.
//!
//! Must not know: which limits exist, what values mean.

use std::cell::RefCell;

use arrayvec::ArrayVec;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

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
pub fn find_header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a HeaderValue> {
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

//! Header values out of a buffer of the thread, so that most responses need no allocation of their own.
//!
//! Must not know: which fields there are.

use std::cell::Cell;

use bytes::BytesMut;
use http::HeaderValue;

/// Room for the field values of some dozens of responses.
const VALUES_LEN: usize = 4_096;

/// A header value with these bytes. `None` if a header value cannot have them.
///
/// Values share a buffer of this thread. It is used again once all values in it are gone.
///
/// ```
/// let value = tollgate_service::shared_header_value(b"1").unwrap();
/// assert_eq!(value, "1");
/// assert!(tollgate_service::shared_header_value(b"\n").is_none());
/// ```
#[must_use]
pub fn shared_header_value(bytes: &[u8]) -> Option<HeaderValue> {
    thread_local! {
        static VALUES: Cell<BytesMut> = Cell::new(BytesMut::new());
    }
    let mut values = VALUES.take();
    if values.capacity() < VALUES_LEN / 2 {
        // Early, because the values of one response keep each other's buffer. If older values are still there, it does nothing.
        let _is_reclaimed = values.try_reclaim(VALUES_LEN);
    }
    if values.capacity() < bytes.len() {
        values.reserve(bytes.len().max(VALUES_LEN));
    }
    values.extend_from_slice(bytes);
    let value = HeaderValue::from_maybe_shared(values.split().freeze());
    VALUES.set(values);
    value.ok()
}

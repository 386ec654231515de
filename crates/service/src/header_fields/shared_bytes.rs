//! Bytes out of a buffer of the thread, so that the fields of most responses need no allocation of their own.
//!
//! Must not know: which fields there are.

use std::cell::Cell;

use bytes::{Bytes, BytesMut};

/// Room for the field values of some dozens of responses.
const VALUES_LEN: usize = 4_096;

/// A copy of these bytes, for the values of a response's fields.
///
/// Copies share a buffer of this thread. It is used again once all copies in it are gone.
///
/// ```
/// assert_eq!(tollgate_service::copy_to_shared(b"1"), "1");
/// ```
#[must_use]
pub fn copy_to_shared(bytes: &[u8]) -> Bytes {
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
    let copy = values.split().freeze();
    VALUES.set(values);
    copy
}

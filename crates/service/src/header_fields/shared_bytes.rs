//! Bytes out of a buffer of the thread, so that the fields of most responses need no allocation of their own.
//!
//! Must not know: which fields there are.

use std::cell::RefCell;

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
        static VALUES: RefCell<BytesMut> = RefCell::new(BytesMut::new());
    }
    VALUES.with_borrow_mut(|values| {
        if values.capacity() < VALUES_LEN / 2 {
            make_room(values, bytes.len());
        }
        values.extend_from_slice(bytes);
        values.split().freeze()
    })
}

/// Early, because the values of one response keep each other's buffer.
#[cold]
fn make_room(values: &mut BytesMut, len: usize) {
    // Does nothing while older values are still there.
    let _is_reclaimed = values.try_reclaim(VALUES_LEN);
    if values.capacity() < len {
        values.reserve(len.max(VALUES_LEN));
    }
}

//! Room for one key, so that making it allocates nothing.
//!
//! Must not know: what the parts mean.

/// How many bytes the parts of one key may take. Parts that would not fit are digested, never cut.
pub const KEY_ROOM: usize = 512;

/// An encoded key: for every part, whether it is there, its length and its bytes, so that no two different keys look alike.
#[derive(Clone)]
pub struct KeyBuffer {
    bytes: [u8; KEY_ROOM],
    len: usize,
}

/// What became of a request's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keyed {
    /// It is in the buffer.
    Here,
    /// An attribute is missing and the limit does not apply without it.
    Skip,
    /// An attribute is missing and the request is refused without it.
    Deny,
}

impl KeyBuffer {
    /// An empty one.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: [0; KEY_ROOM],
            len: 0,
        }
    }

    /// The key so far.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl Default for KeyBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for KeyBuffer {
    /// Keys may be secrets; only the length is shown.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyBuffer")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

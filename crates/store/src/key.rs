//! Store keys: one or several parts, each encoded with its length, so that two different keys never have the same
//! encoding.
//!
//! Joining parts with a separator would let a caller who controls one part imitate another key (`a_b` + `c` and `a` +
//! `b_c`). Must not know: what the parts mean, how keys are hashed or stored.

use std::fmt;

/// The largest key in bytes: its parts, plus two bytes for each part after the first. Longer keys are an error.
/// Truncating them would let two callers share a quota; skipping the limit would let a caller evade it.
pub const MAX_KEY_LEN: usize = 1_024;

/// A key of bounded length. It borrows its parts; making one allocates nothing.
///
/// ```
/// use tollgate_store::StoreKey;
///
/// let parts: [&[u8]; 2] = [b"tenant-7", b"POST /orders"];
/// let composite = StoreKey::from_parts(&parts)?;
/// assert_eq!(composite.len(), 8 + 2 + 12);
/// assert!(StoreKey::new(&[0; 2_000]).is_err());
/// # Ok::<(), tollgate_store::KeyTooLong>(())
/// ```
#[derive(Clone, Copy)]
pub struct StoreKey<'a> {
    parts: Parts<'a>,
}

#[derive(Clone, Copy)]
enum Parts<'a> {
    One(&'a [u8]),
    Many(&'a [&'a [u8]]),
}

impl<'a> StoreKey<'a> {
    /// A key with one part.
    ///
    /// # Errors
    /// It is longer than [`MAX_KEY_LEN`].
    pub const fn new(part: &'a [u8]) -> Result<Self, KeyTooLong> {
        if part.len() > MAX_KEY_LEN {
            return Err(KeyTooLong { len: part.len() });
        }
        Ok(Self {
            parts: Parts::One(part),
        })
    }

    /// A key with several parts. One part makes the same key as [`StoreKey::new`].
    ///
    /// # Errors
    /// They are longer than [`MAX_KEY_LEN`].
    pub fn from_parts(parts: &'a [&'a [u8]]) -> Result<Self, KeyTooLong> {
        let key = Self {
            parts: Parts::Many(parts),
        };
        match key.len() {
            len if len > MAX_KEY_LEN => Err(KeyTooLong { len }),
            _ => Ok(key),
        }
    }

    /// The part, if there is exactly one.
    #[must_use]
    #[inline]
    pub const fn single(&self) -> Option<&'a [u8]> {
        match self.parts {
            Parts::One(part) => Some(part),
            Parts::Many([part]) => Some(*part),
            Parts::Many(_) => None,
        }
    }

    /// The parts, in order.
    pub fn parts(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (one, many): (Option<&'a [u8]>, &'a [&'a [u8]]) = match self.parts {
            Parts::One(part) => (Some(part), &[]),
            Parts::Many(parts) => (None, parts),
        };
        one.into_iter().chain(many.iter().copied())
    }

    /// The length in bytes that [`MAX_KEY_LEN`] bounds: the parts, plus two for each part after the first.
    #[must_use]
    pub fn len(&self) -> usize {
        let total = self.parts().fold(0_usize, |len, part| {
            len.saturating_add(part.len()).saturating_add(2)
        });
        total.saturating_sub(2)
    }

    /// Whether the key has no parts: one key for all callers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts().next().is_none()
    }

    /// Writes the encoding in pieces: for each part two bytes of length, then the part. Two keys have the same encoding
    /// only if they have the same parts.
    pub fn encode(&self, mut write: impl FnMut(&[u8])) {
        self.encode_parts(|len, part| {
            write(&len.to_be_bytes());
            write(part);
        });
    }

    /// Calls `write` with the length and the bytes of each part.
    #[inline]
    pub fn encode_parts(&self, mut write: impl FnMut(u16, &[u8])) {
        // The parts of a valid key are far shorter than 65,536 bytes.
        let len = |part: &[u8]| u16::try_from(part.len()).unwrap_or(u16::MAX);
        match self.parts {
            Parts::One(part) => write(len(part), part),
            Parts::Many(parts) => parts.iter().for_each(|part| write(len(part), part)),
        }
    }
}

impl PartialEq for StoreKey<'_> {
    /// Compares parts: `new` with one part equals `from_parts` with one part.
    fn eq(&self, other: &Self) -> bool {
        self.parts().eq(other.parts())
    }
}

impl Eq for StoreKey<'_> {}

impl fmt::Debug for StoreKey<'_> {
    /// Keys may contain names and secrets, so only the size is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "StoreKey({} parts, {} bytes)",
            self.parts().count(),
            self.len()
        )
    }
}

/// A key longer than [`MAX_KEY_LEN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyTooLong {
    /// The length in bytes, with two for each part after the first.
    pub len: usize,
}

impl fmt::Display for KeyTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { len } = self;
        write!(
            f,
            "key: {len} bytes are too long: the longest key has {MAX_KEY_LEN}"
        )
    }
}

impl std::error::Error for KeyTooLong {}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(parts: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        StoreKey::from_parts(parts)
            .unwrap()
            .encode(|piece| bytes.extend_from_slice(piece));
        bytes
    }

    #[test]
    fn i10_parts_that_read_the_same_when_joined_are_different_keys() {
        type Parts<'a> = &'a [&'a [u8]];
        let pairs: [(Parts<'_>, Parts<'_>); 5] = [
            (&[b"a_b", b"c"], &[b"a", b"b_c"]),
            (&[b"ab"], &[b"a", b"b"]),
            (&[b""], &[]),
            (&[b"", b"x"], &[b"x", b""]),
            (&[b"\0\x01a"], &[b"a"]),
        ];
        for (left, right) in pairs {
            assert_ne!(encoded(left), encoded(right), "{left:?} {right:?}");
        }
    }

    #[test]
    fn one_part_makes_the_same_key_by_either_constructor() {
        let mut bytes = Vec::new();
        StoreKey::new(b"alice")
            .unwrap()
            .encode(|piece| bytes.extend_from_slice(piece));
        assert_eq!(bytes, encoded(&[b"alice"]));
        let parts: [&[u8]; 1] = [b"alice"];
        assert_eq!(StoreKey::new(b"alice"), StoreKey::from_parts(&parts));
        assert_ne!(StoreKey::new(b""), StoreKey::from_parts(&[]));
    }

    #[test]
    fn the_length_is_bounded_over_all_parts() {
        assert!(StoreKey::new(&[b'x'; MAX_KEY_LEN]).is_ok());
        let len = MAX_KEY_LEN + 1;
        assert_eq!(
            StoreKey::new(&[b'x'; MAX_KEY_LEN + 1]),
            Err(KeyTooLong { len })
        );
        let part: &[u8] = &[b'x'; MAX_KEY_LEN / 2];
        assert!(
            StoreKey::from_parts(&[part, part]).is_err(),
            "each further part costs two"
        );
        assert!(StoreKey::from_parts(&[part, &part[2..]]).is_ok());
        let nothing: [&[u8]; MAX_KEY_LEN] = [b""; MAX_KEY_LEN];
        assert!(
            StoreKey::from_parts(&nothing).is_err(),
            "so the number of parts is bounded too"
        );
    }

    #[test]
    fn the_debug_output_of_a_key_shows_only_its_size() {
        assert_eq!(
            format!("{:?}", StoreKey::new(b"secret").unwrap()),
            "StoreKey(1 parts, 6 bytes)"
        );
    }
}

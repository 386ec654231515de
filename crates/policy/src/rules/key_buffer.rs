//! A fixed buffer for one key, so that encoding a key does not allocate.
//!
//! Must not know: what the parts mean.

use super::draft::MAX_KEY_PARTS;

/// The maximum length of an encoded key in bytes. Parts that would not fit are digested, never truncated.
pub const KEY_CAPACITY: usize = 512;

/// A tag and two bytes of length.
const HEADER_LEN: usize = 3;
/// The length of a digested part.
const DIGEST_PART_LEN: usize = HEADER_LEN + 16;
/// The maximum number of parts: those of a key, and the value for distinct counting.
const MAX_PARTS: usize = MAX_KEY_PARTS + 1;

/// The bytes that the first value may have: later parts may need the rest, each digested.
const FIRST_ROOM: usize = KEY_CAPACITY - HEADER_LEN - (MAX_PARTS - 1) * DIGEST_PART_LEN;

// All parts fit even if each is digested.
const _: () = assert!(MAX_PARTS * DIGEST_PART_LEN <= KEY_CAPACITY);

/// An encoded key. Each part has a tag, a length and its bytes, so different keys have different encodings.
#[derive(Clone)]
pub struct KeyBuffer {
    bytes: [u8; KEY_CAPACITY],
    len: usize,
    /// The bytes that the next value may have. It grows by what a part leaves of the room for its digest.
    room: usize,
}

/// The result of writing a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOutcome {
    /// The key is in the buffer.
    Complete,
    /// An attribute is missing and the limit does not apply.
    Skip,
    /// An attribute is missing and the request is denied.
    Deny,
}

/// The tag of a part.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Tag {
    Missing = 0,
    Present = 1,
    Digest = 2,
}

/// One part of an encoded key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EncodedPart<'a> {
    Missing,
    Present(&'a [u8]),
    Digest(&'a [u8]),
    /// It is incomplete or malformed.
    Truncated,
}

/// Decodes the parts of an encoded key.
pub(super) fn decode_parts(mut key: &[u8]) -> impl Iterator<Item = EncodedPart<'_>> {
    std::iter::from_fn(move || {
        if key.is_empty() {
            return None;
        }
        let whole = std::mem::take(&mut key);
        let part = whole
            .split_first_chunk::<HEADER_LEN>()
            .and_then(|(head, rest)| {
                let [tag, high, low] = *head;
                let len = usize::from(u16::from_be_bytes([high, low]));
                let (value, rest) = rest.split_at_checked(len)?;
                key = rest;
                match tag {
                    tag if tag == Tag::Missing as u8 => Some(EncodedPart::Missing),
                    tag if tag == Tag::Present as u8 => Some(EncodedPart::Present(value)),
                    tag if tag == Tag::Digest as u8 => Some(EncodedPart::Digest(value)),
                    _ => None,
                }
            });
        Some(part.unwrap_or(EncodedPart::Truncated))
    })
}

impl KeyBuffer {
    /// An empty buffer.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: [0; KEY_CAPACITY],
            len: 0,
            room: FIRST_ROOM,
        }
    }

    /// The encoded key.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
        self.room = FIRST_ROOM;
    }

    /// Whether a value of this length leaves room for all later parts. It depends only on earlier parts, so the key of
    /// a level begins with the key of the level above.
    #[inline]
    pub(super) const fn has_room_for(&self, value: usize) -> bool {
        value <= self.room
    }

    pub(super) fn push_missing(&mut self) {
        self.push(Tag::Missing, &[]);
    }

    /// Adds a value. The caller has checked that it fits.
    #[inline]
    pub(super) fn push_present(&mut self, value: &[u8]) {
        debug_assert!(
            self.has_room_for(value.len()),
            "the caller checks `has_room_for` first"
        );
        self.push(Tag::Present, value);
    }

    pub(super) fn push_digest(&mut self, digest: [u8; 16]) {
        self.push(Tag::Digest, &digest);
    }

    /// Lower-cases the last `len` bytes.
    pub(super) fn lowercase_last(&mut self, len: usize) {
        let from = self.len.saturating_sub(len);
        if let Some(last) = self.bytes.get_mut(from..self.len) {
            last.make_ascii_lowercase();
        }
    }

    #[inline]
    fn push(&mut self, tag: Tag, value: &[u8]) {
        let [high, low] = u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes();
        if let Some(free) = self.bytes.get_mut(self.len..)
            && let Some((head, rest)) = free.split_first_chunk_mut::<HEADER_LEN>()
            && let Some(body) = rest.get_mut(..value.len())
        {
            *head = [tag as u8, high, low];
            body.copy_from_slice(value);
            // It fits, so neither overflows.
            self.len = self.len.wrapping_add(HEADER_LEN + value.len());
            self.room = (self.room + DIGEST_PART_LEN - HEADER_LEN).saturating_sub(value.len());
        }
    }
}

impl Default for KeyBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for KeyBuffer {
    /// Keys may contain secrets, so only the length is shown.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyBuffer")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

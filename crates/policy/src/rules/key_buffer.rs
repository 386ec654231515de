//! Room for one key, so that making it allocates nothing.
//!
//! Must not know: what the parts mean.

use super::draft::MAX_KEY_PARTS;

/// How many bytes the parts of one key may take. Parts that would not fit are digested, never cut.
pub const KEY_CAPACITY: usize = 512;

/// A tag and two bytes of length.
const HEADER_LEN: usize = 3;
/// What a digested part takes.
const DIGEST_PART_LEN: usize = HEADER_LEN + 16;
/// As many parts as a key can have, and the value of distinct counting.
const MAX_PARTS: usize = MAX_KEY_PARTS + 1;

// Even if every part has to be digested, they all fit.
const _: () = assert!(MAX_PARTS * DIGEST_PART_LEN <= KEY_CAPACITY);

/// An encoded key: for every part, whether it is there, its length and its bytes, so that no two different keys look alike.
#[derive(Clone)]
pub struct KeyBuffer {
    bytes: [u8; KEY_CAPACITY],
    len: usize,
    parts: usize,
}

/// What became of a request's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOutcome {
    /// It is in the buffer.
    Complete,
    /// An attribute is missing and the limit does not apply without it.
    Skip,
    /// An attribute is missing and the request is refused without it.
    Deny,
}

/// What a part begins with.
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
    /// It is not all there, or no part of a key.
    Truncated,
}

/// The parts of an encoded key, one after another.
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
    /// An empty one.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: [0; KEY_CAPACITY],
            len: 0,
            parts: 0,
        }
    }

    /// The key so far.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
        self.parts = 0;
    }

    /// Whether a value of so many bytes leaves enough room for all parts that may still come. This depends only on the
    /// parts before it, so a level's key begins with the key of the level above.
    pub(super) fn has_room_for(&self, value: usize) -> bool {
        let later = MAX_PARTS.saturating_sub(self.parts + 1);
        value <= KEY_CAPACITY - HEADER_LEN
            && self.len + HEADER_LEN + value + later * DIGEST_PART_LEN <= KEY_CAPACITY
    }

    pub(super) fn push_missing(&mut self) {
        self.push(Tag::Missing, &[]);
    }

    /// Adds a value that there is room for.
    pub(super) fn push_present(&mut self, value: &[u8]) {
        debug_assert!(self.has_room_for(value.len()), "the caller asked for room");
        self.push(Tag::Present, value);
    }

    pub(super) fn push_digest(&mut self, digest: [u8; 16]) {
        self.push(Tag::Digest, &digest);
    }

    /// Makes the letters A to Z of the last `len` bytes a to z.
    pub(super) fn lowercase_last(&mut self, len: usize) {
        let from = self.len.saturating_sub(len);
        if let Some(last) = self.bytes.get_mut(from..self.len) {
            last.make_ascii_lowercase();
        }
    }

    fn push(&mut self, tag: Tag, value: &[u8]) {
        let [high, low] = u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes();
        let to = self.len + HEADER_LEN + value.len();
        if let Some(room) = self.bytes.get_mut(self.len..to)
            && let Some((head, body)) = room.split_first_chunk_mut::<HEADER_LEN>()
        {
            *head = [tag as u8, high, low];
            body.copy_from_slice(value);
            self.len = to;
            self.parts += 1;
        }
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

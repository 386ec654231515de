//! Encodes numbers for the scripts: fixed width, big-endian, 64-bit numbers split at a billion. Must not know: what
//! they count.

const BILLION: u64 = 1_000_000_000;

/// The longest blob.
const ROOM: usize = 96;

/// The packed arguments of one check, on the stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blob {
    bytes: [u8; ROOM],
    len: usize,
}

impl Default for Blob {
    fn default() -> Self {
        Self {
            bytes: [0; ROOM],
            len: 0,
        }
    }
}

impl Blob {
    pub(super) fn new(algorithm: u8, op: u8) -> Self {
        Self::default().byte(algorithm).byte(op)
    }

    pub(super) fn byte(self, n: u8) -> Self {
        self.with(&[n])
    }

    pub(super) fn small(self, n: u32) -> Self {
        self.with(&n.to_be_bytes())
    }

    /// A count that is small by construction. A larger one exceeds every limit, so it is capped.
    pub(super) fn count(self, n: u64) -> Self {
        self.small(u32::try_from(n).unwrap_or(u32::MAX))
    }

    /// Seven bytes, for numbers below 2^53.
    pub(super) fn wide(self, n: u64) -> Self {
        let [_, bytes @ ..] = n.min((1 << 53) - 1).to_be_bytes();
        self.with(&bytes)
    }

    /// Any number: five bytes of billions, four bytes of remainder.
    pub(super) fn pair(self, n: u64) -> Self {
        self.split(n / BILLION, n % BILLION)
    }

    pub(super) fn split(self, high: u64, low: u64) -> Self {
        let [_, _, _, high @ ..] = high.min((1 << 40) - 1).to_be_bytes();
        self.with(&high).count(low)
    }

    pub(super) fn id(self, id: u128) -> Self {
        self.with(&id.to_be_bytes())
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// The operation code: the second byte.
    pub(super) const fn operation_mut(&mut self) -> &mut u8 {
        let [_, operation, ..] = &mut self.bytes;
        operation
    }

    #[inline]
    fn with(mut self, bytes: &[u8]) -> Self {
        let end = self.len.saturating_add(bytes.len());
        let place = self.bytes.get_mut(self.len..end);
        debug_assert!(place.is_some(), "a blob of more than {ROOM} bytes");
        if let Some(place) = place {
            place.copy_from_slice(bytes);
            self.len = end;
        }
        self
    }
}

/// A number from the two halves in a reply; `None` if they are invalid.
pub(super) fn join_pair(high: i64, low: i64) -> Option<u64> {
    let (high, low) = (u64::try_from(high).ok()?, u64::try_from(low).ok()?);
    if low >= BILLION {
        return None;
    }
    high.checked_mul(BILLION)?.checked_add(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_back_from_its_halves() {
        for n in [0, 1, BILLION - 1, BILLION, 1 << 53, u64::MAX] {
            let halves = (n / BILLION, n % BILLION);
            let joined = join_pair(
                i64::try_from(halves.0).unwrap(),
                i64::try_from(halves.1).unwrap(),
            );
            assert_eq!(joined, Some(n));
            assert_eq!(Blob::default().pair(n).as_bytes().len(), 9);
        }
        assert_eq!(join_pair(-1, 0), None);
        assert_eq!(join_pair(0, 1_000_000_000), None);
        assert_eq!(join_pair(18_446_744_073, 709_551_616), None);
    }
}

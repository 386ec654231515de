//! Numbers as the scripts read them: fixed width, big-endian, 64 bits split at a billion. Must not know: what they count.

const BILLION: u64 = 1_000_000_000;

/// A blob under construction.
#[derive(Debug, Default)]
pub(super) struct Blob(Vec<u8>);

impl Blob {
    pub(super) fn of(algorithm: u8, op: u8) -> Self {
        let mut bytes = Vec::with_capacity(64);
        bytes.extend_from_slice(&[algorithm, op]);
        Self(bytes)
    }

    pub(super) fn byte(mut self, n: u8) -> Self {
        self.0.push(n);
        self
    }

    pub(super) fn small(mut self, n: u32) -> Self {
        self.0.extend_from_slice(&n.to_be_bytes());
        self
    }

    /// A count that is small by construction; what is not is far beyond any limit and means "very many".
    pub(super) fn count(self, n: u64) -> Self {
        self.small(u32::try_from(n).unwrap_or(u32::MAX))
    }

    /// Seven bytes, for numbers below 2^53.
    pub(super) fn wide(mut self, n: u64) -> Self {
        self.0
            .extend(n.min((1 << 53) - 1).to_be_bytes().iter().skip(1));
        self
    }

    /// Any number: five bytes of billions and four of the rest.
    pub(super) fn pair(self, n: u64) -> Self {
        self.split(n / BILLION, n % BILLION)
    }

    pub(super) fn split(mut self, high: u64, low: u64) -> Self {
        let high = high.min((1 << 40) - 1).to_be_bytes();
        self.0.extend(high.iter().skip(3));
        self.count(low)
    }

    pub(super) fn id(mut self, id: u128) -> Self {
        self.0.extend_from_slice(&id.to_be_bytes());
        self
    }

    pub(super) fn done(self) -> Vec<u8> {
        self.0
    }
}

/// A number from the two halves that a script sent, if they are what a script can send.
pub(super) fn joined(high: i64, low: i64) -> Option<u64> {
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
            let joined = joined(
                i64::try_from(halves.0).unwrap(),
                i64::try_from(halves.1).unwrap(),
            );
            assert_eq!(joined, Some(n));
            assert_eq!(Blob::default().pair(n).done().len(), 9);
        }
        assert_eq!(joined(-1, 0), None);
        assert_eq!(joined(0, 1_000_000_000), None);
        assert_eq!(joined(18_446_744_073, 709_551_616), None);
    }
}

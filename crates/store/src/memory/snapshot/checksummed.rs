//! Reads and writes words with a running checksum: FNV-1a, in which one changed byte always changes the sum.
//!
//! Must not know: what the words mean.

use std::io::{self, Read, Write};

use super::SnapshotError;

/// The checksum of no bytes.
const EMPTY: u64 = 0xcbf2_9ce4_8422_2325;

/// Writes words.
pub(super) struct ChecksumWriter<T> {
    inner: T,
    sum: u64,
}

/// Reads words. Nothing is trusted before the checksum has been read, and a forged file may have a correct one. So
/// callers check every count before they allocate.
pub(super) struct ChecksumReader<T> {
    inner: T,
    sum: u64,
}

impl<T: Write> ChecksumWriter<T> {
    pub(super) const fn new(inner: T) -> Self {
        Self { inner, sum: EMPTY }
    }

    pub(super) fn put(&mut self, word: u64) -> io::Result<()> {
        self.sum = add(self.sum, word.to_le_bytes());
        self.inner.write_all(&word.to_le_bytes())
    }

    pub(super) fn put_all(&mut self, words: impl IntoIterator<Item = u64>) -> io::Result<()> {
        words.into_iter().try_for_each(|word| self.put(word))
    }

    /// Writes the checksum and returns the inner writer.
    pub(super) fn finish(mut self) -> io::Result<T> {
        self.put(self.sum)?;
        Ok(self.inner)
    }
}

impl<T: Read> ChecksumReader<T> {
    pub(super) const fn new(inner: T) -> Self {
        Self { inner, sum: EMPTY }
    }

    pub(super) fn take(&mut self) -> Result<u64, SnapshotError> {
        let mut bytes = [0; 8];
        self.inner.read_exact(&mut bytes)?;
        self.sum = add(self.sum, bytes);
        Ok(u64::from_le_bytes(bytes))
    }

    pub(super) fn take_all<const N: usize>(&mut self) -> Result<[u64; N], SnapshotError> {
        let mut words = [0; N];
        for word in &mut words {
            *word = self.take()?;
        }
        Ok(words)
    }

    pub(super) fn take_flag(&mut self) -> Result<bool, SnapshotError> {
        match self.take()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(SnapshotError::Corrupted),
        }
    }

    /// A count, if `is_possible` accepts it.
    pub(super) fn take_count(
        &mut self,
        is_possible: impl FnOnce(usize) -> bool,
    ) -> Result<usize, SnapshotError> {
        let count = usize::try_from(self.take()?).ok();
        count
            .filter(|count| is_possible(*count))
            .ok_or(SnapshotError::Corrupted)
    }

    /// Reads the checksum.
    pub(super) fn finish(mut self) -> Result<(), SnapshotError> {
        let sum = self.sum;
        if self.take()? != sum {
            return Err(SnapshotError::Corrupted);
        }
        Ok(())
    }
}

fn add(sum: u64, bytes: [u8; 8]) -> u64 {
    bytes.into_iter().fold(sum, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

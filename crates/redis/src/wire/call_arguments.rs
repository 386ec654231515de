//! The keys or arguments of a call, in one allocation: there are several, and most are short.
//!
//! Must not know: what they mean.

/// A list of byte strings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallArguments {
    /// Each string after its length in four bytes.
    bytes: Vec<u8>,
    count: usize,
}

/// Bytes of a length.
const LEN: usize = 4;

impl CallArguments {
    /// An empty list with capacity for `arguments` strings of `bytes` bytes in total.
    pub(crate) fn with_capacity(arguments: usize, bytes: usize) -> Self {
        let capacity = arguments.saturating_mul(LEN).saturating_add(bytes);
        Self {
            bytes: Vec::with_capacity(capacity),
            count: 0,
        }
    }

    /// Appends a string.
    pub(crate) fn push(&mut self, argument: &[u8]) {
        self.push_with(|bytes| bytes.extend_from_slice(argument));
    }

    /// Appends a string that `append` writes.
    pub(crate) fn push_with(&mut self, append: impl FnOnce(&mut Vec<u8>)) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; LEN]);
        append(&mut self.bytes);
        let len = self.bytes.len().saturating_sub(at).saturating_sub(LEN);
        // Strings are far shorter than 4 GiB; the longest come from a policy, which is bounded.
        let len = u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes();
        if let Some(place) = self.bytes.get_mut(at..at.saturating_add(LEN)) {
            place.copy_from_slice(&len);
        }
        self.count = self.count.saturating_add(1);
    }

    /// The number of strings.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no strings.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The strings, in order.
    #[must_use]
    pub fn iter(&self) -> ArgumentIter<'_> {
        ArgumentIter { rest: &self.bytes }
    }

    /// The string at this position.
    #[must_use]
    pub fn get(&self, position: usize) -> Option<&[u8]> {
        self.iter().nth(position)
    }

    /// Whether the last string occurred before.
    pub(crate) fn repeats_last(&self) -> bool {
        let before = self.count.saturating_sub(1);
        before > 0
            && self
                .get(before)
                .is_some_and(|last| self.iter().take(before).any(|argument| argument == last))
    }
}

/// Iterates over the strings of a call.
#[derive(Clone, Debug)]
pub struct ArgumentIter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for ArgumentIter<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (len, rest) = self.rest.split_first_chunk::<LEN>()?;
        let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
        let (argument, rest) = rest.split_at_checked(len)?;
        self.rest = rest;
        Some(argument)
    }
}

impl<'a> IntoIterator for &'a CallArguments {
    type Item = &'a [u8];
    type IntoIter = ArgumentIter<'a>;

    fn into_iter(self) -> ArgumentIter<'a> {
        self.iter()
    }
}

impl<W: AsRef<[u8]>> FromIterator<W> for CallArguments {
    fn from_iter<I: IntoIterator<Item = W>>(arguments: I) -> Self {
        let mut all = Self::default();
        for argument in arguments {
            all.push(argument.as_ref());
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_come_back_as_they_were() {
        let long = vec![b'x'; 70_000];
        let given: [&[u8]; 5] = [b"one", b"", b"\0\0\0\x05", &long, b"two"];
        let arguments: CallArguments = given.iter().collect();
        assert_eq!(arguments.len(), 5);
        assert!(arguments.iter().eq(given));
        assert_eq!(arguments.get(4), Some(&b"two"[..]));
        assert_eq!(arguments.get(5), None);
        assert!(CallArguments::default().is_empty() && CallArguments::default().get(0).is_none());
    }

    #[test]
    fn a_repeated_argument_is_noticed() {
        let mut arguments: CallArguments = [b"a", b"b"].iter().collect();
        assert!(!arguments.repeats_last());
        arguments.push(b"");
        assert!(!arguments.repeats_last());
        arguments.push(b"a");
        assert!(arguments.repeats_last());
        assert!(!CallArguments::default().repeats_last());
    }
}

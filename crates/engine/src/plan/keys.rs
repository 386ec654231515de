//! The keys of one request. Each is built once, however many limits use it.
//!
//! Must not know: what keys are made of.

use tollgate_policy::rules::{KeyBuffer, KeyOutcome};

use super::KeyRef;

/// The keys of a request. The next request reuses the buffers.
#[derive(Debug)]
pub(super) struct RequestKeys {
    buffers: Vec<KeyBuffer>,
    /// The key spec and the outcome of each used buffer.
    built: Vec<(u32, KeyOutcome)>,
}

impl RequestKeys {
    pub(super) const fn new() -> Self {
        Self {
            buffers: Vec::new(),
            built: Vec::new(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.built.clear();
    }

    /// The key of this spec, built unless it exists already, and its index.
    #[inline]
    pub(super) fn make(
        &mut self,
        key_spec: u32,
        make: impl FnOnce(&mut KeyBuffer) -> KeyOutcome,
    ) -> (KeyOutcome, KeyRef) {
        let existing = self.built.iter().position(|(built, _)| *built == key_spec);
        let index = existing.unwrap_or(self.built.len());
        let outcome = match self.built.get(index) {
            Some((_, outcome)) => *outcome,
            None => {
                if self.buffers.len() <= index {
                    self.buffers.push(KeyBuffer::new());
                }
                let outcome = self.buffers.get_mut(index).map_or(KeyOutcome::Deny, make);
                self.built.push((key_spec, outcome));
                outcome
            }
        };
        // Fewer limits apply to one request than fit into the index type.
        (outcome, KeyRef::try_from(index).unwrap_or(KeyRef::MAX))
    }

    /// The encoded key at this index.
    #[inline]
    pub(super) fn bytes(&self, key: KeyRef) -> &[u8] {
        let buffer = self.buffers.get(usize::from(key));
        buffer.map_or(&[], KeyBuffer::as_bytes)
    }
}

//! The keys of one request, each made once however many limits go by it.
//!
//! Must not know: what keys are made of.

use tollgate_policy::rules::{KeyBuffer, Keyed};

/// Keys that were made for a request. Buffers are used again for the next one.
#[derive(Debug, Default)]
pub(super) struct Keys {
    buffers: Vec<KeyBuffer>,
    /// For each buffer in use, which recipe it was made by and what came of it.
    made: Vec<(u32, Keyed)>,
}

impl Keys {
    pub(super) fn clear(&mut self) {
        self.made.clear();
    }

    /// The key of this recipe, made now unless it was made before; answers where it is.
    pub(super) fn of(
        &mut self,
        recipe: u32,
        make: impl FnOnce(&mut KeyBuffer) -> Keyed,
    ) -> (Keyed, usize) {
        let known = self.made.iter().position(|(made, _)| *made == recipe);
        if let Some(place) = known {
            let keyed = self
                .made
                .get(place)
                .map_or(Keyed::Deny, |(_, keyed)| *keyed);
            return (keyed, place);
        }
        let place = self.made.len();
        if self.buffers.len() <= place {
            self.buffers.push(KeyBuffer::new());
        }
        let keyed = self.buffers.get_mut(place).map_or(Keyed::Deny, make);
        self.made.push((recipe, keyed));
        (keyed, place)
    }

    /// The encoded key that is there.
    pub(super) fn bytes(&self, place: usize) -> &[u8] {
        self.buffers.get(place).map_or(&[], KeyBuffer::as_bytes)
    }
}

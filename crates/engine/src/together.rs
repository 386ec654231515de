//! The engine as one of a fleet: the same questions, with the states that many share.
//!
//! Without a fleet every answer is there at once, from the engine's own store; so whoever asks this way need not know
//! whether there is one. Must not know: how a fleet decides, transports.

use tollgate_policy::attributes::Attributes;
use tollgate_policy::rules::{KeyBuffer, Meter, MeterRef, Role};
use tollgate_store::{ErrorKind, Key, KeyTooLong, Ruled, StoreError};

use crate::asks::AtOnce;
use crate::decide::Scratch;
use crate::engine::Engine;
use crate::fleet::{Alone, Consulting};
use crate::generation::{Generation, Metered};
use crate::store::StateStore;
use crate::ticket::{Response, Ticket};
use crate::verdict::Verdict;
use crate::witness::{Terms, Witness};

/// An [`Engine`] that takes its fleet along: see [`Engine::together`].
#[derive(Debug)]
pub struct Together<'e, S> {
    engine: &'e Engine<S>,
}

impl<S: StateStore> Engine<S> {
    /// The same engine with the fleet that it has joined, if it has.
    #[must_use]
    pub const fn together(&self) -> Together<'_, S> {
        Together { engine: self }
    }
}

impl<'e, S: StateStore> Together<'e, S> {
    /// Both tiers, if there are two.
    fn both(&self) -> Option<Consulting<'e, S>> {
        let fleet = self.engine.fleet()?;
        Some(Consulting::new(fleet, self.engine.store()))
    }

    /// Decides on a request: [`Engine::ask`], with the fleet.
    pub async fn ask(
        self,
        request: &dyn Attributes,
        terms: Terms,
        witness: Option<&dyn Witness>,
    ) -> Verdict {
        let engine = self.engine;
        let mut verdict = engine.blank();
        let mut scratch = Scratch::take();
        match self.both() {
            // Nobody is waited for then, and nothing is made ready for it.
            Some(both) if both.is_without_store() => {
                let alone = Alone::of(&both);
                let decision = engine.decision_on(alone, request, terms, witness);
                decision.make(&mut verdict, &mut scratch).await;
            }
            Some(both) => {
                let decision = engine.decision_on(both, request, terms, witness);
                // In a box, so that whoever has no fleet does not carry its room around.
                Box::pin(decision.make(&mut verdict, &mut scratch)).await;
            }
            None => {
                let store = AtOnce(engine.store());
                let decision = engine.decision_on(store, request, terms, witness);
                decision.make(&mut verdict, &mut scratch).await;
            }
        }
        scratch.keep();
        verdict
    }

    /// [`Engine::respond`], with the fleet.
    ///
    /// # Errors
    /// The store did not carry out some of it; the rest was.
    pub async fn respond(self, ticket: Ticket, response: &dyn Response) -> Result<(), StoreError> {
        let done = match self.both() {
            Some(both) => ticket.respond(&both, response).await,
            None => ticket.respond(&AtOnce(self.engine.store()), response).await,
        };
        drop(ticket);
        done
    }

    /// [`Engine::settle`], with the fleet.
    ///
    /// # Errors
    /// The store did not carry out some of it; the rest was.
    pub async fn settle(self, ticket: Ticket, actual: u64) -> Result<(), StoreError> {
        let done = match self.both() {
            Some(both) => ticket.settle(&both, actual).await,
            None => ticket.settle(&AtOnce(self.engine.store()), actual).await,
        };
        drop(ticket);
        done
    }

    /// [`Engine::cancel`], with the fleet.
    ///
    /// # Errors
    /// The store did not carry out some of it; the rest was.
    pub async fn cancel(self, ticket: Ticket) -> Result<(), StoreError> {
        let done = match self.both() {
            Some(both) => ticket.cancel(&both).await,
            None => ticket.cancel(&AtOnce(self.engine.store())).await,
        };
        drop(ticket);
        done
    }

    /// Forgets what a key has used of a limit in the store that is shared; [`Control::reset`](crate::Control::reset) does it
    /// on this node. Answers whether there was anything. Without a fleet there is not.
    ///
    /// # Errors
    /// The store did not answer. Some of it may be forgotten.
    pub async fn erase(self, limit: &str, values: &[&str]) -> Result<bool, StoreError> {
        let Some(fleet) = self.engine.fleet() else {
            return Ok(false);
        };
        let mut found = false;
        for kept in kept(&self.engine.generation(), limit, values) {
            let too_long =
                |error: KeyTooLong| StoreError::new(ErrorKind::BadRequest, error.to_string());
            let key = Key::of(&kept.key).map_err(too_long)?;
            let place = kept.place.as_deref().map(Key::of);
            let place = place.transpose().map_err(too_long)?;
            found |= fleet.remote().erase(place, key, &kept.ruled).await?;
            self.engine.forget_denials(Some((&key, kept.ruled.id)));
        }
        Ok(found)
    }

    /// [`Engine::renew`], with the fleet.
    ///
    /// # Errors
    /// The store did not answer.
    pub async fn renew(self, ticket: &Ticket) -> Result<bool, StoreError> {
        match self.both() {
            Some(both) => ticket.renew(&both).await,
            None => ticket.renew(&AtOnce(self.engine.store())).await,
        }
    }
}

/// One state that a key has.
struct Kept {
    key: Vec<u8>,
    place: Option<Vec<u8>>,
    ruled: Ruled,
}

/// Every state that a key of these values has under one limit.
fn kept(generation: &Generation, limit: &str, values: &[&str]) -> Vec<Kept> {
    let Some(index) = generation.index(limit) else {
        return Vec::new();
    };
    let Some((rule, entry)) = generation.rule(index) else {
        return Vec::new();
    };
    let rules = generation.rules();
    let of_meter = |(meter, (of, metered)): (usize, (&Meter, &Metered))| {
        let at = MeterRef { rule: index, meter };
        let mut buffer = KeyBuffer::new();
        if of.role == Role::Seen {
            return None;
        }
        rules.key_of(at, values, &mut buffer)?;
        let key = buffer.as_bytes().to_vec();
        let place = rules.place_of(at, values, &mut buffer);
        Some(Kept {
            key,
            place: place.then(|| buffer.as_bytes().to_vec()),
            ruled: *metered.listed.first()?,
        })
    };
    let meters = rule.meters.iter().zip(&entry.meters).enumerate();
    meters.filter_map(of_meter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_store::Memory;

    /// Servers run decisions on whatever thread is free.
    #[test]
    fn whoever_waits_may_go_on_on_another_thread() {
        fn is_send<T: Send>(_: &T) {}
        fn check(engine: &Engine<Memory>, request: &dyn Attributes, terms: Terms, ticket: Ticket) {
            is_send(&engine.together().ask(request, terms, None));
            is_send(&engine.together().respond(ticket, &200));
        }
        let _compiles = check;
    }
}

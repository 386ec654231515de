//! The engine as one of a fleet: the same questions, with the states that many share.
//!
//! Without a fleet every answer is there at once, from the engine's own store; so whoever asks this way need not know
//! whether there is one. Must not know: how a fleet decides, transports.

use tollgate_policy::attributes::Attributes;
use tollgate_store::StoreError;

use crate::asks::AtOnce;
use crate::decide::Scratch;
use crate::engine::Engine;
use crate::store::StateStore;
use crate::ticket::{Response, Ticket};
use crate::verdict::Verdict;
use crate::witness::{Terms, Witness};

/// An [`Engine`] that takes its fleet along: see [`Engine::together`].
#[derive(Clone, Copy, Debug)]
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

impl<S: StateStore> Together<'_, S> {
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
        let decision = engine.decision_on(AtOnce(engine.store()), request, terms, witness);
        decision.make(&mut verdict, &mut scratch).await;
        scratch.keep();
        verdict
    }

    /// [`Engine::respond`], with the fleet.
    ///
    /// # Errors
    /// The store did not carry out some of it; the rest was.
    pub async fn respond(self, ticket: Ticket, response: &dyn Response) -> Result<(), StoreError> {
        let done = ticket.respond(&AtOnce(self.engine.store()), response).await;
        drop(ticket);
        done
    }

    /// [`Engine::settle`], with the fleet.
    ///
    /// # Errors
    /// The store did not carry out some of it; the rest was.
    pub async fn settle(self, ticket: Ticket, actual: u64) -> Result<(), StoreError> {
        let done = ticket.settle(&AtOnce(self.engine.store()), actual).await;
        drop(ticket);
        done
    }

    /// [`Engine::cancel`], with the fleet.
    ///
    /// # Errors
    /// The store did not carry out some of it; the rest was.
    pub async fn cancel(self, ticket: Ticket) -> Result<(), StoreError> {
        let done = ticket.cancel(&AtOnce(self.engine.store())).await;
        drop(ticket);
        done
    }

    /// [`Engine::renew`], with the fleet.
    ///
    /// # Errors
    /// The store did not answer.
    pub async fn renew(self, ticket: &Ticket) -> Result<bool, StoreError> {
        ticket.renew(&AtOnce(self.engine.store())).await
    }
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

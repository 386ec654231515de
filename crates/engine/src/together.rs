//! The engine as one of a fleet: the same questions, with the states that many share.
//!
//! Without a fleet every answer is there at once, from the engine's own store; so whoever asks this way need not know
//! whether there is one. Must not know: how a fleet decides, transports.

use tollgate_policy::attributes::Attributes;
use tollgate_store::StoreError;

use crate::asks::AtOnce;
use crate::decide::Scratch;
use crate::engine::Engine;
use crate::fleet::Consulting;
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

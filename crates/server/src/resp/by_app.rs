//! `TG.CHECK` decided by the one limit of the HTTP endpoint: `TG.CHECK key alice` and `/v1/check?key=alice` share a state.
//!
//! Must not know: the protocol.

use tollgate_store::Clock;

use super::check::{Asked, Checker, Said};
use crate::app::App;

impl<C: Clock> Checker for App<C> {
    fn check(&self, asked: &Asked<'_>, say: &mut dyn FnMut(&Said<'_>)) {
        let mut key = None;
        for (name, value) in asked.attributes() {
            let wrong = |reason| Said::BadAttribute { name, reason };
            if name != b"key" {
                return say(&wrong(
                    "there is no such one; this server has one limit, by `key`",
                ));
            }
            if key.replace(value).is_some() {
                return say(&wrong("it is given twice"));
            }
        }
        let cost = asked.cost.unwrap_or(1);
        match self.ask(key.unwrap_or_default(), cost, asked.is_peek) {
            Ok((outcome, status)) => say(&Said::Verdict {
                outcome,
                limit: Some(self.name()),
                remaining: status.remaining,
                reset_after: status.reset_after,
            }),
            Err(error) => say(&Said::Failed(&error.to_string())),
        }
    }
}

//! Requests that would have to wait while as many wait as may: each of their limits says what becomes of them.
//!
//! What a limit says about a store that does not answer, it says about this too: `open` lets them through, `closed` refuses
//! with 503, and `local` goes by what the limit would say if it had no queue, which is a denial. Nothing is charged. Must not
//! know: sockets, how requests are decided.

use tollgate_core::{Nanos, Outcome};
use tollgate_engine::{Reason, Standing, Verdict};
use tollgate_policy::model::OnStoreFailure;
use tollgate_store::Clock;

use crate::app::App;
use crate::decided::Decided;
use crate::http::forward_auth::Gateway;
use crate::http::response::HttpResponse;
use crate::metrics::Cause;
use crate::words::About;

/// What becomes of a request that would have to wait while as many wait as may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitQueueFull {
    /// It goes on at once.
    LetThrough,
    /// It is refused.
    TurnedAway,
}

impl<C: Clock> App<C> {
    /// What becomes of a request that was looked at, if it would have to wait and cannot.
    pub(crate) fn crowded(&self, seen: &Verdict) -> Option<WaitQueueFull> {
        if !self.saturation.is_full() || !matches!(seen.outcome(), Outcome::Wait(_)) {
            return None;
        }
        Some(match fate(seen) {
            Fate::LetThrough => {
                self.saturation.count_let_through();
                WaitQueueFull::LetThrough
            }
            Fate::Refused(..) => {
                self.saturation.count_refused();
                WaitQueueFull::TurnedAway
            }
        })
    }

    /// The answer to a gateway about a request that was looked at, would have to wait, and cannot.
    pub(crate) fn crowd_out(&self, gateway: Gateway, seen: &Decided, wait: Nanos) -> HttpResponse {
        self.metrics()
            .degrade(Cause::Saturation, self.engine.store().now());
        let Fate::Refused(status, reason) = fate(&seen.verdict) else {
            self.saturation.count_let_through();
            return self.answering(seen, About::Request, |answer| {
                let reply = gateway.reply(&seen.verdict, None, answer);
                self.say(reply.after(Nanos::ZERO), answer)
            });
        };
        self.saturation.count_refused();
        gateway.turn_away(status, reason, wait)
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It goes on at once.
    LetThrough,
    /// It is refused with this status.
    Refused(u16, Reason),
}

/// What the limits that make a request wait say. One that refuses is enough, and 503 is the plainest of refusals.
fn fate(verdict: &Verdict) -> Fate {
    let mut fate = Fate::LetThrough;
    for state in verdict.limits() {
        let makes_wait = matches!(state.outcome, Outcome::Wait(_));
        let Some(rule) = verdict.rule(state) else {
            continue;
        };
        if !makes_wait || state.standing != Standing::Enforced {
            continue;
        }
        match rule.on_store_failure {
            OnStoreFailure::Open => {}
            OnStoreFailure::Closed => return Fate::Refused(503, Reason::Capacity),
            OnStoreFailure::Local => {
                let reason = verdict.reason().unwrap_or(Reason::Rate);
                fate = Fate::Refused(rule.status, reason);
            }
        }
    }
    fate
}

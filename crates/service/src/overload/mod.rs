//! Overload control of the service: sheds requests by class before they are decided, and holds a place for those that run.
//!
//! The state machines are those of `tollgate-overload`; the policy's `priorities` and `overload` say what is in force. A
//! transport calls [`RateLimitService::check_overload`] before the limits are asked and
//! [`enter_overload`](RateLimitService::enter_overload) after they admitted. Must not know: sockets, header fields.

mod control;
#[cfg(test)]
mod credit_tests;
mod credits;
mod fleet_usage;
mod permit;
mod process_cpu;
#[cfg(test)]
mod reserve_tests;
mod retries;
mod shed_counters;
mod status;
mod targets;
#[cfg(test)]
mod tests;

pub use control::OverloadControl;
use control::ProcessSignals;
pub use permit::{OverloadPermit, OverloadWait};
pub use status::{CreditStatus, FleetUsageStatus, OverloadStatus, OverloadTargetStatus, ShedCount};
pub use targets::OverloadTargets;
pub use tollgate_overload::CreditOffer;
pub use tollgate_policy::model::ShedMechanism;

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use tollgate_core::Nanos;
use tollgate_engine::DenialReason;
use tollgate_overload::{CreditClient, PriorityClass};
use tollgate_policy::attributes::Attributes;
use tollgate_policy::model::{Mode, OverloadSpec};
use tollgate_store::Clock;

use crate::decision::Refusal;
use crate::open_request::OpenRequest;
use crate::service::RateLimitService;
use retries::Attempt;

/// Keys the hashes of tenants, so that nobody can choose the queues of another.
static TENANT_HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The client of an address. A client chooses the last 64 bits of its IPv6 addresses, so they do not count.
fn tenant_of(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(v4) => TENANT_HASHER.hash_one(v4),
        IpAddr::V6(v6) => TENANT_HASHER.hash_one(v6.to_bits() >> 64),
    }
}

/// Why a request is shed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shed {
    /// The mechanism that sheds it.
    pub mechanism: ShedMechanism,
    /// What the client may send, if responses say so.
    pub credits: Option<CreditOffer>,
}

impl Shed {
    /// The sentence for people in problem details.
    pub const DETAIL: &str = "the service is overloaded and sheds requests; try again later";

    /// How the request is refused: 503, never 429, because the client did not exceed a quota.
    #[must_use]
    pub fn refusal(self) -> Refusal {
        let least = match self.mechanism {
            ShedMechanism::Concurrency | ShedMechanism::Reserve | ShedMechanism::Credits => {
                Nanos::SECOND
            }
            // It lets a class back slowly.
            ShedMechanism::Utilization => Nanos::from_secs(5),
            // It is a retry already.
            ShedMechanism::Retries => Nanos::from_secs(5),
        };
        let retry_after = self
            .credits
            .map_or(least, |credits| credits.valid_for.max(least));
        Refusal {
            status: 503,
            reason: Some(DenialReason::Capacity),
            retry_after: Some(retry_after),
        }
    }
}

/// A request that was not shed before its limits were asked.
#[derive(Debug)]
pub struct OverloadTicket {
    target: Arc<OverloadControl>,
    class: PriorityClass,
    /// The network of the client's address, as a keyed hash. `None` if nobody knows the address.
    tenant: Option<u64>,
    attempt: Attempt,
    overload: OverloadSpec,
}

impl OverloadTicket {
    /// Who gets the credits. `None` if they are off, or would be divided among clients that nobody can tell apart.
    fn credit_client(&self) -> Option<CreditClient> {
        let (id, class) = (self.tenant?, self.class);
        (self.overload.credits != Mode::Off).then_some(CreditClient { id, class })
    }
}

/// What happens to a request that its limits admitted.
#[derive(Debug)]
pub enum OverloadEntry {
    /// It runs while it holds the permit.
    Started(OverloadPermit),
    /// It waits for a place.
    Waiting(OverloadWait),
    /// It is shed.
    Shed(Shed),
}

impl<C: Clock> RateLimitService<C> {
    /// Decides whether a request is shed before its limits are asked. `target` finds what the request goes to, if the transport
    /// knows it; it is only called if something may shed. `None` if the policy switches nothing on, or
    /// operators have switched it off.
    ///
    /// # Errors
    /// The request is shed.
    #[inline]
    pub fn check_overload(
        &self,
        request: &dyn Attributes,
        target: impl FnOnce() -> Option<Arc<OverloadControl>>,
    ) -> Result<Option<OverloadTicket>, Shed> {
        if !self.features().may_have_priorities() {
            return Ok(None);
        }
        self.check_priorities(request, target)
    }

    #[inline(never)]
    fn check_priorities(
        &self,
        request: &dyn Attributes,
        target: impl FnOnce() -> Option<Arc<OverloadControl>>,
    ) -> Result<Option<OverloadTicket>, Shed> {
        let generation = self.engine().generation();
        let Some((priorities, overload)) = generation.overload().filter(|(_, spec)| !spec.is_off())
        else {
            return Ok(None);
        };
        let class = PriorityClass::new(priorities.class_of(request));
        let ticket = OverloadTicket {
            target: target().unwrap_or_else(|| Arc::clone(self.overload.unnamed())),
            class: class.unwrap_or(PriorityClass::CRITICAL),
            tenant: request.ip().map(tenant_of),
            attempt: match overload.retries {
                Mode::Off => Attempt::Unknown,
                Mode::Enforce | Mode::Shadow => self.attempt(priorities.retries(), request),
            },
            overload,
        };
        let signals = ProcessSignals {
            runtime_delay: Nanos::from_micros(self.saturation().late_micros()),
            cpu: self.overload.cpu().share().unwrap_or(0.0),
        };
        let classes = priorities.names().len();
        ticket.target.check(self.now(), &ticket, classes, signals)?;
        Ok(Some(ticket))
    }

    /// The credits that the response to an admitted request reports to its client. `None` if the policy sends no credits, or if the
    /// capacity was not found yet.
    pub fn offer_credits(&self, ticket: &OverloadTicket) -> Option<CreditOffer> {
        ticket.target.offer_credits(self.now(), ticket)
    }

    /// Takes a place for a request that its limits admitted.
    pub fn enter_overload(&self, ticket: &OverloadTicket) -> OverloadEntry {
        OverloadControl::enter(&ticket.target, self.now(), ticket)
    }

    /// The targets of requests, each with its own concurrency limit, queue and shedders.
    #[must_use]
    pub const fn overload_targets(&self) -> &OverloadTargets {
        &self.overload
    }

    /// Keeps the permit until the response has ended, together with what else has to be settled.
    pub fn hold_overload_permit(
        self: &Arc<Self>,
        request: Option<Box<OpenRequest<C>>>,
        permit: OverloadPermit,
    ) -> Box<OpenRequest<C>> {
        let mut request =
            request.unwrap_or_else(|| Box::new(OpenRequest::settled(Arc::clone(self))));
        request.overload = Some(permit);
        request
    }

    /// The state of overload control. `None` if the policy switches nothing on.
    #[must_use]
    pub fn overload_status(&self) -> Option<OverloadStatus> {
        let generation = self.engine().generation();
        let (priorities, overload) = generation.overload()?;
        let names = priorities.names();
        Some(self.overload.status(self.now(), names, overload))
    }
}

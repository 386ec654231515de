//! Overload control of the service: sheds requests by class before they are decided, and holds a place for those that run.
//!
//! The state machines are those of `tollgate-overload`; the policy's `priorities` and `overload` say what is in force. A
//! transport calls [`RateLimitService::check_overload`] before the limits are asked and
//! [`enter_overload`](RateLimitService::enter_overload) after they admitted. Must not know: sockets, header fields.

mod control;
mod permit;
mod shed_counters;
mod status;
#[cfg(test)]
mod tests;

pub(crate) use control::OverloadControl;
pub use permit::{OverloadPermit, OverloadWait};
pub use shed_counters::ShedMechanism;
pub use status::{OverloadStatus, ShedCount};

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, LazyLock};

use tollgate_core::Nanos;
use tollgate_engine::DenialReason;
use tollgate_overload::PriorityClass;
use tollgate_policy::attributes::Attributes;
use tollgate_policy::model::OverloadSpec;
use tollgate_store::Clock;

use crate::decision::Refusal;
use crate::open_request::OpenRequest;
use crate::service::RateLimitService;

/// Keys the hashes of tenants, so that nobody can choose the queues of another.
static TENANT_HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Why a request is shed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shed {
    /// The mechanism that sheds it.
    pub mechanism: ShedMechanism,
}

impl Shed {
    /// The sentence for people in problem details.
    pub const DETAIL: &str = "the service is overloaded and sheds requests; try again later";

    /// How the request is refused: 503, never 429, because the client did not exceed a quota.
    #[must_use]
    pub const fn refusal(self) -> Refusal {
        let retry_after = match self.mechanism {
            ShedMechanism::Concurrency | ShedMechanism::Reserve => Nanos::SECOND,
            // It lets a class back slowly.
            ShedMechanism::Utilization => Nanos::from_secs(5),
        };
        Refusal {
            status: 503,
            reason: Some(DenialReason::Capacity),
            retry_after: Some(retry_after),
        }
    }
}

/// A request that was not shed before its limits were asked.
#[derive(Clone, Copy, Debug)]
pub struct OverloadTicket {
    class: PriorityClass,
    tenant: u64,
    overload: OverloadSpec,
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
    /// Decides whether a request is shed before its limits are asked. `None` if the policy switches nothing on.
    ///
    /// # Errors
    /// The request is shed.
    pub fn check_overload(&self, request: &dyn Attributes) -> Result<Option<OverloadTicket>, Shed> {
        let generation = self.engine().generation();
        let Some(priorities) = generation.rules().priorities() else {
            return Ok(None);
        };
        let class = PriorityClass::new(priorities.class_of(request));
        let ticket = OverloadTicket {
            class: class.unwrap_or(PriorityClass::CRITICAL),
            tenant: TENANT_HASHER.hash_one(request.ip()),
            overload: *priorities.overload(),
        };
        let lateness = Nanos::from_micros(self.saturation().late_micros());
        let classes = priorities.names().len();
        self.overload
            .check(self.now(), &ticket, classes, lateness)
            .map(|()| Some(ticket))
    }

    /// Takes a place for a request that its limits admitted.
    pub fn enter_overload(&self, ticket: OverloadTicket) -> OverloadEntry {
        OverloadControl::enter(&self.overload, self.now(), &ticket)
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
        let priorities = generation.rules().priorities()?;
        Some(self.overload.status(priorities.names()))
    }
}

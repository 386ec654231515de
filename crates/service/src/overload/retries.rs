//! Recognises retries, for the retry budget.
//!
//! A client that nobody knows could spend the budget of all others, or earn retries with requests that it invents. So only
//! authenticated clients count, with their first tries and with their retries. No signature is computed for it: a token counts
//! once a limit has had it verified, and a retry follows a first try. Must not know: tokens, what is shed.

use tollgate_overload::RetryBudget;
use tollgate_policy::attributes::{Attribute, Attributes};
use tollgate_policy::model::{Percent, RetrySource};
use tollgate_store::Clock;

use crate::service::RateLimitService;

/// Which try of a request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// The client is not authenticated, so it is not believed.
    Unknown,
    /// The first one.
    First,
    /// A later one.
    Retry,
}

/// The retry budget of one target, by the share of the policy in force.
#[derive(Debug, Default)]
pub(super) struct TargetRetries {
    budget: Option<(Percent, RetryBudget)>,
}

impl<C: Clock> RateLimitService<C> {
    /// Which try of an authenticated client this is.
    pub(super) fn attempt(&self, source: &RetrySource, request: &dyn Attributes) -> Attempt {
        let Some(client) = &source.client else {
            return Attempt::Unknown;
        };
        let is_authenticated = match &client.value {
            claim @ Attribute::Claim(_) => {
                let lookup = self.claims().lookup();
                lookup.is_some_and(|lookup| lookup.has_verified_claim(request, claim, self.now()))
            }
            other => request.get(other).is_some_and(|value| !value.is_empty()),
        };
        if !is_authenticated {
            return Attempt::Unknown;
        }
        let number = request.get(&source.header).and_then(|value| {
            let digits = std::str::from_utf8(value).ok()?;
            digits.trim().parse::<u32>().ok()
        });
        match number {
            Some(number) if number > 1 => Attempt::Retry,
            _ => Attempt::First,
        }
    }
}

impl TargetRetries {
    /// Counts a request. Returns whether it is a retry above the budget.
    pub(super) fn is_above_budget(&mut self, attempt: Attempt, share: Percent) -> bool {
        if self
            .budget
            .as_ref()
            .is_none_or(|(known, _)| *known != share)
        {
            let budget = RetryBudget::from_hundredths_of_percent(share.hundredths());
            self.budget = Some((share, budget));
        }
        let Some((_, budget)) = &self.budget else {
            return false;
        };
        match attempt {
            Attempt::Unknown => false,
            Attempt::First => {
                budget.record_request();
                false
            }
            Attempt::Retry => !budget.take(),
        }
    }
}

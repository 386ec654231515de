//! The credits of a client as a rate limit item.
//!
//! Must not know: how credits are computed, dialects.

use std::sync::LazyLock;

use tollgate_core::{Nanos, Outcome, QuotaStatus, QuotaUnit};
use tollgate_http::{QuotaPolicy, RateLimitItem};

use crate::overload::{CreditOffer, ShedMechanism};

/// Under the name of the switch, because no limit can have this name.
static POLICY: LazyLock<Option<QuotaPolicy>> = LazyLock::new(|| {
    let name = ShedMechanism::Credits.switch_name();
    QuotaPolicy::new(name, 1, Nanos::SECOND, QuotaUnit::Requests).ok()
});

/// The item of a client's credits.
pub(super) fn item(credits: &CreditOffer, outcome: Outcome) -> Option<RateLimitItem<'static>> {
    let status = QuotaStatus {
        limit: credits.quota.into(),
        remaining: credits.remaining.into(),
        reset_after: credits.valid_for,
    };
    let item = RateLimitItem::new(POLICY.as_ref()?, outcome, &status);
    Some(item.with_quota(credits.quota.into(), credits.window))
}

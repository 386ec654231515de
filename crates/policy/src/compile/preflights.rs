//! The built-in limit of CORS preflights: one quota for each address.
//!
//! Must not know: how requests are matched.

use crate::attributes::Attribute;
use crate::model::{
    Algorithm, Amount, KeyPart, LimitRule, Located, Policy, QuotaDetails, QuotaSpec, Test,
};
use tollgate_core::QuotaUnit;

/// The limit that preflights are charged to. `None` if they are ordinary requests, or if the policy has no limits.
pub(crate) fn preflight_limit(policy: &Policy) -> Option<LimitRule> {
    let rate = policy.preflights?;
    // A policy that only observes must not begin to deny.
    let modes = policy.limits.iter();
    let mode = modes.map(|limit| limit.mode.max(policy.mode)).min()?;
    let quota = QuotaSpec {
        algorithm: Algorithm::TokenBucket,
        amount: Amount::Rates(vec![rate]),
        burst: None,
        unit: QuotaUnit::Requests,
        utc_offset_minutes: 0,
        details: QuotaDetails::default(),
    };
    let name = Box::<str>::from(Policy::PREFLIGHTS_NAME);
    let mut limit = LimitRule::new(name, Located::new(quota, rate.location));
    limit.key = vec![KeyPart::new(Attribute::Ip.into())];
    limit.mode = mode;
    Some(limit)
}

/// Whether a limit names the method `OPTIONS`. Such a limit is meant for preflights too.
pub(super) fn names_options(limit: &LimitRule) -> bool {
    limit.matching.conditions.iter().any(|condition| {
        condition.value.attribute == Attribute::Method
            && matches!(&condition.value.test, Test::OneOf(methods) if methods.iter().any(|one| &**one == "OPTIONS"))
    })
}

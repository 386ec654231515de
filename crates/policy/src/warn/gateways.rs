//! Warns of what gateways that ask by forward-auth cannot do: they send no claims and do not report the end of a request.
//!
//! Must not know: whether a gateway is used. Programs that ask over the API do both.

use crate::attributes::Attribute;
use crate::humanize::format_duration;
use crate::model::{Amount, LimitRule, Match, Policy};
use crate::read::DiagnosticSink;
use crate::source::SourceLocation;

/// Warns of each limit with `concurrency`.
pub(super) fn warn_of_concurrency(policy: &Policy, sink: &mut DiagnosticSink) {
    for limit in &policy.limits {
        if let Amount::Concurrency { lease, .. } = limit.quota.value.amount {
            sink.add(
                limit.quota.location,
                format!(
                    "limit `{}`: behind a gateway every request holds its permit for {}, because gateways do not report the end of a request",
                    limit.name.value,
                    format_duration(lease)
                ),
                "use a `rate` behind nginx, Envoy, Traefik, Caddy and HAProxy; programs that report the end are not concerned",
            );
        }
    }
}

/// Warns of the first claim, unless the policy says which tokens are accepted.
pub(super) fn warn_of_claims(policy: &Policy, sink: &mut DiagnosticSink) {
    if policy.jwt.is_some() {
        return;
    }
    let lists = policy
        .exempt
        .iter()
        .chain(policy.deny.iter().map(|deny| &deny.matching));
    let found = lists
        .filter_map(claim_in_match)
        .chain(policy.limits.iter().filter_map(claim_in_limit))
        .min_by_key(|(location, _)| *location);
    if let Some((location, claim)) = found {
        sink.add(
            location,
            format!("`{claim}` is never present behind nginx, Traefik, Caddy and HAProxy, which send no claims"),
            "say with `jwt` which tokens are accepted, or use `header.NAME`; programs that ask over the API send verified claims",
        );
    }
}

pub(super) fn claim_in_match(matching: &Match) -> Option<(SourceLocation, &Attribute)> {
    let mut conditions = matching.conditions.iter();
    let found = conditions.find(|condition| is_claim(&condition.value.attribute))?;
    Some((found.location, &found.value.attribute))
}

fn claim_in_limit(limit: &LimitRule) -> Option<(SourceLocation, &Attribute)> {
    let levels = limit.levels.iter().flat_map(|level| &level.key);
    let mut parts = limit.key.iter().chain(levels);
    let tiers = limit.tiers.iter().map(|tiers| &tiers.by);
    let selected_by = tiers.chain(limit.shares.iter().map(|shares| &shares.by));
    let mut selected_by = selected_by.map(|by| (by.location, &by.value));
    let quotas = limit.tiers.iter().flat_map(|tiers| &tiers.tiers);
    let quotas = quotas.map(|(_, quota)| quota).chain([&limit.quota]);
    let mut times = quotas.filter_map(|quota| match &quota.value.amount {
        Amount::Computed(computed) => Some((quota.location, &computed.times)),
        _ => None,
    });
    claim_in_match(&limit.matching)
        .or_else(|| {
            let part = parts.find(|part| is_claim(&part.attribute.value))?;
            Some((part.attribute.location, &part.attribute.value))
        })
        .or_else(|| selected_by.find(|(_, by)| is_claim(by)))
        .or_else(|| times.find(|(_, times)| is_claim(times)))
}

const fn is_claim(attribute: &Attribute) -> bool {
    matches!(attribute, Attribute::Claim(_))
}

#[cfg(test)]
mod tests {
    use super::super::tests::warnings_of;

    #[test]
    fn a_concurrency_limit_is_warned_of() {
        let of = |limit: &str| {
            warnings_of(
                "concurrency-behind-gateway",
                &format!("limits: [{{ name: a, {limit} }}]"),
            )
        };
        assert_eq!(
            of("concurrency: 5, lease: 10s"),
            [
                "limit `a`: behind a gateway every request holds its permit for 10 s, because gateways do not report the end of a request"
            ]
        );
        assert!(of("rate: 5/s").is_empty());
    }

    #[test]
    fn the_first_claim_of_a_policy_is_warned_of() {
        let of = |limit: &str| {
            warnings_of(
                "claim-behind-gateway",
                &format!("limits: [{{ name: a, rate: 1/s, {limit} }}]"),
            )
        };
        for limit in [
            "key: claim.sub",
            "match: { claim.sub: present }",
            "key: ip, tiers: { by: claim.sub, pro: 9/s }",
            "key: [claim.sub, claim.org]",
        ] {
            assert_eq!(
                of(limit),
                [
                    "`claim.sub` is never present behind nginx, Traefik, Caddy and HAProxy, which send no claims"
                ],
                "{limit}"
            );
        }
        assert!(of("key: header.x-user").is_empty());
        let verified =
            "jwt: { keys_file: k.json }\nlimits: [{ name: a, key: claim.sub, rate: 1/s }]";
        assert!(warnings_of("claim-behind-gateway", verified).is_empty());
        let exempt = "exempt: [{ claim.role: admin }]\nlimits: [{ name: a, rate: 1/s }]";
        assert_eq!(warnings_of("claim-behind-gateway", exempt).len(), 1);
        let computed = "limits: [{ name: a, rate: \"5/h + 5/h × claim.repos, at most 50/h\" }]";
        assert_eq!(warnings_of("claim-behind-gateway", computed).len(), 1);
    }
}

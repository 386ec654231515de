//! Warns of exemptions and larger quotas that a client can give itself by sending a header, a cookie or a query parameter.
//!
//! Must not know: which header fields a gateway removes or sets.

use crate::attributes::Attribute;
use crate::model::{Amount, LimitRule, Match, Policy};
use crate::read::DiagnosticSink;

const HELP: &str =
    "add a condition on `ip` or a `claim`, or let the gateway set it and remove what clients send";

pub(super) fn warn(policy: &Policy, sink: &mut DiagnosticSink) {
    for matching in &policy.exempt {
        if is_restricted(matching) {
            continue;
        }
        if let Some(condition) = matching
            .conditions
            .iter()
            .find(|condition| is_sent_by_clients(&condition.value.attribute))
        {
            let attribute = &condition.value.attribute;
            sink.add(
                condition.location,
                format!("`exempt` depends on `{attribute}`, which every client can send"),
                HELP,
            );
        }
    }
    for limit in &policy.limits {
        warn_of_limit(limit, sink);
    }
}

fn warn_of_limit(limit: &LimitRule, sink: &mut DiagnosticSink) {
    if is_restricted(&limit.matching) {
        return;
    }
    let name = &limit.name.value;
    let tiers = limit.tiers.iter().map(|tiers| ("tier", &tiers.by));
    let shares = limit.shares.iter().map(|shares| ("share", &shares.by));
    for (what, by) in tiers.chain(shares) {
        if is_sent_by_clients(&by.value) {
            let attribute = &by.value;
            sink.add(
                by.location,
                format!(
                    "limit `{name}`: the {what} depends on `{attribute}`, which every client can send"
                ),
                HELP,
            );
        }
    }
    let tiers = limit.tiers.iter().flat_map(|tiers| &tiers.tiers);
    let quotas = tiers
        .map(|(_, quota)| quota)
        .chain([&limit.quota])
        .chain(limit.levels.iter().map(|level| &level.quota));
    for quota in quotas {
        if let Amount::Computed(computed) = &quota.value.amount
            && is_sent_by_clients(&computed.times)
        {
            let times = &computed.times;
            sink.add(
                computed.base.location,
                format!(
                    "limit `{name}`: the rate grows with `{times}`, which every client can send"
                ),
                HELP,
            );
        }
    }
}

/// Whether a condition restricts the match to clients that cannot choose to be matched.
fn is_restricted(matching: &Match) -> bool {
    matching.conditions.iter().any(|condition| {
        matches!(
            condition.value.attribute,
            Attribute::Ip | Attribute::Claim(_)
        )
    })
}

const fn is_sent_by_clients(attribute: &Attribute) -> bool {
    matches!(
        attribute,
        Attribute::Header(_) | Attribute::Cookie(_) | Attribute::Query(_)
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::warnings_of;

    fn warnings(text: &str) -> Vec<String> {
        warnings_of("client-chosen", text)
    }

    #[test]
    fn an_exemption_that_a_client_can_give_itself_is_warned_of() {
        let limits = "limits: [{ name: a, rate: 1/s }]\n";
        for (exempt, warned) in [
            ("header.x-internal: yes", Some("header.x-internal")),
            ("cookie.staff: present", Some("cookie.staff")),
            ("query.debug: \"1\"", Some("query.debug")),
            ("header.x: absent, method: GET", Some("header.x")),
            ("header.x-internal: yes, ip: 10.0.0.0/8", None),
            ("header.x-internal: yes, claim.role: admin", None),
            ("route: /health", None),
            ("ip: 10.0.0.0/8", None),
        ] {
            let found = warnings(&format!("exempt: [{{ {exempt} }}]\n{limits}"));
            let expected = warned
                .map(|name| format!("`exempt` depends on `{name}`, which every client can send"));
            assert_eq!(found, Vec::from_iter(expected), "{exempt}");
        }
    }

    #[test]
    fn a_tier_or_a_rate_that_a_client_can_give_itself_is_warned_of() {
        let limit = |fields: &str| {
            warnings(&format!(
                "limits: [{{ name: a, key: [ip], rate: 1/s, {fields} }}]"
            ))
        };
        assert_eq!(
            limit("tiers: { by: header.x-plan, pro: 9/s }"),
            ["limit `a`: the tier depends on `header.x-plan`, which every client can send"]
        );
        assert!(limit("tiers: { by: claim.plan, pro: 9/s }").is_empty());
        assert!(
            limit("match: { ip: 10.0.0.0/8 }, tiers: { by: header.x-plan, pro: 9/s }").is_empty()
        );
        let computed = |times: &str| {
            warnings(&format!(
                "limits: [{{ name: a, rate: \"5/h + 5/h × {times}, at most 50/h\" }}]"
            ))
        };
        assert_eq!(
            computed("header.repos"),
            ["limit `a`: the rate grows with `header.repos`, which every client can send"]
        );
        assert!(computed("claim.repos").is_empty());
    }
}

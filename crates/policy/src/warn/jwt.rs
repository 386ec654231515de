//! Warns of `jwt` settings that accept more, or cost more, than their author may think.
//!
//! Must not know: how tokens are verified.

use super::gateways::claim_in_match;
use crate::model::Policy;
use crate::read::DiagnosticSink;

/// Warns of an exemption that reads a claim: no limit can be decided before the token is verified.
pub(super) fn warn_of_exemption(policy: &Policy, sink: &mut DiagnosticSink) {
    let found = policy.exempt.iter().find_map(claim_in_match);
    if let (Some((location, claim)), Some(_)) = (found, &policy.jwt) {
        sink.add(
            location,
            format!("`exempt` reads `{claim}`, so every unknown token is verified before the limit of its address is decided"),
            "use tiers with `unlimited: true` instead, or accept that clients can have signatures computed",
        );
    }
}

/// Warns of tokens that were issued for other services.
pub(super) fn warn_of_audience(policy: &Policy, sink: &mut DiagnosticSink) {
    let Some(jwt) = &policy.jwt else { return };
    if jwt.audiences.is_empty() {
        let keys = jwt.keys.iter().map(|key| key.location);
        let file = jwt.keys_file.iter().map(|path| path.location);
        sink.add(
            file.chain(keys).next().unwrap_or_default(),
            "`jwt` has no `audiences`, so tokens that the issuer made for other services are accepted",
            "add `audiences:` with the name of this service in `aud`",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::warnings_of;

    #[test]
    fn an_exemption_by_claim_and_a_missing_audience_are_warned_of() {
        let of = |kind: &str, jwt: &str| {
            let text = format!(
                "{jwt}exempt: [{{ claim.role: admin }}]\nlimits: [{{ name: a, rate: 1/s }}]"
            );
            warnings_of(kind, &text).len()
        };
        let (open, strict) = (
            "jwt: { keys_file: k.json }\n",
            "jwt: { keys_file: k.json, audiences: api }\n",
        );
        assert_eq!(
            (of("claim-exemption", strict), of("claim-exemption", "")),
            (1, 0)
        );
        assert_eq!(
            (of("jwt-any-audience", open), of("jwt-any-audience", strict)),
            (1, 0)
        );
    }
}

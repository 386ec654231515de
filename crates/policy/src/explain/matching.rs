//! Describes conditions and keys.
//!
//! Must not know: how requests are matched and how keys are encoded.

use crate::attributes::Attribute;
use crate::model::{Condition, KeyPart, Match, OnMissing, Test};

/// The maximum number of values that are listed; the others are only counted.
const MAX_VALUES_SHOWN: usize = 6;

/// Describes which requests a rule matches.
pub(super) fn describe_match(matching: &Match) -> String {
    if matching.conditions.is_empty() {
        return "every request".to_owned();
    }
    let all: Vec<_> = matching
        .conditions
        .iter()
        .map(|at| describe_condition(&at.value))
        .collect();
    format!("requests whose {}", all.join(" and "))
}

/// Describes one condition.
pub(super) fn describe_condition(condition: &Condition) -> String {
    format!("{} {}", condition.attribute, describe_test(&condition.test))
}

fn describe_test(test: &Test) -> String {
    match test {
        Test::Present => "is present".to_owned(),
        Test::Absent => "is absent".to_owned(),
        Test::Not(inner) => match &**inner {
            Test::Present => "is both present and absent".to_owned(),
            Test::Absent => "is present".to_owned(),
            Test::Not(twice) => format!("is present and {}", describe_test(twice)),
            once => format!("is present but {}", describe_values(once, false)),
        },
        plain => describe_values(plain, true),
    }
}

/// Describes the values that a test accepts, or rejects if `is_so` is false.
fn describe_values(test: &Test, is_so: bool) -> String {
    let verb = |yes, no| if is_so { yes } else { no };
    match test {
        Test::OneOf(values) => {
            let values = join_values(values.iter().map(|value| quote_if_needed(value)));
            format!("{} {values}", verb("is", "is not"))
        }
        Test::Glob(globs) => {
            let globs = join_values(globs.iter().map(|glob| glob.0.to_string()));
            format!("{} {globs}", verb("matches", "does not match"))
        }
        Test::Route(routes) => {
            let routes = join_values(routes.iter().map(|route| route.0.to_string()));
            format!("{} {routes}", verb("is", "is not"))
        }
        Test::Within(networks) => {
            let networks = join_values(networks.iter().map(ToString::to_string));
            format!("{} {networks}", verb("is in", "is not in"))
        }
        Test::Present | Test::Absent | Test::Not(_) => describe_test(test),
    }
}

fn quote_if_needed(value: &str) -> String {
    let is_plain = !value.is_empty() && value.chars().all(|c| c.is_ascii_graphic());
    if is_plain {
        value.to_owned()
    } else {
        format!("{value:?}")
    }
}

fn join_values(values: impl Iterator<Item = String>) -> String {
    let all: Vec<_> = values.collect();
    let more = all.len().saturating_sub(MAX_VALUES_SHOWN);
    let named = all
        .into_iter()
        .take(MAX_VALUES_SHOWN)
        .collect::<Vec<_>>()
        .join(" or ");
    if more == 0 {
        named
    } else {
        format!("{named} or {more} more")
    }
}

/// The key that it counts by.
pub(super) fn describe_key(key: &[KeyPart]) -> String {
    if key.is_empty() {
        return "everyone together".to_owned();
    }
    let parts: Vec<_> = key.iter().map(describe_key_part).collect();
    format!("each {}", parts.join(" and "))
}

/// Describes one part of a key and its options.
pub(super) fn describe_key_part(part: &KeyPart) -> String {
    let mut ways = Vec::new();
    if part.attribute.value == Attribute::Ip {
        ways.push(format!("IPv4 /{}, IPv6 /{}", part.v4_bits, part.v6_bits));
    }
    if part.lower {
        ways.push("lower-cased".to_owned());
    }
    if part.hash {
        ways.push("hashed".to_owned());
    }
    let name = &part.attribute.value;
    if ways.is_empty() {
        name.to_string()
    } else {
        format!("{name} ({})", ways.join(", "))
    }
}

/// Describes what happens if parts of a key are missing, one sentence per outcome.
pub(super) fn describe_missing(key: &[KeyPart]) -> Vec<String> {
    let meanings = [
        (OnMissing::Shared, "all such requests share one quota"),
        (OnMissing::Skip, "the limit does not apply"),
        (OnMissing::Deny, "the request is refused"),
    ];
    let mut sentences = Vec::new();
    for (meaning, words) in meanings {
        let parts: Vec<_> = key
            .iter()
            .filter(|part| part.missing == meaning)
            .map(|part| part.attribute.value.to_string())
            .collect();
        if !parts.is_empty() {
            sentences.push(format!("without {}: {words}", parts.join(" or ")));
        }
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Glob;
    use crate::tests::fixtures::attribute;

    #[test]
    fn every_test_has_a_description() {
        let words = |name: &str, test: Test| {
            describe_condition(&Condition {
                attribute: attribute(name),
                test,
            })
        };
        let admin = || Test::OneOf(vec!["admin".into(), "".into()]);
        assert_eq!(words("claim.role", admin()), "claim.role is admin or \"\"");
        let not = |test| Test::Not(Box::new(test));
        assert_eq!(
            words("claim.role", not(admin())),
            "claim.role is present but is not admin or \"\""
        );
        let glob = || Test::Glob(vec![Glob("*.example.com".into())]);
        assert_eq!(words("host", glob()), "host matches *.example.com");
        assert_eq!(
            words("host", not(glob())),
            "host is present but does not match *.example.com"
        );
        assert_eq!(words("query.debug", Test::Absent), "query.debug is absent");
        let many = (0..9).map(|n| format!("10.{n}.0.0/16").parse().unwrap());
        assert!(words("ip", Test::Within(many.collect())).ends_with("10.5.0.0/16 or 3 more"));
    }
}

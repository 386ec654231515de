//! Conditions as the `match` of a file.
//!
//! Must not know: limits.

use crate::model::{Match, Test};

use super::out::{Fields, Out};

/// The conditions of a rule by their attributes.
pub(super) fn conditions(matching: &Match) -> Out {
    let mut fields = Fields::default();
    for condition in &matching.conditions {
        let condition = &condition.value;
        fields.add(&condition.attribute.to_string(), test(&condition.test));
    }
    fields.into()
}

fn test(test: &Test) -> Out {
    match test {
        Test::OneOf(values) => Out::one_or_list(values.iter().map(|v| Out::text(v)).collect()),
        Test::Route(routes) => Out::one_or_list(routes.iter().map(|r| Out::text(&r.0)).collect()),
        Test::Within(networks) => Out::one_or_list(
            networks
                .iter()
                .map(|network| Out::text(&format!("{}/{}", network.address, network.bits)))
                .collect(),
        ),
        // Always spelled out: a pattern without `*` and `?` would be taken for a text.
        Test::Glob(globs) => {
            let mut fields = Fields::default();
            let globs = globs.iter().map(|glob| Out::text(&glob.0)).collect();
            fields.add("glob", Out::one_or_list(globs));
            fields.into()
        }
        Test::Present => Out::word("present"),
        Test::Absent => Out::word("absent"),
        Test::Not(inner) => {
            let mut fields = Fields::default();
            fields.add("not", self::test(inner));
            fields.into()
        }
    }
}

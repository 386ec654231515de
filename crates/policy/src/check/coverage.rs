//! Whether one match covers all requests of another.
//!
//! Returns true only if that is certain, because a wrong `true` would reject a valid policy. Must not know: rules, only
//! conditions.

use crate::model::{Match, Template, Test};

/// Whether `outer` matches every request that `inner` matches.
pub(super) fn covers(outer: &Match, inner: &Match) -> bool {
    outer.conditions.iter().all(|wide| {
        inner.conditions.iter().any(|narrow| {
            narrow.value.attribute == wide.value.attribute
                && implies(&narrow.value.test, &wide.value.test)
        })
    })
}

fn implies(narrow: &Test, wide: &Test) -> bool {
    match (narrow, wide) {
        (Test::Absent, Test::Present) => false,
        (_, Test::Present) => true,
        (Test::OneOf(some), Test::OneOf(all)) => some.iter().all(|value| all.contains(value)),
        (Test::Glob(some), Test::Glob(all)) => some.iter().all(|glob| all.contains(glob)),
        (Test::Route(some), Test::Route(all)) => some
            .iter()
            .all(|template| all.iter().any(|wide| template_covers(wide, template))),
        (Test::Within(some), Test::Within(all)) => some
            .iter()
            .all(|network| all.iter().any(|wide| wide.contains(network))),
        (Test::OneOf(some), Test::Not(other)) => match &**other {
            Test::OneOf(others) => some.iter().all(|value| !others.contains(value)),
            _ => false,
        },
        (Test::Not(narrow), Test::Not(wide)) => implies(wide, narrow),
        _ => narrow == wide,
    }
}

/// Whether `wide` matches every path that `narrow` matches.
fn template_covers(wide: &Template, narrow: &Template) -> bool {
    let mut narrow = narrow.0.split('/').skip(1);
    for part in wide.0.split('/').skip(1) {
        let Some(segment) = narrow.next() else {
            return false;
        };
        if part.starts_with("{*") {
            return !segment.is_empty();
        }
        let is_covered = if part.starts_with('{') {
            !segment.starts_with("{*") && !segment.is_empty()
        } else {
            part == segment
        };
        if !is_covered {
            return false;
        }
    }
    narrow.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Attribute;
    use crate::grammar::{parse_network, parse_template};
    use crate::model::Condition;
    use crate::source::Located;

    fn rule(conditions: &[(&str, Test)]) -> Match {
        let conditions = conditions.iter().map(|(name, test)| {
            Located::from(Condition {
                attribute: Attribute::parse(name).unwrap(),
                test: test.clone(),
            })
        });
        Match {
            conditions: conditions.collect(),
        }
    }

    fn one_of(values: &[&str]) -> Test {
        Test::OneOf(values.iter().map(|value| Box::from(*value)).collect())
    }

    fn route(text: &str) -> Test {
        Test::Route(vec![parse_template(text).unwrap()])
    }

    fn within(text: &str) -> Test {
        Test::Within(vec![parse_network(text).unwrap()])
    }

    fn not(test: Test) -> Test {
        Test::Not(Box::new(test))
    }

    #[test]
    fn a_wider_test_covers_a_narrower_one_and_never_the_other_way() {
        let pairs = [
            (one_of(&["a", "b"]), one_of(&["a"])),
            (Test::Present, one_of(&["a"])),
            (Test::Present, not(one_of(&["a"]))),
            (not(one_of(&["x"])), one_of(&["a"])),
            (not(one_of(&["x"])), not(one_of(&["x", "y"]))),
            (within("10.0.0.0/8"), within("10.1.0.0/16")),
            (within("0.0.0.0/0"), within("10.1.0.0/16")),
            (within("::/0"), within("2001:db8::/32")),
            (route("/a/{*rest}"), route("/a/b/{c}")),
            (route("/a/{x}"), route("/a/b")),
        ];
        for (wide, narrow) in pairs {
            assert!(implies(&narrow, &wide), "{wide:?} covers {narrow:?}");
            assert!(
                !implies(&wide, &narrow),
                "{narrow:?} does not cover {wide:?}"
            );
        }
    }

    #[test]
    fn similar_tests_do_not_cover_each_other() {
        let pairs = [
            (within("::/0"), within("10.0.0.0/8")),
            (route("/a/{*rest}"), route("/a")),
            (route("/a/{x}"), route("/a/{*x}")),
            (Test::Present, Test::Absent),
            (Test::Absent, Test::Present),
        ];
        for (wide, narrow) in pairs {
            assert!(
                !implies(&narrow, &wide),
                "{wide:?} does not cover {narrow:?}"
            );
        }
    }

    #[test]
    fn every_condition_of_the_wider_rule_must_be_implied() {
        let wide = rule(&[("method", one_of(&["GET", "POST"]))]);
        let narrow = rule(&[("method", one_of(&["GET"])), ("route", route("/a"))]);
        assert!(covers(&wide, &narrow));
        assert!(!covers(&narrow, &wide));
        assert!(covers(&Match::default(), &narrow));
    }

    /// A simple reference implementation: whether a test matches a value.
    fn holds(test: &Test, value: Option<&str>) -> bool {
        match test {
            Test::Absent => value.is_none(),
            Test::Present => value.is_some(),
            Test::OneOf(values) => {
                value.is_some_and(|value| values.iter().any(|one| **one == *value))
            }
            Test::Route(templates) => value.is_some_and(|path| {
                templates
                    .iter()
                    .any(|template| crate::grammar::template_matches(template, path))
            }),
            Test::Within(networks) => value.is_some_and(|address| {
                let address = parse_network(address).unwrap();
                networks.iter().any(|wide| {
                    let text = format!("{}/{}", address.addr(), wide.prefix_len());
                    // The error suggests the network with this prefix length that contains the address.
                    parse_network(&text).map_or_else(
                        |error| {
                            error.help.unwrap().contains(&format!(
                                "`{}/{}`",
                                wide.addr(),
                                wide.prefix_len()
                            ))
                        },
                        |right| right == *wide,
                    )
                })
            }),
            Test::Not(inner) => value.is_some() && !holds(inner, value),
            Test::Glob(_) => unreachable!("not tested here"),
        }
    }

    fn with_their_opposites(tests: Vec<Test>) -> Vec<Test> {
        let opposites: Vec<Test> = tests.iter().cloned().map(not).collect();
        [tests, opposites, vec![Test::Present, Test::Absent]].concat()
    }

    #[test]
    fn covered_tests_are_covered_for_every_value() {
        let values = with_their_opposites(vec![
            one_of(&["a"]),
            one_of(&["a", "b"]),
            one_of(&["b", "c"]),
        ]);
        let networks = with_their_opposites(
            [
                "0.0.0.0/0",
                "10.0.0.0/8",
                "10.1.0.0/16",
                "10.1.2.3",
                "11.0.0.0/8",
                "::/0",
                "2001:db8::/32",
            ]
            .map(within)
            .to_vec(),
        );
        let routes = with_their_opposites(
            [
                "/", "/a", "/{x}", "/{*x}", "/a/b", "/a/{x}", "/a/{*x}", "/{x}/b", "/{x}/{y}",
                "/a/{x}/c",
            ]
            .map(route)
            .to_vec(),
        );
        let cases = [
            (values, vec!["a", "b", "c", "d"]),
            (
                networks,
                vec![
                    "10.0.0.1",
                    "10.1.2.3",
                    "10.1.9.9",
                    "11.0.0.1",
                    "9.9.9.9",
                    "2001:db8::1",
                    "fe80::1",
                ],
            ),
            (
                routes,
                vec![
                    "/", "/a", "/b", "/a/b", "/a/c", "/b/b", "/a/b/c", "/a/b/d", "/x/y/z/w",
                ],
            ),
        ];
        let mut covered = 0;
        for (tests, values) in cases {
            for (narrow, wide) in tests.iter().flat_map(|a| tests.iter().map(move |b| (a, b))) {
                if !implies(narrow, wide) {
                    continue;
                }
                covered += 1;
                for value in values.iter().copied().map(Some).chain([None]) {
                    assert!(
                        !holds(narrow, value) || holds(wide, value),
                        "{value:?} is in {narrow:?} and not in {wide:?}"
                    );
                }
            }
        }
        assert!(
            covered > 120,
            "only {covered} pairs were found to be covered"
        );
    }
}

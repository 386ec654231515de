//! Which rule applies to a descriptor.

use super::test_server::TestServer;

const TREE: &str = "
domain: d
descriptors:
  - key: path
    value: /api/users
    rate_limit: { unit: second, requests_per_unit: 1 }
  - key: path
    value: /api/*
    rate_limit: { unit: second, requests_per_unit: 2 }
  - key: path
    value: '*users'
    rate_limit: { unit: second, requests_per_unit: 3 }
  - key: path
    rate_limit: { unit: second, requests_per_unit: 4 }
  - key: deep
    descriptors:
      - key: path
        value: a*
        rate_limit: { unit: second, requests_per_unit: 5 }
  - key: both
    rate_limit: { unit: second, requests_per_unit: 6 }
    descriptors:
      - key: below
        rate_limit: { unit: second, requests_per_unit: 7 }
  - key: mid
    value: a*b*c
    rate_limit: { unit: second, requests_per_unit: 8 }
";

/// The limit of the rule that applies, or the status without a limit.
fn applies(text: &str) -> String {
    let reply = TestServer::from_text(TREE).check(0, "d", text);
    let reply = reply.split_once(": ").unwrap().1.to_owned();
    match reply.split_once('/') {
        Some((_, rest)) => rest.split_once(' ').unwrap().0.to_owned(),
        None => reply,
    }
}

#[test]
fn an_exact_value_precedes_patterns_and_patterns_precede_the_key() {
    assert_eq!(applies("path=/api/users"), "1");
    assert_eq!(applies("path=/api/items"), "2");
    assert_eq!(applies("path=/else"), "4");
    assert_eq!(applies("path="), "4", "an empty value is any value");
}

#[test]
fn the_first_pattern_of_the_file_wins() {
    assert_eq!(applies("path=/api/more/users"), "2");
    assert_eq!(applies("path=/more/users"), "3");
    assert_eq!(applies("mid=a-b-c"), "8");
    assert_eq!(applies("mid=abc"), "8");
    assert_eq!(applies("mid=a-c"), "OK free");
}

#[test]
fn a_limit_applies_only_at_the_last_entry() {
    assert_eq!(applies("both=x"), "6");
    assert_eq!(applies("both=x,below=y"), "7");
    assert_eq!(
        applies("deep=x"),
        "OK free",
        "there is no limit on this level"
    );
    assert_eq!(applies("deep=x,path=abc"), "5");
    assert_eq!(applies("both=x,below=y,more=z"), "OK free");
    assert_eq!(applies("path=/api/users,more=z"), "OK free");
}

#[test]
fn the_order_of_entries_matters() {
    assert_eq!(applies("below=y,both=x"), "OK free");
    assert_eq!(applies("path=abc,deep=x"), "OK free");
}

#[test]
fn a_descriptor_without_a_rule_is_admitted() {
    assert_eq!(applies("unknown=x"), "OK free");
    let mut server = TestServer::from_text(TREE);
    assert_eq!(server.check(0, "other", "path=/api/users"), "OK: OK free");
    assert_eq!(
        server.check(0, "other", "path=x 5/second"),
        "OK: OK free",
        "even with an override, if the domain is unknown"
    );
}

/// The chosen node is final, even if nothing below it matches and another node would match.
#[test]
fn matching_does_not_backtrack() {
    let mut server = TestServer::from_text(
        "
domain: d
descriptors:
  - key: a
    value: x
    descriptors:
      - { key: other, rate_limit: { unit: day, requests_per_unit: 1 } }
  - key: a
    descriptors:
      - { key: b, rate_limit: { unit: day, requests_per_unit: 2 } }
",
    );
    server.expect(0, "a=y,b=1", "OK: OK 1/2 day 86400s");
    server.expect(0, "a=x,b=1", "OK: OK free");
}

#[test]
fn keys_and_values_are_compared_as_one_text() {
    let mut server = TestServer::from_text(
        "
domain: d
descriptors:
  - { key: a_b, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: x, value: y_z, rate_limit: { unit: day, requests_per_unit: 2 } }
  - { key: 'p*', rate_limit: { unit: day, requests_per_unit: 3 } }
",
    );
    server.expect(0, "a=b", "OK: OK 0/1 day 86400s");
    server.expect(0, "x_y=z", "OK: OK 1/2 day 86400s");
    server.expect(0, "pq=r", "OK: OK 2/3 day 86400s");
    // One rule applies to both, but they have separate counters, so a caller cannot count as another.
    server.expect(0, "a_b=c", "OK: OK 0/1 day 86400s");
    server.expect(0, "x=y_z", "OK: OK 1/2 day 86400s");
}

//! Units, `unlimited`, `replaces` and `share_threshold`.

use super::{limit, problems};
use crate::config::load;

#[test]
fn a_limit_needs_one_of_the_units() {
    for unit in [
        "second", "minute", "hour", "day", "week", "month", "year", "mInUtE",
    ] {
        assert!(
            load(&[("a.yaml", &limit(&format!("unit: {unit}")))]).is_ok(),
            "{unit}"
        );
    }
    assert_eq!(
        problems(&limit("unit: fortnight")),
        ["4:25: invalid rate limit unit `fortnight`"]
    );
    assert_eq!(
        problems(&limit("unit: unknown")),
        ["4:25: invalid rate limit unit `unknown`"]
    );
    assert_eq!(
        problems(&limit("requests_per_unit: 5")),
        ["4:17: a `rate_limit` must have a `unit`, or say `unlimited: true`"]
    );
}

#[test]
fn an_unlimited_rule_has_no_unit() {
    assert_eq!(
        problems(&limit("unlimited: true, unit: second")),
        ["4:42: `unit` must not be given together with `unlimited`"]
    );
    assert!(load(&[("a.yaml", &limit("unlimited: true"))]).is_ok());
    let false_is_none = limit("unlimited: false, unit: second");
    assert!(load(&[("a.yaml", &false_is_none)]).is_ok());
}

#[test]
fn an_empty_rate_limit_is_none_but_an_empty_map_lacks_its_unit() {
    let policy = load(&[(
        "a.yaml",
        "domain: d\ndescriptors:\n  - key: k\n    rate_limit:\n",
    )])
    .unwrap();
    assert!(policy.rules().is_empty());
    assert_eq!(problems(&limit("")).len(), 1);
}

#[test]
fn replaces_names_other_limits() {
    assert_eq!(
        problems(&limit("unit: second, name: a, replaces: [{ name: a }]")),
        ["4:61: `a` cannot replace itself"]
    );
    assert_eq!(
        problems(&limit("unit: second, replaces: [{ name: '' }]")),
        ["4:52: an entry of `replaces` must have a `name`"]
    );
    assert_eq!(
        problems(&limit("unit: second, replaces: [{}]")),
        ["4:44: an entry of `replaces` must have a `name`"]
    );
    let unknown = limit("unit: second, replaces: [{ name: nobody }]");
    assert!(
        load(&[("a.yaml", &unknown)]).is_ok(),
        "envoyproxy/ratelimit accepts it"
    );
}

#[test]
fn a_shared_threshold_needs_a_pattern() {
    let with = |value: &str| {
        format!(
            "domain: d\ndescriptors:\n  - key: k\n    value: '{value}'\n    share_threshold: true\n"
        )
    };
    assert!(load(&[("a.yaml", &with("a*"))]).is_ok());
    assert!(load(&[("a.yaml", &with("a*b*c"))]).is_ok());
    assert_eq!(
        problems(&with("a")),
        ["5:22: `share_threshold` needs a `*` in the value, and there is none in `k_a`"]
    );
    assert_eq!(problems(&with("")).len(), 1);
    assert!(load(&[("a.yaml", &with("a").replace("true", "false"))]).is_ok());
}

//! The names of descriptors' metrics.

use super::test_server::{TestRequest, TestServer};

const RULES: &str = "
domain: d
descriptors:
  - { key: plain, rate_limit: { unit: day } }
  - { key: exact, value: v, rate_limit: { unit: day } }
  - { key: like, value: 'v*', rate_limit: { unit: day } }
  - { key: tell, value_to_metric: true, rate_limit: { unit: day } }
  - { key: telllike, value: 'v*', value_to_metric: true, rate_limit: { unit: day } }
  - { key: shared, value: 'v*', value_to_metric: true, share_threshold: true, rate_limit: { unit: day } }
  - { key: detail, detailed_metric: true, rate_limit: { unit: day } }
  - key: top
    value: 't*'
    share_threshold: true
    descriptors:
      - { key: detail, detailed_metric: true, rate_limit: { unit: day } }
  - key: up
    value_to_metric: true
    descriptors:
      - { key: down, rate_limit: { unit: day } }
  - { key: free, rate_limit: { unlimited: true } }
";

fn named(text: &str) -> Option<String> {
    let server = TestServer::from_text(RULES);
    TestRequest::parse("d", text).with(|request| {
        let plan = server.policy.plan(request).unwrap();
        plan.metric(0).map(|name| name.to_string())
    })
}

fn expect(text: &str, name: &str) {
    assert_eq!(named(text).as_deref(), Some(name), "{text}");
}

#[test]
fn a_metric_has_the_name_of_its_rule() {
    expect("plain=x", "d.plain");
    expect("exact=v", "d.exact_v");
    expect("like=very", "d.like_v*");
    expect("free=x", "d.free");
    assert_eq!(named("nothing=x"), None);
    assert_eq!(named("up=x"), None);
}

#[test]
fn value_to_metric_adds_the_value_of_its_level() {
    expect("tell=x", "d.tell_x");
    expect("tell=", "d.tell");
    expect("telllike=very", "d.telllike_very");
    expect("up=a,down=b", "d.up_a.down");
}

#[test]
fn detailed_metric_adds_every_value() {
    expect("detail=x", "d.detail_x");
    expect("detail=", "d.detail_");
}

#[test]
fn a_shared_threshold_always_shows_its_pattern() {
    expect("shared=very", "d.shared_v*");
    expect("top=to,detail=x", "d.top_t*.detail_x");
    expect("top=to,detail=", "d.top_t*.detail");
}

#[test]
fn an_override_is_named_by_its_values() {
    expect("plain=x 5/day", "d.plain_x");
    expect("some=,thing=y 5/day", "d.some.thing_y");
}

//! The explanation of each kind of rule.

use super::test_server::TestServer;

#[test]
fn every_kind_of_rule_is_explained_in_a_line() {
    let server = TestServer::from_text(
        "
domain: edge
descriptors:
  - { key: ip, rate_limit: { unit: second, requests_per_unit: 10 } }
  - { key: ip, value: 50.0.0.5, rate_limit: { unit: second, requests_per_unit: 0 } }
  - { key: path, value: '/api/*', share_threshold: true, rate_limit: { unit: minute, requests_per_unit: 100, name: api } }
  - key: plan
    value: paid
    descriptors:
      - key: user
        shadow_mode: true
        rate_limit: { unit: hour, requests_per_unit: 5000, replaces: [{ name: api }, { name: b }] }
      - { key: internal, rate_limit: { unlimited: true } }
  - { key: model, value: 'g*', quota_mode: true, rate_limit: { unit: month, requests_per_unit: 7 } }
",
    );
    let lines: Vec<String> = server
        .policy
        .explain()
        .map(|line| line.to_string())
        .collect();
    assert_eq!(
        lines,
        [
            "edge.ip: at most 10 in each second, for each ip by itself",
            "edge.ip_50.0.0.5: denies everything, where ip is 50.0.0.5",
            "edge.path_/api/*: at most 100 in each minute, where path is like /api/*, all of path together; called api",
            "edge.plan_paid.user: at most 5000 in each hour, where plan is paid, for each user by itself; takes the place of api and b; in shadow: counts, never denies",
            "edge.plan_paid.internal: unlimited, nothing is counted, where plan is paid",
            "edge.model_g*: at most 7 in each month of 30 days, where model is like g*, for each model by itself; a quota: denies only if all quotas of a request do",
        ]
    );
    let first = server.policy.explain().next().unwrap();
    assert_eq!(
        serde_json::to_string(&first).unwrap(),
        r#"{"name":"edge.ip","words":"at most 10 in each second, for each ip by itself"}"#
    );
}

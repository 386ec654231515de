//! What Envoy asks and is answered, by files of envoyproxy/ratelimit and by policies of ours.

use super::client::{Descriptor, Status, request};
use super::{by_file, by_policy};

const OK: u64 = 1;
const OVER: u64 = 2;
const SECOND: u64 = 1;
const MINUTE: u64 = 2;
const HOUR: u64 = 3;

const FILE: &str = "
domain: edge
descriptors:
  - key: remote_address
    rate_limit: { unit: minute, requests_per_unit: 2, name: per-address }
  - key: plan
    value: free
    rate_limit: { unlimited: true }
  - key: quiet
    shadow_mode: true
    rate_limit: { unit: hour, requests_per_unit: 1 }
";

fn ip(address: &str) -> Descriptor {
    Descriptor::of(&[("remote_address", address)])
}

#[tokio::test]
async fn one_status_for_each_descriptor_in_order() {
    let serving = by_file(FILE).await;
    let mut client = serving.connect().await;
    let descriptors = [
        Descriptor::of(&[("nobody", "knows")]),
        ip("10.0.0.1"),
        Descriptor::of(&[("plan", "free")]),
    ];
    let question = request("edge", &descriptors, 0);
    let response = client.ask(&question).await;
    assert_eq!(response.overall, OK);
    // The clock stands at 20 seconds past a minute.
    let counted = Status {
        code: OK,
        limit: Some((2, MINUTE, "per-address".to_owned())),
        remaining: 1,
        reset: Some(40),
    };
    let free = Status {
        code: OK,
        ..Status::default()
    };
    let unlimited = Status {
        code: OK,
        remaining: u32::MAX.into(),
        ..Status::default()
    };
    assert_eq!(response.statuses, [free, counted.clone(), unlimited]);
    assert_eq!(
        response.header("ratelimit-policy"),
        Some("\"per-address\";q=2;w=60")
    );
    assert_eq!(response.header("retry-after"), None);
    client.ask(&question).await;
    let response = client.ask(&question).await;
    assert_eq!(
        (response.overall, response.codes()),
        (OVER, vec![OK, OVER, OK])
    );
    let over = Status {
        code: OVER,
        remaining: 0,
        ..counted
    };
    assert_eq!(response.statuses[1], over);
    assert_eq!(
        response.header("ratelimit"),
        Some("\"per-address\";r=0;t=40")
    );
    assert_eq!(response.header("retry-after"), Some("40"));
}

#[tokio::test]
async fn a_policy_of_ours_answers_too() {
    let serving = by_policy(
        "limits: [{ name: per-user, key: descriptor.user, rate: 2/s, match: { domain: edge } }]",
    )
    .await;
    let mut client = serving.connect().await;
    let alice = [Descriptor::of(&[("user", "alice")])];
    let question = request("edge", &alice, 0);
    for remaining in [1, 0] {
        let response = client.ask(&question).await;
        assert_eq!(
            (response.overall, response.statuses[0].remaining),
            (OK, remaining)
        );
        let limit = Some((2, SECOND, "per-user".to_owned()));
        assert_eq!(response.statuses[0].limit, limit);
    }
    let response = client.ask(&question).await;
    assert_eq!((response.overall, response.codes()), (OVER, vec![OVER]));
    assert_eq!(response.statuses[0].reset, Some(1));
    assert_eq!(response.header("retry-after"), Some("1"));
    let elsewhere = client.ask(&request("elsewhere", &alice, 0)).await;
    assert_eq!(
        (elsewhere.overall, &elsewhere.statuses[0].limit),
        (OK, &None)
    );
    let _ = HOUR;
}

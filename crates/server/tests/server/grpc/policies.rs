//! Rate limit calls with a policy.

use tollgate_core::Nanos;

use super::client::{Descriptor, request};
use super::{OK, OVER, serve_policy};

const SECOND: u64 = 1;
const MINUTE: u64 = 2;

fn user(name: &str) -> Descriptor {
    Descriptor::new(&[("user", name)])
}

#[tokio::test]
async fn a_policy_answers_rls_calls() {
    let serving = serve_policy(
        "limits: [{ name: per-user, key: descriptor.user, rate: 2/s, match: { domain: edge } }]",
    )
    .await;
    let mut client = serving.connect().await;
    let message = request("edge", &[user("alice")], 0);
    for remaining in [1, 0] {
        let response = client.should_rate_limit(&message).await;
        let limit = Some((2, SECOND, "per-user".to_owned()));
        assert_eq!(
            (response.overall, response.statuses[0].remaining),
            (OK, remaining)
        );
        assert_eq!(response.statuses[0].limit, limit);
    }
    let response = client.should_rate_limit(&message).await;
    assert_eq!((response.overall, response.codes()), (OVER, vec![OVER]));
    assert_eq!(response.statuses[0].reset, Some(1));
    assert_eq!(response.header("retry-after"), Some("1"));
    assert!(
        response
            .header("ratelimit")
            .unwrap()
            .starts_with("\"per-user\";r=0;t=1")
    );
    let elsewhere = client
        .should_rate_limit(&request("elsewhere", &[user("alice")], 0))
        .await;
    assert_eq!(
        (elsewhere.overall, &elsewhere.statuses[0].limit),
        (OK, &None)
    );
    for (wrong, reason) in [
        (request("", &[user("a")], 0), "domain: must not be empty"),
        (request("edge", &[], 0), "descriptors: must not be empty"),
    ] {
        assert_eq!(client.expect_error(&wrong).await, (3, reason.to_owned()));
    }
}

/// `descriptors.NAME` reads any descriptor of the call, so one limit can depend on two of them. It is charged for the descriptor that
/// `descriptor.NAME` matches, once.
#[tokio::test]
async fn a_limit_can_have_conditions_on_several_descriptors() {
    let serving = serve_policy(
        "limits:
  - { name: free-users, match: { descriptor.user: present, descriptors.plan: free }, key: descriptor.user, rate: 2/h }",
    )
    .await;
    let mut client = serving.connect().await;
    let plan = |name: &str| Descriptor::new(&[("plan", name)]);
    let free = request("edge", &[user("bob"), plan("free")], 0);
    for _ in 0..2 {
        assert_eq!(client.should_rate_limit(&free).await.overall, OK);
    }
    let denied = client.should_rate_limit(&free).await;
    assert_eq!((denied.overall, denied.codes()), (OVER, vec![OVER, OK]));
    for others in [
        vec![user("bob")],
        vec![user("bob"), plan("paid")],
        vec![plan("free")],
    ] {
        let message = request("edge", &others, 0);
        assert_eq!(client.should_rate_limit(&message).await.overall, OK);
    }
}

/// A descriptor entry `path` is read like the path of a request.
#[tokio::test]
async fn every_spelling_of_a_path_is_over_the_limit_and_so_is_an_unreadable_one() {
    let serving =
        serve_policy("limits: [{ name: login, match: { path: /api/login }, rate: 1/h }]").await;
    let mut client = serving.connect().await;
    let mut ask = async |path: &str| {
        let descriptor = Descriptor::new(&[("path", path)]);
        let message = request("edge", &[descriptor], 0);
        client.should_rate_limit(&message).await.overall
    };
    assert_eq!(ask("/api/login").await, OK);
    for path in [
        "/api/login",
        "/api%2flogin",
        "/API/LOGIN",
        "/api/login;x",
        "/api/login%00",
    ] {
        assert_eq!(ask(path).await, OVER, "{path}");
    }
    assert_eq!(ask("/api/logout").await, OK);
}

/// The limits of several descriptors are charged together or not at all: a broad limit is not charged for what a narrow one
/// refuses.
#[tokio::test]
async fn i11_all_descriptors_of_a_request_are_charged_or_none() {
    let serving = serve_policy(
        "limits:
  - { name: broad, match: { descriptor.scope: all }, rate: 10/h }
  - { name: narrow, match: { descriptor.user: { present: true } }, key: descriptor.user, rate: 2/h }",
    )
    .await;
    let mut client = serving.connect().await;
    let all = Descriptor::new(&[("scope", "all")]);
    for descriptors in [[all.clone(), user("bob")], [user("bob"), all.clone()]] {
        assert_eq!(
            client
                .should_rate_limit(&request("d", &descriptors, 0))
                .await
                .overall,
            OK
        );
    }
    for descriptors in [[all.clone(), user("bob")], [user("bob"), all.clone()]] {
        let response = client
            .should_rate_limit(&request("d", &descriptors, 0))
            .await;
        assert_eq!(response.overall, OVER);
        let (broad, narrow) = match response.codes()[..] {
            [OK, OVER] => (&response.statuses[0], &response.statuses[1]),
            [OVER, OK] => (&response.statuses[1], &response.statuses[0]),
            _ => panic!("{response:?}"),
        };
        assert_eq!((broad.remaining, narrow.remaining), (8, 0));
        assert_eq!(narrow.reset, Some(1_800));
        assert_eq!(response.header("retry-after"), Some("1800"));
        let policies = response.header("ratelimit-policy").unwrap();
        assert!(policies.contains("broad") && policies.contains("narrow"));
    }
    // Each descriptor has its own hits.
    let hits = [all.clone().hits(7), user("carl").hits(2)];
    let response = client.should_rate_limit(&request("d", &hits, 0)).await;
    let remaining: Vec<u64> = response.statuses.iter().map(|it| it.remaining).collect();
    assert_eq!((response.overall, remaining), (OK, vec![1, 0]));
}

#[tokio::test]
async fn a_peek_reports_the_status_and_costs_known_later_may_cause_debt() {
    let serving = serve_policy(
        "limits: [{ name: tokens, key: descriptor.user, rate: 60/h, charge: always, overdraft: 600 }]",
    )
    .await;
    let mut client = serving.connect().await;
    let look = request("d", &[user("bob").hits(0)], 0);
    let first = client.should_rate_limit(&look).await;
    assert_eq!((first.overall, first.statuses[0].remaining), (OK, 60));
    // Twice the remaining quota: it has been used, so it is charged.
    let done = client
        .should_rate_limit(&request("d", &[user("bob").hits(120)], 0))
        .await;
    assert_eq!((done.overall, done.statuses[0].remaining), (OK, 0));
    let denied = client.should_rate_limit(&look).await;
    assert_eq!((denied.overall, denied.codes()), (OVER, vec![OVER]));
    // An hour of debt, and a minute for one more.
    assert_eq!(denied.statuses[0].reset, Some(3_660));
    assert_eq!(denied.header("retry-after"), Some("3660"));
    serving.clock.advance(Nanos::from_secs(3_659));
    assert_eq!(client.should_rate_limit(&look).await.overall, OVER);
    serving.clock.advance(Nanos::SECOND);
    assert_eq!(client.should_rate_limit(&look).await.overall, OK);
    // Together with another descriptor it is the same.
    let both = [user("bob").hits(0), user("carl").hits(0)];
    assert_eq!(
        client
            .should_rate_limit(&request("d", &both, 0))
            .await
            .overall,
        OK
    );
}

#[tokio::test]
async fn refunds_never_exceed_the_limit() {
    let serving =
        serve_policy("limits: [{ name: per-user, key: descriptor.user, rate: 10/h }]").await;
    let mut client = serving.connect().await;
    let remaining = async |client: &mut super::client::Client, descriptor: Descriptor| {
        let response = client
            .should_rate_limit(&request("d", &[descriptor], 0))
            .await;
        (response.overall, response.statuses[0].remaining)
    };
    assert_eq!(remaining(&mut client, user("bob").hits(10)).await, (OK, 0));
    assert_eq!(remaining(&mut client, user("bob")).await, (OVER, 0));
    assert_eq!(
        remaining(&mut client, user("bob").hits(4).refund()).await,
        (OK, 4)
    );
    assert_eq!(
        remaining(&mut client, user("bob").hits(99).refund()).await,
        (OK, 10)
    );
    assert_eq!(remaining(&mut client, user("bob")).await, (OK, 9));
    // A refund together with a charge is given if the charge is admitted.
    let both = [user("bob").hits(1).refund(), user("carl").hits(11)];
    assert_eq!(
        client
            .should_rate_limit(&request("d", &both, 0))
            .await
            .overall,
        OVER
    );
    assert_eq!(remaining(&mut client, user("bob").hits(0)).await, (OK, 9));
    let both = [user("bob").hits(1).refund(), user("carl").hits(10)];
    assert_eq!(
        client
            .should_rate_limit(&request("d", &both, 0))
            .await
            .overall,
        OK
    );
    assert_eq!(remaining(&mut client, user("bob").hits(0)).await, (OK, 10));
}

#[tokio::test]
async fn a_limit_in_a_descriptor_is_counted_besides_the_policy() {
    let serving =
        serve_policy("limits: [{ name: per-user, key: descriptor.user, rate: 1/h }]").await;
    let mut client = serving.connect().await;
    let own = request("d", &[user("bob").limit(2, MINUTE)], 0);
    for (overall, remaining) in [(OK, 1), (OK, 0), (OVER, 0)] {
        let response = client.should_rate_limit(&own).await;
        let status = &response.statuses[0];
        assert_eq!((response.overall, status.remaining), (overall, remaining));
        assert_eq!(status.limit, Some((2, MINUTE, String::new())));
        assert_eq!(status.reset, Some(40));
    }
    // In another domain it is another counter, and the policy's own limit is not charged.
    let elsewhere = request("e", &[user("bob").limit(2, MINUTE)], 0);
    assert_eq!(client.should_rate_limit(&elsewhere).await.overall, OK);
    let mine = request("d", &[user("bob")], 0);
    assert_eq!(client.should_rate_limit(&mine).await.overall, OK);
    // If such a limit refuses, no other limit is charged.
    let both = [user("carl"), user("bob").limit(2, MINUTE)];
    let response = client.should_rate_limit(&request("d", &both, 0)).await;
    assert_eq!((response.overall, response.codes()), (OVER, vec![OK, OVER]));
    assert_eq!(response.statuses[0].remaining, 1);
}

#[tokio::test]
async fn entries_named_like_attributes_set_those_attributes() {
    let serving = serve_policy(
        "limits:
  - { name: by-address, key: ip, rate: 1/h, match: { ip: { present: true } } }
  - { name: by-key, key: header.x-api-key, rate: 1/h, match: { header.x-api-key: { present: true }, method: POST } }",
    )
    .await;
    let mut client = serving.connect().await;
    for (entries, limit) in [
        (&[("remote_address", "203.0.113.7")][..], Some("by-address")),
        (&[("ip", "2001:db8::1")], Some("by-address")),
        (&[("remote_address", "no address")], None),
        (
            &[("header.X-Api-Key", "a"), ("method", "POST")],
            Some("by-key"),
        ),
        (&[("header.x-api-key", "a"), ("method", "GET")], None),
    ] {
        let message = request("d", &[Descriptor::new(entries)], 0);
        let response = client.should_rate_limit(&message).await;
        let named = response.statuses[0].limit.as_ref().map(|it| &*it.2);
        assert_eq!((response.overall, named), (OK, limit), "{entries:?}");
    }
    let again = request("d", &[Descriptor::new(&[("ip", "203.0.113.7")])], 0);
    assert_eq!(
        client.should_rate_limit(&again).await.overall,
        OVER,
        "the same address"
    );
}

#[tokio::test]
async fn leases_are_released_immediately_because_envoy_does_not_report_the_end() {
    let serving = serve_policy("limits: [{ name: at-once, concurrency: 1 }]").await;
    let mut client = serving.connect().await;
    for _ in 0..3 {
        assert_eq!(
            client
                .should_rate_limit(&request("d", &[user("a")], 0))
                .await
                .overall,
            OK
        );
        let both = [user("a"), user("b").hits(0)];
        assert_eq!(
            client
                .should_rate_limit(&request("d", &both, 0))
                .await
                .overall,
            OK
        );
    }
}

//! Quota assignments: by the policy, and by the demand of other clients.

use tollgate_core::Nanos;
use tollgate_server::QuotaBounds;

use super::client::{PATH, QuotaAction, RlqsClient};
use super::{first_start, serve_policy};
use crate::grpc::serve_file;

const POLICY: &str = "
limits:
  - { name: api, match: { domain: edge, descriptor.name: api }, rate: 100/m }
  - { name: per-user, match: { descriptor.user: present }, key: descriptor.user, rate: 10/s }
  - { name: all-users, match: { descriptor.user: present }, rate: 3000/m }
  - { name: closed, match: { descriptor.name: closed }, rate: 0/s }
  - { name: watched, match: { descriptor.name: watched }, rate: 1/h, mode: shadow }
  - { name: dear, match: { descriptor.name: dear }, rate: 100/m, cost: 10 }
  - { name: monthly, match: { descriptor.name: monthly }, algorithm: fixed_window, rate: 500/month }
";

const API: &[(&str, &str)] = &[("name", "api")];
const FIVE: Nanos = Nanos::from_secs(5);

fn tokens(name: &str, action: [u64; 3]) -> QuotaAction {
    QuotaAction::Tokens(name.to_owned(), action, 15)
}

#[tokio::test]
async fn the_limits_that_match_the_pairs_apply_to_a_bucket() {
    let server = serve_policy(POLICY, first_start()).await;
    let mut client = server.client().await;
    for (pairs, action) in [
        (API, tokens("api", [100, 100, 60])),
        (&[("user", "bob")], tokens("bob", [10, 10, 1])),
        (&[("name", "dear")], tokens("dear", [10, 10, 60])),
        (
            &[("name", "monthly")],
            tokens("monthly", [500, 500, 31 * 86_400]),
        ),
        (
            &[("name", "closed")],
            QuotaAction::Deny("closed".to_owned()),
        ),
        (
            &[("name", "watched")],
            QuotaAction::Allow("watched".to_owned()),
        ),
        (
            &[("name", "unknown")],
            QuotaAction::Allow("unknown".to_owned()),
        ),
    ] {
        client.report("edge", &[(pairs, 0, 1, 0)]);
        assert_eq!(client.next_action().await, action);
    }
    // In another domain there is no such limit.
    let mut other = server.client().await;
    other.report("other", &[(API, 0, 1, 0)]);
    assert_eq!(
        other.next_action().await,
        QuotaAction::Allow("api".to_owned())
    );
}

#[tokio::test]
async fn an_assignment_is_repeated_as_it_is_with_every_report() {
    let server = serve_policy(POLICY, first_start()).await;
    let mut client = server.client().await;
    client.report("edge", &[(API, 0, 1, 0)]);
    let action = client.next_action().await;
    for requests in [500, 3, 0, 40] {
        server.clock.advance(FIVE);
        client.report("", &[(API, 5, requests, requests)]);
        assert_eq!(client.next_action().await, action);
    }
}

/// Reports and returns the assignment, this many seconds after the others.
async fn round(client: &mut RlqsClient, requests: u64) -> u64 {
    client.report("edge", &[(API, 5, requests, 0)]);
    client.next_action().await.share()
}

#[tokio::test]
async fn a_share_is_raised_only_after_other_clients_have_reported_their_lower_one() {
    let server = serve_policy(POLICY, first_start()).await;
    let (mut busy, mut idle) = (server.client().await, server.client().await);
    assert_eq!(round(&mut idle, 0).await, 100);
    // The second client finds nothing free. The first is lowered immediately, and until it reports no other client gets
    // anything.
    busy.report("edge", &[(API, 0, 1, 0)]);
    let lowered = idle.next_action().await.share();
    assert!(lowered <= 50, "{lowered}");
    let mut shares = (0, lowered);
    for _ in 0..6 {
        server.clock.advance(FIVE);
        let before = shares.1;
        shares.1 = round(&mut idle, 0).await;
        shares.0 = round(&mut busy, 9_999).await;
        assert!(
            shares.0 + before.max(shares.1) <= 100,
            "{shares:?} after {before}"
        );
        // Assignments that were pushed in between come first.
        while shares.0 + shares.1 < 100 && shares.0 < 80 {
            server.clock.advance(FIVE);
            shares.1 = round(&mut idle, 0).await;
            shares.0 = round(&mut busy, 9_999).await;
        }
    }
    assert!(shares.0 >= 80, "{shares:?}");
    assert!(shares.1 >= 1, "{shares:?}");
}

#[tokio::test]
async fn the_share_of_a_disconnected_client_is_free_when_it_has_expired() {
    let server = serve_policy(POLICY, first_start()).await;
    let mut gone = server.client().await;
    assert_eq!(round(&mut gone, 0).await, 100);
    drop(gone);
    let mut next = server.client().await;
    next.report("edge", &[(API, 0, 1, 0)]);
    // The immediate reply to this report shows that the one before it was processed and got nothing.
    let probe: &[(&str, &str)] = &[("name", "unknown")];
    next.report("edge", &[(probe, 0, 1, 0)]);
    assert_eq!(
        next.next_action().await,
        QuotaAction::Allow("unknown".to_owned())
    );
    server.clock.advance(Nanos::from_secs(17));
    next.report("edge", &[(API, 5, 1, 0), (probe, 5, 1, 0)]);
    assert_eq!(
        next.next_action().await,
        QuotaAction::Allow("unknown".to_owned())
    );
    server.clock.advance(Nanos::from_secs(1));
    // This needs no report.
    assert_eq!(next.next_action().await, tokens("api", [100, 100, 60]));
}

#[tokio::test]
async fn after_a_start_nothing_is_assigned_until_earlier_assignments_have_expired() {
    let server = serve_policy(POLICY, QuotaBounds::default()).await;
    let (mut busy, mut idle) = (server.client().await, server.client().await);
    let probe: &[(&str, &str)] = &[("name", "unknown")];
    for _ in 0..3 {
        busy.report("edge", &[(API, 5, 9_000, 0), (probe, 0, 1, 0)]);
        idle.report("edge", &[(API, 5, 1, 0), (probe, 0, 1, 0)]);
        // A limit that is not shared is assigned immediately.
        assert_eq!(
            busy.next_action().await,
            QuotaAction::Allow("unknown".to_owned())
        );
        assert_eq!(
            idle.next_action().await,
            QuotaAction::Allow("unknown".to_owned())
        );
        server.clock.advance(FIVE);
    }
    server.clock.advance(Nanos::from_secs(3));
    // What was learned until then decides.
    let (most, least) = (
        busy.next_action().await.share(),
        idle.next_action().await.share(),
    );
    assert!(
        most >= 80 && least >= 1 && most + least <= 100,
        "{most}, {least}"
    );
}

#[tokio::test]
async fn an_unused_bucket_is_abandoned_and_can_come_back() {
    let server = serve_policy(POLICY, first_start()).await;
    let mut client = server.client().await;
    client.report("edge", &[(API, 0, 1, 0)]);
    assert_eq!(client.next_action().await, tokens("api", [100, 100, 60]));
    for _ in 0..11 {
        server.clock.advance(FIVE);
        client.report("edge", &[(API, 5, 0, 0)]);
        assert_eq!(client.next_action().await, tokens("api", [100, 100, 60]));
    }
    server.clock.advance(FIVE);
    assert_eq!(
        client.next_action().await,
        QuotaAction::Abandon("api".to_owned())
    );
    // Its share stays reserved until it has expired; then the bucket is new.
    client.report("edge", &[(API, 5, 0, 0)]);
    server.clock.advance(Nanos::from_secs(13));
    client.report("edge", &[(API, 0, 1, 0)]);
    assert_eq!(client.next_action().await, tokens("api", [100, 100, 60]));
}

#[tokio::test]
async fn limits_per_user_and_shared_limits_both_apply() {
    let server = serve_policy(POLICY, first_start()).await;
    let mut clients = Vec::new();
    for _ in 0..2 {
        clients.push(server.client().await);
    }
    let bob: &[(&str, &str)] = &[("user", "bob")];
    for (client, share) in clients.iter_mut().zip([10, 5]) {
        client.report("edge", &[(bob, 0, 1, 0)]);
        if share == 10 {
            assert_eq!(client.next_action().await.share(), share);
        }
    }
    // Bob is at two Envoys, so each gets half of his limit.
    assert_eq!(clients[0].next_action().await.share(), 5);
    server.clock.advance(FIVE);
    clients[0].report("edge", &[(bob, 5, 1, 0)]);
    assert_eq!(clients[0].next_action().await.share(), 5);
    assert_eq!(clients[1].next_action().await.share(), 5);
    // Another user has his own limit.
    clients[1].report("edge", &[(&[("user", "eve")], 0, 1, 0)]);
    assert_eq!(clients[1].next_action().await, tokens("eve", [10, 10, 1]));
}

#[tokio::test]
async fn a_policy_that_changes_is_followed_with_the_next_report() {
    let server = serve_policy(POLICY, first_start()).await;
    let mut client = server.client().await;
    client.report("edge", &[(API, 0, 1, 0)]);
    assert_eq!(client.next_action().await, tokens("api", [100, 100, 60]));
    // The same amount per hour: for Envoy it is another bucket.
    let slower = crate::harness::policy(&POLICY.replace("100/m }", "100/h }"));
    server.app.service().replace(&slower).unwrap();
    server.clock.advance(FIVE);
    client.report("edge", &[(API, 5, 1, 0)]);
    assert_eq!(client.next_action().await, tokens("api", [100, 100, 3_600]));
    let smaller = crate::harness::policy(&POLICY.replace("100/m }", "40/m }"));
    server.app.service().replace(&smaller).unwrap();
    client.report("edge", &[(API, 5, 1, 0)]);
    assert_eq!(client.next_action().await, tokens("api", [40, 40, 60]));
    let none = crate::harness::policy(&POLICY.replace("100/m }", "0/m }"));
    server.app.service().replace(&none).unwrap();
    client.report("edge", &[(API, 5, 1, 0)]);
    assert_eq!(
        client.next_action().await,
        QuotaAction::Deny("api".to_owned())
    );
}

#[tokio::test]
async fn by_files_of_envoyproxy_there_are_no_quotas() {
    let server = serve_file("domain: edge\ndescriptors: []\n").await;
    let mut client = server.connect().await;
    let ending = client.call(PATH, b"").await;
    assert_eq!(ending.status, Some(12), "{ending:?}");
    assert!(ending.message.contains("policy"), "{ending:?}");
}

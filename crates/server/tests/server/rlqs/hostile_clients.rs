//! Hostile RLQS clients (S-37): each is answered or disconnected, and all other clients are served.

use tollgate_server::QuotaBounds;

use super::client::{QuotaAction, RlqsClient, UsageReport, reports};
use super::{TestRlqsServer, first_start, serve_policy};
use crate::grpc::client::{bytes_field, framed};

const POLICY: &str = "limits: [{ name: api, match: { descriptor.name: api }, rate: 100/m }]";
const API: &[(&str, &str)] = &[("name", "api")];

const INVALID: Option<i32> = Some(3);
const EXHAUSTED: Option<i32> = Some(8);
const UNIMPLEMENTED: Option<i32> = Some(12);

/// Another client is served as usual.
async fn serves(server: &TestRlqsServer) {
    let mut client = server.client().await;
    let other: UsageReport<'_> = (&[("name", "other")], 0, 1, 0);
    client.report("edge", &[other]);
    assert_eq!(
        client.next_action().await,
        QuotaAction::Allow("other".to_owned())
    );
}

async fn sending(server: &TestRlqsServer, bytes: &[u8]) -> Option<i32> {
    let mut client = server.client().await;
    client.send(bytes);
    let (actions, status) = client.read_to_end().await;
    assert_eq!(actions, []);
    serves(server).await;
    status
}

#[tokio::test]
async fn s_37_bytes_that_are_no_reports_end_their_stream_and_nothing_else() {
    let server = serve_policy(POLICY, first_start()).await;
    let garbage: Vec<u8> = (0..200).map(|n: u8| n.wrapping_mul(37) | 0x80).collect();
    assert_eq!(sending(&server, &framed(&garbage)).await, INVALID);
    assert_eq!(sending(&server, &framed(&[])).await, INVALID);
    assert_eq!(
        sending(&server, &framed(&bytes_field(1, b"\xff"))).await,
        INVALID
    );
    let endless = bytes_field(1, &[b'd'; 2_000]);
    assert_eq!(sending(&server, &framed(&endless)).await, INVALID);
    assert_eq!(sending(&server, &[1, 0, 0, 0, 1, 0]).await, UNIMPLEMENTED);
    assert_eq!(sending(&server, &[0, 255, 255, 255, 255]).await, EXHAUSTED);
}

#[tokio::test]
async fn s_37_a_stream_has_one_domain() {
    let server = serve_policy(POLICY, first_start()).await;
    let mut client = server.client().await;
    client.report("edge", &[(API, 0, 1, 0)]);
    assert_eq!(client.next_action().await.share(), 100);
    client.report("other", &[(API, 0, 1, 0)]);
    assert_eq!(client.read_to_end().await, (Vec::new(), INVALID));
    serves(&server).await;
}

#[tokio::test]
async fn s_37_invalid_bucket_ids_are_skipped() {
    let server = serve_policy(POLICY, first_start()).await;
    let mut client = server.client().await;
    let long = "x".repeat(5_000);
    let all: [UsageReport<'_>; 4] = [
        (&[], 0, 1, 0),
        (&[("name", &long)], 0, 1, 0),
        (API, u64::MAX, u64::MAX, u64::MAX),
        (&[("", "")], 0, 1, 0),
    ];
    client.report("edge", &all);
    let mut action = [client.next_action().await, client.next_action().await];
    action.sort_by_key(|action| matches!(action, QuotaAction::Allow(_)));
    assert_eq!(action[0].share(), 100);
    assert_eq!(action[1], QuotaAction::Allow(String::new()));
}

#[tokio::test]
async fn s_37_buckets_above_the_limit_are_dropped_and_known_ones_kept() {
    let mut bounds = first_start();
    (bounds.buckets, bounds.buckets_per_client) = (150, 100);
    let server = serve_policy(POLICY, bounds).await;
    let mut greedy = server.client().await;
    let names: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
    let pairs: Vec<[(&str, &str); 1]> = names.iter().map(|name| [("n", &**name)]).collect();
    let all: Vec<UsageReport<'_>> = pairs.iter().map(|pairs| (&pairs[..], 0, 1, 0)).collect();
    greedy.send(&framed(&reports("edge", &all)));
    let mut kept = Vec::new();
    for _ in 0..100 {
        kept.push(greedy.next_action().await);
    }
    assert!(matches!(kept[0], QuotaAction::Allow(_)));
    serves(&server).await;
    // Known buckets stay known, wherever in the report they are.
    let turned: Vec<UsageReport<'_>> = all.iter().rev().copied().collect();
    greedy.send(&framed(&reports("edge", &turned)));
    for _ in 0..100 {
        let action = greedy.next_action().await;
        assert!(kept.contains(&action), "{action:?}");
    }
    // All of them together.
    let mut other = server.client().await;
    other.send(&framed(&reports("edge", &all)));
    for _ in 0..49 {
        assert!(matches!(other.next_action().await, QuotaAction::Allow(_)));
    }
    drop((greedy, other));
    serves(&server).await;
}

#[tokio::test]
async fn s_37_streams_above_the_limit_are_refused_until_one_ends() {
    let mut bounds: QuotaBounds = first_start();
    bounds.streams = 3;
    let server = serve_policy(POLICY, bounds).await;
    let mut held: Vec<RlqsClient> = Vec::new();
    for _ in 0..3 {
        let mut client = server.client().await;
        client.report("edge", &[(&[("name", "other")], 0, 1, 0)]);
        assert_eq!(
            client.next_action().await,
            QuotaAction::Allow("other".to_owned())
        );
        held.push(client);
    }
    let (_, status) = server.client().await.read_to_end().await;
    assert_eq!(status, EXHAUSTED);
    held.pop();
    // The server notices this a moment later.
    loop {
        let mut client = server.client().await;
        client.report("edge", &[(&[("name", "other")], 0, 1, 0)]);
        match client.next_action_or_end().await {
            Some(action) => {
                assert_eq!(action, QuotaAction::Allow("other".to_owned()));
                break;
            }
            None => tokio::task::yield_now().await,
        }
    }
}

#[tokio::test]
async fn s_37_one_connection_cannot_have_many_streams() {
    let server = serve_policy(POLICY, first_start()).await;
    let mut client = server.client().await;
    client.report("edge", &[(API, 0, 1, 0)]);
    assert_eq!(client.next_action().await.share(), 100);
    let mut others = Vec::new();
    for _ in 0..40 {
        others.push(client.connection.open(super::client::PATH).await);
    }
    let mut refused = 0;
    for (response, _sending) in others {
        let response = response.await.unwrap();
        let status = response.headers().get("grpc-status");
        refused += u32::from(status.is_some_and(|status| status == "8"));
    }
    assert_eq!(refused, 25);
    serves(&server).await;
}

#[tokio::test]
async fn s_37_a_flood_of_reports_is_answered_or_cut_off() {
    let server = serve_policy(POLICY, first_start()).await;
    let mut client = server.client().await;
    let last: UsageReport<'_> = (&[("name", "last")], 0, 1, 0);
    for _ in 0..10 {
        for _ in 0..200 {
            client.report("edge", &[(API, 0, 1, 0)]);
        }
        // Reports that arrive together are answered together, including the last one.
        client.report("edge", &[last]);
        while client.next_action().await != QuotaAction::Allow("last".to_owned()) {}
    }
    for _ in 0..20_000 {
        client.report("edge", &[(API, 0, 1, 0)]);
    }
    serves(&server).await;
    let (actions, _) = client.read_to_end().await;
    assert!(actions.iter().all(|action| action.share() == 100));
    serves(&server).await;
}

#[tokio::test]
async fn s_37_a_client_that_reads_nothing_is_disconnected() {
    let server = serve_policy(POLICY, first_start()).await;
    let mut client = server.client().await;
    let name = "n".repeat(900);
    let names: Vec<String> = (0..200).map(|n| format!("{n}{name}")).collect();
    for name in &names {
        client.report("edge", &[(&[("n", name)], 0, 1, 0)]);
    }
    // It releases no flow-control window, so after about sixty messages none is left.
    let status = client.status_without_window().await;
    assert_eq!(status, EXHAUSTED);
    serves(&server).await;
}

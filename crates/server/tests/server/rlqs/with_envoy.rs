//! Real Envoys that share one limit: together they stay within it, the busiest gets the largest share, and a restarted server
//! assigns nothing twice.

use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::Nanos;
use tollgate_testkit::envoy::Version;

use super::first_start;
use super::harness::{BURST, Load, RATE, RlqsHarness, excess, wait_until};
use crate::harness::HttpClient;

/// The excess that a moved share may cause: a new bucket starts full, whatever was spent elsewhere. And the difference in time
/// until requests are counted.
const MOVED: f64 = BURST;
const SLACK: f64 = 3.0;

fn together(loads: &[&Load]) -> Vec<Instant> {
    loads.iter().flat_map(|load| load.admitted()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_envoys_admit_what_one_limit_allows_and_the_busy_one_gets_most() {
    let harness = RlqsHarness::strict(&[Version::V1_40, Version::V1_40], first_start()).await;
    let busy = Load::on(&harness.envoys[0], 100).await;
    let quiet = Load::on(&harness.envoys[1], 2).await;
    wait_until("the busy one gets most", || busy.recent(4) >= 60).await;
    wait_until("the quiet one is not left out", || quiet.recent(4) >= 3).await;
    // Then the second becomes as busy. Without assignments each would admit all of it.
    quiet.pace(100);
    wait_until("the other gets its share", || quiet.recent(4) >= 28).await;
    wait_until("both have about half", || {
        (28..=52).contains(&busy.recent(4)) && (28..=52).contains(&quiet.recent(4))
    })
    .await;
    let found = excess(together(&[&busy, &quiet]), RATE);
    assert!(found <= BURST + MOVED + SLACK, "{found} above the rate");
    let counts = harness.server.app.envoy().quota_counts();
    assert_eq!((counts.streams, counts.buckets), (2, 2));
    assert!(counts.repeated > 0, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_assigns_nothing_twice_and_continues() {
    let mut bounds = first_start();
    (bounds.assignment_ttl_seconds, bounds.grace) = (8, Nanos::from_secs(2));
    let mut harness = RlqsHarness::strict(&[Version::V1_40, Version::V1_40], bounds).await;
    let loads = [
        Load::on(&harness.envoys[0], 100).await,
        Load::on(&harness.envoys[1], 100).await,
    ];
    wait_until("both have a share", || {
        loads.iter().all(|load| load.recent(4) >= 20)
    })
    .await;
    bounds.is_first_process = false;
    harness.server = harness.server.restart(bounds).await;
    let restarted = Instant::now();
    wait_until("both go on", || {
        let opened = restarted + Duration::from_secs(10);
        loads.iter().all(|load| load.since(opened) >= 40)
    })
    .await;
    let found = excess(together(&[&loads[0], &loads[1]]), RATE);
    assert!(found <= BURST + MOVED + SLACK, "{found} above the rate");
    assert_eq!(harness.server.app.envoy().quota_counts().streams, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abandoned_bucket_is_dropped_by_both_and_starts_again() {
    let mut bounds = first_start();
    (bounds.assignment_ttl_seconds, bounds.grace) = (8, Nanos::from_secs(2));
    bounds.idle = Nanos::from_secs(6);
    let harness = RlqsHarness::strict(&[Version::V1_40], bounds).await;
    let mut client = HttpClient::to(harness.envoys[0].listener("edge")).await;
    // The first request is refused, because nothing is assigned yet, and triggers a report.
    assert_eq!(client.get("/").await.status, 429);
    let given = || harness.server.app.envoy().quota_counts();
    wait_until("an assignment", || given().changed == 1).await;
    while client.get("/").await.status != 200 {}
    wait_until("nobody uses it", || given().abandoned == 1).await;
    assert_eq!(given().buckets, 0);
    // Envoy has dropped the bucket too: it starts again.
    while client.get("/").await.status != 429 {}
    wait_until("an assignment again", || given().changed == 2).await;
    while client.get("/").await.status != 200 {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_envoy_version_keeps_to_its_assignment() {
    for version in [Version::V1_40, Version::V1_36] {
        let harness = RlqsHarness::strict(&[version], first_start()).await;
        let load = Load::on(&harness.envoys[0], 100).await;
        wait_until("all of it", || load.recent(4) >= 75).await;
        let found = excess(load.admitted(), RATE);
        assert!(
            found <= BURST + SLACK,
            "{version:?}: {found} above the rate"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_server_envoy_uses_the_documented_fallback() {
    let mut bounds = first_start();
    bounds.assignment_ttl_seconds = 7;
    let harness = RlqsHarness::example(Version::V1_40, bounds).await;
    let load = Load::on(&harness.envoys[0], 100).await;
    wait_until("all of it", || load.recent(4) >= 75).await;
    harness.server.stop().await;
    // Envoy keeps its assignment until it expires, then uses its fallback of five a second.
    wait_until("the part that was set aside", || {
        (15..=24).contains(&load.recent(4))
    })
    .await;
}

//! Real Envoys that share one limit: together they admit no more than it, the busy one gets most, and a server that starts
//! again gives nothing out twice.

use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::Nanos;
use tollgate_testkit::envoy::Version;

use super::first_start;
use super::harness::{BURST, Load, RATE, RlqsHarness, excess, wait_until};
use crate::harness::HttpClient;

/// What a moved share may bring along: a bucket that begins is full, whatever was spent elsewhere before. And what a
/// request takes longer than another to be counted.
const MOVED: f64 = BURST;
const SLACK: f64 = 3.0;

fn together(loads: &[&Load]) -> Vec<Instant> {
    loads.iter().flat_map(|load| load.admitted()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_envoys_admit_what_one_limit_allows_and_the_busy_one_gets_most() {
    let rig = RlqsHarness::strict(&[Version::V1_40, Version::V1_40], first_start()).await;
    let busy = Load::on(&rig.envoys[0], 100).await;
    let quiet = Load::on(&rig.envoys[1], 2).await;
    wait_until("the busy one gets most", || busy.recent(4) >= 60).await;
    wait_until("the quiet one is not left out", || quiet.recent(4) >= 3).await;
    // Then the other is as busy. Each would admit all of it if nobody told them.
    quiet.pace(100);
    wait_until("the other gets its share", || quiet.recent(4) >= 28).await;
    wait_until("both have about half", || {
        (28..=52).contains(&busy.recent(4)) && (28..=52).contains(&quiet.recent(4))
    })
    .await;
    let found = excess(together(&[&busy, &quiet]), RATE);
    assert!(found <= BURST + MOVED + SLACK, "{found} above the rate");
    let counts = rig.server.app.envoy().quota_counts();
    assert_eq!((counts.streams, counts.buckets), (2, 2));
    assert!(counts.repeated > 0, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_starts_again_gives_nothing_out_twice_and_goes_on() {
    let mut bounds = first_start();
    (bounds.assignment_ttl_seconds, bounds.grace) = (8, Nanos::from_secs(2));
    let mut rig = RlqsHarness::strict(&[Version::V1_40, Version::V1_40], bounds).await;
    let loads = [
        Load::on(&rig.envoys[0], 100).await,
        Load::on(&rig.envoys[1], 100).await,
    ];
    wait_until("both have a share", || {
        loads.iter().all(|load| load.recent(4) >= 20)
    })
    .await;
    bounds.is_first_process = false;
    rig.server = rig.server.restart(bounds).await;
    let restarted = Instant::now();
    wait_until("both go on", || {
        let opened = restarted + Duration::from_secs(10);
        loads.iter().all(|load| load.since(opened) >= 40)
    })
    .await;
    let found = excess(together(&[&loads[0], &loads[1]]), RATE);
    assert!(found <= BURST + MOVED + SLACK, "{found} above the rate");
    assert_eq!(rig.server.app.envoy().quota_counts().streams, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abandoned_bucket_is_forgotten_by_both_and_begins_anew() {
    let mut bounds = first_start();
    (bounds.assignment_ttl_seconds, bounds.grace) = (8, Nanos::from_secs(2));
    bounds.idle = Nanos::from_secs(6);
    let rig = RlqsHarness::strict(&[Version::V1_40], bounds).await;
    let mut client = HttpClient::to(rig.envoys[0].listener("edge")).await;
    // The first is refused because nothing is assigned yet, and asks for it.
    assert_eq!(client.get("/").await.status, 429);
    let given = || rig.server.app.envoy().quota_counts();
    wait_until("an assignment", || given().changed == 1).await;
    while client.get("/").await.status != 200 {}
    wait_until("nobody uses it", || given().abandoned == 1).await;
    assert_eq!(given().buckets, 0);
    // Envoy has forgotten it too: it is as it was in the beginning.
    while client.get("/").await.status != 429 {}
    wait_until("an assignment again", || given().changed == 2).await;
    while client.get("/").await.status != 200 {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_version_keeps_to_what_it_is_assigned() {
    for version in [Version::V1_40, Version::V1_36] {
        let rig = RlqsHarness::strict(&[version], first_start()).await;
        let load = Load::on(&rig.envoys[0], 100).await;
        wait_until("all of it", || load.recent(4) >= 75).await;
        let found = excess(load.admitted(), RATE);
        assert!(
            found <= BURST + SLACK,
            "{version:?}: {found} above the rate"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_server_envoy_does_what_the_example_says() {
    let mut bounds = first_start();
    bounds.assignment_ttl_seconds = 7;
    let rig = RlqsHarness::example(Version::V1_40, bounds).await;
    let load = Load::on(&rig.envoys[0], 100).await;
    wait_until("all of it", || load.recent(4) >= 75).await;
    rig.server.stop().await;
    // It goes on with what it has; when that has expired, with five a second.
    wait_until("the part that was set aside", || {
        (15..=24).contains(&load.recent(4))
    })
    .await;
}

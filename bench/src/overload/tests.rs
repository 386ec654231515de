//! Proof 1 in simulated time, and controls that show that its checks can fail.

use super::{ControllerKind, Score, StageScore, gcl, ramp, run, shed_shares, steps};

/// A quarter of the study's server.
const SMALLER: u32 = 4;
const WORKERS: u32 = super::WORKERS / SMALLER;

fn score(scenario: &super::Scenario, kind: ControllerKind) -> Score {
    Score::new(scenario, &run(scenario, kind))
}

/// The part of what the oracle does in time.
fn against_oracle(scenario: &super::Scenario, kind: ControllerKind) -> f64 {
    let part = |kind| score(scenario, kind).good as f64;
    part(kind) / part(ControllerKind::Oracle)
}

/// The stage with more demand than capacity.
fn overloaded(factor: f64, kind: ControllerKind) -> StageScore {
    let scenario = steps(factor, 4.0).scaled_down(SMALLER);
    score(&scenario, kind).stages[1]
}

/// What the issue promises of a step. Returns what does not hold.
fn broken_promises(step: &StageScore) -> Vec<&'static str> {
    let promises = [
        (step.goodput >= 0.97, "97 % of the capacity"),
        (step.critical >= 0.999, "99.9 % of critical requests"),
        (
            step.stable_after.is_some_and(|after| after <= 0.2),
            "stable within 200 ms",
        ),
        (step.shed_moves < 0.02, "the shed share moves less than 2 %"),
    ];
    let broken = promises.into_iter().filter(|(holds, _)| !holds);
    broken.map(|(_, promise)| promise).collect()
}

#[test]
fn a_changing_service_time_costs_at_most_3_percent_of_the_oracle() {
    let scenario = gcl(32.0).scaled_down(SMALLER);
    let ours = against_oracle(&scenario, ControllerKind::Ours);
    assert!(ours >= 0.97, "{ours}");
    // Controls: a limit that is too low, and one that lets the server queue.
    for limit in [WORKERS / 6, 4 * WORKERS] {
        let other = against_oracle(&scenario, ControllerKind::Static(limit));
        assert!(other < 0.97, "static {limit}: {other}");
    }
    let gradient = against_oracle(&scenario, ControllerKind::Gradient2);
    assert!(gradient < 0.97, "gradient2: {gradient}");
}

#[test]
fn steps_up_to_12_times_the_capacity_keep_every_promise() {
    for factor in [1.4, 12.0] {
        let step = overloaded(factor, ControllerKind::Ours);
        assert_eq!(broken_promises(&step), [""; 0], "{factor}×: {step:?}");
    }
    // Controls: even the right limit loses critical requests without priorities, and a wrong one breaks every promise.
    let right = overloaded(2.0, ControllerKind::Static(WORKERS));
    assert_eq!(broken_promises(&right), ["99.9 % of critical requests"]);
    let wrong = overloaded(2.0, ControllerKind::Static(WORKERS / 6));
    assert_eq!(broken_promises(&wrong).len(), 3, "{wrong:?}");
}

/// The trace as it was published: 12 workers, so a limit of one more or less is 8 %.
#[test]
fn twelve_workers_are_enough_to_find_their_number() {
    for seed in 1..=3 {
        let mut scenario = gcl(80.0).scaled_down(100);
        scenario.seed = seed;
        let ours = against_oracle(&scenario, ControllerKind::Ours);
        assert!(ours >= 0.95, "seed {seed}: {ours}");
        let wrong = against_oracle(&scenario, ControllerKind::Static(36));
        assert!(wrong < 0.95, "seed {seed}, a limit of 36: {wrong}");
    }
}

/// The oracle once kept requests that were too late instead of shedding them. Its shed share was 0 % and never moved.
#[test]
fn the_oracle_sheds_what_exceeds_the_capacity() {
    let scenario = steps(2.0, 4.0).scaled_down(SMALLER);
    let ran = run(&scenario, ControllerKind::Oracle);
    let overloaded = &ran.buckets[300..600];
    for shares in [
        shed_shares(overloaded, |bucket| bucket.shed),
        shed_shares(overloaded, |bucket| bucket.shed_of_arrived),
    ] {
        assert_eq!(shares.len(), 3);
        let is_half = |share: &f64| (share - 0.5).abs() < 0.03;
        assert!(shares.iter().all(is_half), "{shares:?}");
    }
}

#[test]
fn a_limit_does_not_run_away_while_demand_grows() {
    let mut scenario = ramp(11.5).scaled_down(SMALLER);
    scenario.is_service_random = true;
    let ran = run(&scenario, ControllerKind::Ours);
    let late = &ran.buckets[ran.buckets.len() / 2..];
    let most = late.iter().map(|bucket| bucket.limit).max().unwrap();
    assert!(most < 2 * WORKERS, "{most}");
    let wild = run(&scenario, ControllerKind::Aimd);
    let most = wild.buckets.iter().map(|bucket| bucket.limit).max();
    assert!(most > Some(2 * WORKERS), "the control stays low: {most:?}");
}

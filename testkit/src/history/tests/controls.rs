//! Wrong limiters and forged histories, each of which a check must find, beside right ones, which none may accuse.

use std::time::Duration;

use super::simulated::{BUCKET, LimiterBug, SimulatedRun, run};
use crate::history::bound::{worst_window_by_looking_at_all, worst_window_by_sweeping};
use crate::history::{
    Allowance, History, Operation, PermitLimit, Promise, Record, RecordedVerdict, ReportedQuota,
    Violation, all_or_nothing, availability, bound, bound_of_log, coherence, coherence_of_each,
    conservation, degraded_throughout, denials, not_too_far_ahead, recovery, spends,
    spends_exactly, times_to_live,
};
use crate::seeded_rng::SeededRng;

const SEEDS: u64 = 60;

fn record(invoked: u64, completed: u64, verdict: RecordedVerdict) -> Record {
    Record {
        request: invoked,
        key: "alice".to_owned(),
        act: Operation::Spend,
        cost: 1,
        invoked,
        completed,
        verdict,
        is_degraded: false,
        retry_after: (verdict == RecordedVerdict::Denied).then_some(1),
        quota: None,
    }
}

fn history(records: impl IntoIterator<Item = Record>) -> History {
    History {
        records: records.into_iter().collect(),
    }
}

fn promise<T: std::fmt::Debug>(checked: Result<T, Violation>) -> Option<Promise> {
    checked.err().map(|broken| broken.promise)
}

/// Every promise that a run breaks.
fn check(ran: &SimulatedRun) -> Vec<Violation> {
    let history = &ran.history;
    let moved: Vec<_> = ran
        .moved
        .iter()
        .map(|(key, by)| (*key, BUCKET, *by))
        .collect();
    let spends = moved
        .iter()
        .map(|(key, bucket, by)| spends(history, key, *bucket, *by).err());
    let others = [
        bound(history, &Allowance::of(BUCKET)).err(),
        all_or_nothing(history, &moved).err(),
        denials(history, BUCKET, 0).err(),
        coherence(history, BUCKET, 0).err(),
    ];
    spends.chain(others).flatten().collect()
}

#[test]
fn a_right_limiter_is_never_accused() {
    let (mut denied, mut returned, mut lost) = (0, 0, 0);
    for seed in 0..SEEDS {
        let ran = run(seed, LimiterBug::Nothing);
        assert_eq!(check(&ran), [], "seed {seed}");
        let looked = denials(&ran.history, BUCKET, 0).unwrap();
        denied += looked.denied;
        returned += looked.returned;
        lost += ran.history.count(RecordedVerdict::Lost);
    }
    assert!(denied > 1_000 && lost > 100, "{denied} {lost}");
    assert!(returned > 0, "somebody came back after a wait");
}

/// In how many of the seeds the checks find that a limiter which is wrong in this way breaks this promise.
fn found(wrong: LimiterBug, promise: Promise) -> usize {
    let breaks = |seed: &u64| {
        let broken = check(&run(*seed, wrong));
        broken.iter().any(|broken| broken.promise == promise)
    };
    (0..SEEDS).filter(breaks).count()
}

#[test]
fn control_every_wrong_limiter_is_found_by_the_check_that_is_meant_for_it() {
    for (wrong, promise, least) in [
        (LimiterBug::ChecksThenActs, Promise::Bound, SEEDS * 9 / 10),
        (LimiterBug::Retries, Promise::NoDoubleSpend, SEEDS),
        (LimiterBug::ForgetsToCharge, Promise::NoDoubleSpend, SEEDS),
        (LimiterBug::LosesState, Promise::Bound, SEEDS * 9 / 10),
        (LimiterBug::DeniesEarly, Promise::NoFalseDenial, SEEDS),
        (LimiterBug::TwoClocks, Promise::Coherence, SEEDS),
        (LimiterBug::ChargesInPart, Promise::AllOrNothing, SEEDS),
        // It takes somebody who comes back after the wait, and nobody in between.
        (LimiterBug::TellsHalfTheWait, Promise::NoFalseDenial, 1),
    ] {
        let times = found(wrong, promise) as u64;
        assert!(times >= least, "{wrong:?}: {promise:?} {times} of {SEEDS}");
    }
}

#[test]
fn control_a_burst_for_each_loss_excuses_lost_state_and_nothing_else() {
    let allowed = Allowance::of(BUCKET);
    let bursts = |seed, times| {
        bound(
            &run(seed, LimiterBug::LosesState).history,
            &allowed.losses(times),
        )
    };
    assert!((0..SEEDS).any(|seed| bursts(seed, 0).is_err()));
    assert!((0..SEEDS).all(|seed| bursts(seed, 600).is_ok()));
}

#[test]
fn i01_the_sweep_finds_what_looking_at_every_window_finds() {
    let mut dice = SeededRng::new(11);
    for _ in 0..300 {
        let count = 1 + dice.below(25);
        let records: Vec<Record> = (0..count)
            .map(|_| {
                let invoked = dice.below(50);
                let mut record =
                    record(invoked, invoked + dice.below(20), RecordedVerdict::Admitted);
                record.cost = dice.below(4);
                if dice.happens(15) {
                    record.act = Operation::GiveBack;
                }
                if dice.happens(10) {
                    record.verdict = RecordedVerdict::Denied;
                }
                record
            })
            .collect();
        let records: Vec<&Record> = records.iter().collect();
        let priced = |cost| i128::from(cost) * 7;
        assert_eq!(
            worst_window_by_sweeping(&records, priced),
            worst_window_by_looking_at_all(&records, priced),
            "{records:?}"
        );
    }
}

#[test]
fn i01_a_hundred_thousand_records_are_no_trouble() {
    let records =
        (0..100_000).map(|n| record(n * 1_000, n * 1_000 + 5_000, RecordedVerdict::Admitted));
    let worst = bound(&history(records), &Allowance::of(BUCKET)).unwrap();
    assert_eq!((worst.in_all, worst.admitted), (100_000, 100_000));
    assert_eq!(
        worst.allowed,
        100_000 + 14,
        "the burst, and five more of refill at the end"
    );
}

#[test]
fn control_one_unit_too_many_is_noticed_in_a_bucket_and_in_a_log() {
    let burst =
        |count: u64| history((0..count).map(|n| record(n, n + 1, RecordedVerdict::Admitted)));
    let worst = bound(&burst(10), &Allowance::of(BUCKET)).unwrap();
    assert_eq!((worst.units, worst.admitted), (0, 10));
    assert_eq!(
        promise(bound(&burst(11), &Allowance::of(BUCKET))),
        Some(Promise::Bound)
    );
    let worst = bound(&burst(11), &Allowance::of(BUCKET).units(1)).unwrap();
    assert_eq!(worst.units, 1);
    assert_eq!(bound_of_log(&burst(10), 10, 1_000, 0), Ok(10));
    assert_eq!(
        promise(bound_of_log(&burst(11), 10, 1_000, 0)),
        Some(Promise::Bound)
    );
    assert!(bound_of_log(&burst(11), 10, 1_000, 1).is_ok());
    assert!(bound_of_log(&burst(2_000), 10, 10, 0).is_ok());
    // What was given back may be admitted again.
    let mut given = burst(11);
    let mut gift = record(5, 6, RecordedVerdict::Admitted);
    gift.act = Operation::GiveBack;
    given.records.push(gift);
    assert!(bound(&given, &Allowance::of(BUCKET)).is_ok());
}

#[test]
fn control_a_charge_too_many_or_too_few_is_noticed() {
    let records = history([
        record(0, 1, RecordedVerdict::Admitted),
        record(2, 3, RecordedVerdict::Admitted),
        record(4, 5, RecordedVerdict::Lost),
        record(6, 7, RecordedVerdict::Denied),
        record(8, 9, RecordedVerdict::Failed),
    ]);
    for (moved, is_right) in [(1_000, false), (2_000, true), (2_500, false), (3_000, true)] {
        let spent = spends(&records, "alice", BUCKET, moved);
        assert_eq!(spent.is_ok(), is_right, "{moved}: {spent:?}");
    }
    assert_eq!(
        promise(spends(&records, "alice", BUCKET, 4_000)),
        Some(Promise::NoDoubleSpend)
    );
    assert_eq!(spends_exactly(&records, "alice", BUCKET, 2_000), Ok(2));
    assert!(spends_exactly(&records, "alice", BUCKET, 3_000).is_err());
}

#[test]
fn control_a_request_that_is_admitted_in_part_is_noticed() {
    let mut parts = vec![
        record(0, 1, RecordedVerdict::Admitted),
        record(0, 1, RecordedVerdict::Admitted),
    ];
    "bob".clone_into(&mut parts[1].key);
    let moved = [("alice", BUCKET, 1_000), ("bob", BUCKET, 1_000)];
    assert!(all_or_nothing(&history(parts.clone()), &moved).is_ok());
    let uneven = [("alice", BUCKET, 1_000), ("bob", BUCKET, 0)];
    let result = all_or_nothing(&history(parts.clone()), &uneven);
    assert_eq!(promise(result), Some(Promise::AllOrNothing));
    parts[1].verdict = RecordedVerdict::Denied;
    let result = all_or_nothing(&history(parts), &moved);
    assert_eq!(promise(result), Some(Promise::AllOrNothing));
}

#[test]
fn control_answers_that_fail_or_come_late_are_noticed() {
    let in_time = |n: u64| record(n, n + 10, RecordedVerdict::Admitted);
    let within = Duration::from_nanos(10);
    let quick = history((0..2_000).map(in_time));
    let speed = availability(&quick, within).unwrap();
    assert_eq!((speed.p999, speed.slowest), (within, within));
    // One of a thousand may be late, and three of two thousand may not.
    let mut late = quick.clone();
    late.records[0].completed += 5;
    assert_eq!(availability(&late, within).unwrap().p999, within);
    for record in &mut late.records[..3] {
        record.completed += 5;
    }
    assert_eq!(
        promise(availability(&late, within)),
        Some(Promise::Availability)
    );
    for verdict in [RecordedVerdict::Lost, RecordedVerdict::Failed] {
        let mut failed = quick.clone();
        failed.records[7].verdict = verdict;
        let result = availability(&failed, within);
        assert_eq!(promise(result), Some(Promise::Availability));
    }
}

#[test]
fn control_an_outage_that_nobody_was_told_of_and_one_that_does_not_end_are_noticed() {
    let mut all = history((0..100).map(|n| record(n * 10, n * 10 + 5, RecordedVerdict::Admitted)));
    for record in &mut all.records[20..60] {
        record.is_degraded = true;
    }
    assert_eq!(degraded_throughout(&all, 200, 595), Ok(40));
    let early = degraded_throughout(&all, 190, 595);
    assert_eq!(promise(early), Some(Promise::Availability));
    assert!(degraded_throughout(&all, 2_000, 3_000).is_err(), "nobody");
    let healed = recovery(&all, 500, Duration::from_nanos(95)).unwrap();
    assert_eq!(healed, Duration::from_nanos(95));
    let slow = recovery(&all, 500, Duration::from_nanos(94));
    assert_eq!(promise(slow), Some(Promise::Recovery));
    all.records.truncate(60);
    let never = recovery(&all, 500, Duration::from_secs(1));
    assert_eq!(promise(never), Some(Promise::Recovery));
}

#[test]
fn control_numbers_that_do_not_fit_together_are_noticed() {
    let quota = |remaining, reset_after| {
        Some(ReportedQuota {
            limit: 10,
            remaining,
            reset_after,
        })
    };
    let check = |record: Record, precision| coherence(&history([record]), BUCKET, precision);
    let with = |quota| Record {
        quota,
        ..record(0, 10, RecordedVerdict::Admitted)
    };
    assert_eq!(check(with(quota(9, 1_000)), 0), Ok(1));
    assert_eq!(check(with(quota(8, 1_001)), 0), Ok(1));
    for wrong in [quota(11, 0), quota(9, 1_001), quota(7, 1_000)] {
        assert_eq!(promise(check(with(wrong), 0)), Some(Promise::Coherence));
    }
    assert_eq!(check(with(quota(9, 1_500)), 500), Ok(1), "rounded up");
    for wait in [Some(0), None] {
        let mut denied = record(0, 10, RecordedVerdict::Denied);
        denied.retry_after = wait;
        assert_eq!(promise(check(denied, 0)), Some(Promise::Coherence));
    }
    // The reset of a second answer is earlier than the first one promised.
    let first = with(quota(5, 5_000));
    let second = |reset| Record {
        quota: quota(10 - reset / 1_000, reset),
        invoked: 100,
        completed: 110,
        ..first.clone()
    };
    assert!(coherence(&history([first.clone(), second(6_000)]), BUCKET, 0).is_ok());
    let back = history([first.clone(), second(2_000)]);
    assert_eq!(
        promise(coherence(&back, BUCKET, 0)),
        Some(Promise::Coherence)
    );
    assert_eq!(
        coherence_of_each(&back, BUCKET, 0),
        Ok(2),
        "by itself each is right"
    );
}

#[test]
fn control_a_place_too_many_and_one_that_never_comes_back_are_noticed() {
    let lease = |act, invoked, verdict| Record {
        act,
        ..record(invoked, invoked + 10, verdict)
    };
    let (yes, no) = (RecordedVerdict::Admitted, RecordedVerdict::Denied);
    let places = PermitLimit {
        limit: 2,
        lease: Duration::from_nanos(1_000),
    };
    let held = [
        lease(Operation::Acquire(1), 0, yes),
        lease(Operation::Acquire(2), 20, yes),
        lease(Operation::Acquire(3), 40, no),
        lease(Operation::Release(1), 60, yes),
        lease(Operation::Acquire(4), 80, yes),
        lease(Operation::Renew(4), 900, yes),
        // The second is lost with its client and comes back by itself.
        lease(Operation::Acquire(5), 1_050, yes),
    ];
    assert_eq!(conservation(&history(held.clone()), places), Ok(2));
    let mut third = held.clone();
    third[2].verdict = yes;
    let result = conservation(&history(third), places);
    assert_eq!(promise(result), Some(Promise::Conservation));
    let mut stuck = held;
    stuck[6].verdict = no;
    let result = conservation(&history(stuck), places);
    assert_eq!(promise(result), Some(Promise::Conservation));
}

#[test]
fn control_a_key_that_never_ends_and_a_state_too_far_ahead_are_noticed() {
    let found = |left| [("tg1:a".to_owned(), left)];
    let longest = Duration::from_secs(1);
    assert!(times_to_live(&found(1_000), longest).is_ok());
    assert!(times_to_live(&found(-2), longest).is_ok());
    for wrong in [-1, 1_001] {
        let result = times_to_live(&found(wrong), longest);
        assert_eq!(promise(result), Some(Promise::TimeToLive));
    }
    assert!(not_too_far_ahead("a", 110, 100, 10).is_ok());
    assert!(not_too_far_ahead("a", 5, 100, 10).is_ok());
    let broken = not_too_far_ahead("a", 111, 100, 10).unwrap_err();
    assert_eq!(broken.promise, Promise::Clock);
    assert_eq!(
        broken.to_string(),
        "I-08 on \"a\": the state lies 11 ns ahead, beyond 10"
    );
}

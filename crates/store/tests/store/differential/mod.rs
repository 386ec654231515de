//! Random traces through the memory store and through core with the same instants: all replies must be equal.
//!
//! The test counts the kinds of steps and asserts that each occurred. A store with a deliberate bug must be caught.

mod trace;

use tollgate_core::Timestamp;
use tollgate_core::limit::{Limit, OpError};
use tollgate_core::reservation::{ReservationId, ReservationOptions};
use tollgate_testkit::vectors::{Subject, SubjectDecision, SubjectRequest, SubjectReservation};

use self::trace::Trace;
use crate::quotas::ALGORITHMS;
use crate::vectors::MemorySubject;

const STEPS: u64 = 100_000;

fn agrees(algorithm: usize) {
    let mut subject = MemorySubject::new(2_000);
    let mut trace = Trace::new(algorithm, 0x5eed + algorithm as u64, &mut subject);
    if let Err(why) = trace.run(STEPS) {
        panic!("{}: {why}", ALGORITHMS[algorithm]);
    }
    let coverage = &trace.coverage;
    coverage.at_least(
        500,
        &[
            "clock back",
            "clock far ahead",
            "requota",
            "allow",
            "deny",
            "all or nothing",
        ],
    );
    coverage.at_least(500, &["1", "2", "3", "4", "5", "6", "7", "8"]);
    if ALGORITHMS[algorithm] == "concurrency" {
        coverage.at_least(500, &["acquire", "renew", "release", "refused"]);
    } else {
        let charges = [
            "charge always",
            "credit",
            "refund",
            "settle down",
            "settle up",
            "huge",
            "never",
            "up to",
        ];
        coverage.at_least(500, &charges);
        coverage.at_least(
            100,
            &[
                "reserve",
                "settle reserved",
                "cancel",
                "reservation in no state for it",
            ],
        );
    }
    if ALGORITHMS[algorithm] == "leaky queue" {
        coverage.at_least(500, &["wait"]);
    }
}

#[test]
fn token_buckets_and_meters_decide_as_in_core() {
    agrees(0);
    agrees(1);
}

#[test]
fn custom_buckets_decide_as_in_core() {
    agrees(7);
}

#[test]
fn queues_and_concurrency_decide_as_in_core() {
    agrees(2);
    agrees(6);
}

#[test]
fn windows_and_counters_decide_as_in_core() {
    agrees(3);
    agrees(5);
}

#[test]
fn logs_decide_as_in_core() {
    agrees(4);
}

/// Charges the first limit of a batch although another denies.
struct ChargesFirstLimit(MemorySubject);

impl Subject for ChargesFirstLimit {
    fn decide(
        &mut self,
        now: Timestamp,
        checks: &[SubjectRequest<'_>],
    ) -> Result<SubjectDecision, OpError> {
        let decision = self.0.decide(now, checks)?;
        if !decision.outcome.is_admitted() && decision.answers[0].outcome.is_admitted() {
            self.0.decide(now, &checks[..1])?;
        }
        Ok(decision)
    }

    fn replace(&mut self, now: Timestamp, key: &str, old: &Limit, new: &Limit) {
        self.0.replace(now, key, old, new);
    }

    fn reserve(
        &mut self,
        now: Timestamp,
        options: &ReservationOptions,
        id: ReservationId,
        ask: SubjectRequest<'_>,
    ) -> SubjectReservation {
        self.0.reserve(now, options, id, ask)
    }

    fn close(
        &mut self,
        now: Timestamp,
        options: &ReservationOptions,
        id: ReservationId,
        ask: SubjectRequest<'_>,
        actual: Option<u64>,
    ) -> SubjectReservation {
        self.0.close(now, options, id, ask, actual)
    }
}

#[test]
fn a_store_that_charges_one_limit_of_a_denied_batch_is_caught() {
    for (algorithm, name) in ALGORITHMS.iter().enumerate() {
        let mut wrong = ChargesFirstLimit(MemorySubject::new(2_000));
        let caught = Trace::new(algorithm, 1, &mut wrong).run(2_000);
        assert!(caught.is_err(), "{name}");
    }
}

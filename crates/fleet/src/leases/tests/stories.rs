//! How a node uses leases, one story per test.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tollgate_core::{Nanos, Outcome, Receipt};
use tollgate_store::{
    Clock as _, IdentifiedLimit, ManualClock, Op, QuotaCheck, StoreErrorKind, StoreReply,
};
use tollgate_testkit::allocation;

use super::super::{LeaseOptions, LocalLeases, SpendOutcome};
use super::fake_broker::{FakeBroker, Fate, check, clock, ruled};
use crate::testing::poll_once;

const KEY: &[u8] = b"everyone";

struct LeaseTest {
    clock: Arc<ManualClock>,
    lender: FakeBroker,
    leases: LocalLeases,
}

impl LeaseTest {
    fn new() -> Self {
        let clock = clock();
        Self {
            lender: FakeBroker::new(Arc::clone(&clock)),
            leases: LocalLeases::new(LeaseOptions::default()),
            clock,
        }
    }

    fn other_node(&self) -> LocalLeases {
        LocalLeases::new(LeaseOptions::default())
    }

    fn advance(&self, millis: u64) {
        self.clock.advance(Nanos::from_millis(millis));
    }

    /// One request, as an engine makes it.
    fn spend(&self, check: &QuotaCheck<'_>) -> Result<SpendOutcome, StoreErrorKind> {
        self.spend_on(&self.leases, check)
    }

    fn spend_on(
        &self,
        leases: &LocalLeases,
        check: &QuotaCheck<'_>,
    ) -> Result<SpendOutcome, StoreErrorKind> {
        match leases.spend(check, self.clock.now()) {
            SpendOutcome::Borrow => {
                let borrowing = leases.borrow(&self.lender, None, check, || self.clock.now());
                poll_once(borrowing).unwrap().map_err(|error| error.kind())
            }
            taken => Ok(taken),
        }
    }

    fn is_admitted(&self, check: &QuotaCheck<'_>) -> bool {
        matches!(self.spend(check), Ok(SpendOutcome::Admitted(_)))
    }

    fn tend(&self) {
        for _ in 0..8 {
            poll_once(self.leases.maintain(&self.lender, || self.clock.now())).unwrap();
        }
    }

    fn calls(&self) -> usize {
        self.lender.calls().len()
    }
}

fn answer(taken: SpendOutcome) -> StoreReply {
    match taken {
        SpendOutcome::Admitted(answer) | SpendOutcome::Denied(answer) => answer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_hot_key_needs_few_calls_and_admits_exactly_the_limit() {
    let rig = LeaseTest::new();
    let limit = ruled(100, 10_000);
    let admitted = (0..30_000).filter(|_| {
        let is_admitted = rig.is_admitted(&check(&limit, 1));
        rig.tend_if_wanted();
        is_admitted
    });
    assert_eq!(
        admitted.count(),
        10_000,
        "no time passes, so nothing refills"
    );
    assert!(rig.calls() * 20 <= 10_000, "{} calls", rig.calls());
}

impl LeaseTest {
    fn tend_if_wanted(&self) {
        if poll_once(self.leases.wait_for_demand()).is_some() {
            poll_once(self.leases.maintain(&self.lender, || self.clock.now())).unwrap();
        }
    }
}

#[test]
fn a_small_limit_is_leased_unit_by_unit() {
    let rig = LeaseTest::new();
    rig.leases.set_nodes(3);
    let limit = ruled(1, 5);
    for left in (0..5).rev() {
        assert!(rig.is_admitted(&check(&limit, 1)));
        assert_eq!(
            rig.lender.remaining(KEY, &limit),
            left,
            "nothing is kept here"
        );
    }
    assert!(!rig.is_admitted(&check(&limit, 1)));
}

#[test]
fn no_lease_exceeds_a_fair_share_and_all_nodes_together_get_the_limit() {
    let rig = LeaseTest::new();
    let limit = ruled(1, 3_000);
    let nodes = [rig.other_node(), rig.other_node(), rig.other_node()];
    let mut admitted = [0_u64; 3];
    for node in &nodes {
        node.set_nodes(3);
    }
    for _ in 0..2_000 {
        for (node, admitted) in nodes.iter().zip(&mut admitted) {
            let taken = rig.spend_on(node, &check(&limit, 1)).unwrap();
            *admitted += u64::from(matches!(taken, SpendOutcome::Admitted(_)));
        }
    }
    assert_eq!(admitted.iter().sum::<u64>(), 3_000);
    assert!(admitted.iter().all(|one| *one > 900), "{admitted:?}");
    let calls = rig.lender.calls();
    let largest = calls
        .iter()
        .filter_map(|call| call.want)
        .map(|want| want.max_units);
    assert_eq!(largest.max(), Some(500));
}

#[test]
fn one_request_serves_all_waiting_checks_and_a_second_those_it_was_too_small_for() {
    let rig = LeaseTest::new();
    rig.lender.set_fate(Fate::UnderWay);
    let limit = ruled(1, 1_000);
    let checks = check(&limit, 1);
    let now = || rig.clock.now();
    let mut borrowing: Vec<_> = (0..50)
        .map(|_| Box::pin(rig.leases.borrow(&rig.lender, None, &checks, now)))
        .collect();
    let mut context = Context::from_waker(Waker::noop());
    let mut admitted = 0;
    for round in 0..2 {
        borrowing.retain_mut(|one| one.as_mut().poll(&mut context).is_pending());
        assert_eq!(rig.calls(), round + 1);
        rig.lender.deliver(round);
        rig.lender.answer(round, false);
        // The request that asked the broker is served first; the waiting ones look again.
        borrowing.retain_mut(|one| match one.as_mut().poll(&mut context) {
            Poll::Ready(Ok(SpendOutcome::Admitted(_))) => {
                admitted += 1;
                false
            }
            _ => true,
        });
    }
    borrowing.retain_mut(|one| match one.as_mut().poll(&mut context) {
        Poll::Ready(Ok(SpendOutcome::Admitted(_))) => {
            admitted += 1;
            false
        }
        _ => true,
    });
    assert_eq!((admitted, borrowing.len(), rig.calls()), (50, 0, 2));
}

/// Traffic at a hundred times the limit makes hardly more calls than admitted requests.
#[test]
fn traffic_far_beyond_the_limit_makes_hardly_any_calls() {
    let rig = LeaseTest::new();
    let limit = ruled(10, 10);
    let mut admitted = 0;
    for _ in 0..10_000 {
        rig.advance(1);
        admitted += usize::from(rig.is_admitted(&check(&limit, 1)));
    }
    assert!((100..=110).contains(&admitted), "{admitted}");
    assert!(rig.calls() <= admitted + 1, "{} calls", rig.calls());

    let rig = LeaseTest::new();
    let slow = ruled(1, 1);
    let first = rig.is_admitted(&check(&slow, 1));
    let again = (0..900)
        .filter(|_| rig.is_admitted(&check(&slow, 1)))
        .count();
    assert_eq!((first, again, rig.calls()), (true, 0, 1));
}

#[test]
fn a_denied_client_that_waits_for_retry_after_is_admitted() {
    let rig = LeaseTest::new();
    let limit = ruled(10, 3);
    for _ in 0..3 {
        assert!(rig.is_admitted(&check(&limit, 1)));
    }
    for _ in 0..20 {
        let denied = answer(rig.spend(&check(&limit, 1)).unwrap());
        let Outcome::Deny { retry_after } = denied.outcome else {
            panic!("{denied:?}");
        };
        assert!(!retry_after.is_zero() && denied.status.remaining == 0);
        rig.clock.advance(retry_after);
        assert!(rig.is_admitted(&check(&limit, 1)));
    }
}

#[test]
fn i12_limit_remaining_and_reset_are_coherent() {
    let rig = LeaseTest::new();
    let limit = ruled(50, 100);
    let mut last: Option<StoreReply> = None;
    for step in 0..2_000_u64 {
        rig.advance(step % 7);
        let taken = rig.spend(&check(&limit, 1 + step % 3)).unwrap();
        rig.tend_if_wanted();
        let told = answer(taken);
        let status = told.status;
        assert_eq!(status.limit, 100);
        assert!(status.remaining <= 100, "{told:?}");
        match told.outcome {
            Outcome::Deny { retry_after } => {
                assert!(status.remaining <= step % 3 && !retry_after.is_zero());
            }
            _ => assert!(
                !status.reset_after.is_zero(),
                "something was used: {told:?}"
            ),
        }
        let is_spent = matches!(taken, SpendOutcome::Admitted(_));
        if let (Some(last), true, 0) = (last, is_spent, step % 7) {
            // No time has passed, so the spent units are missing.
            assert!(
                status.remaining <= last.status.remaining,
                "{last:?} {told:?}"
            );
        }
        last = Some(told);
    }
    let never = answer(rig.spend(&check(&limit, 101)).unwrap());
    assert_eq!(never.outcome, Outcome::Never);
}

#[test]
fn a_charge_that_another_limit_denied_is_refunded_to_the_lease() {
    let rig = LeaseTest::new();
    let limit = ruled(1, 10);
    let one = check(&limit, 1);
    for _ in 0..200 {
        let spent = answer(rig.spend(&one).unwrap());
        assert!(spent.outcome.is_admitted(), "refused requests cost nothing");
        let back = rig.leases.refund(&one, &spent.receipt, rig.clock.now());
        assert_eq!(back, 1);
    }
    assert!(rig.calls() <= 2);
    let spent = answer(rig.spend(&one).unwrap());
    rig.advance(1_500);
    rig.tend();
    let back = rig.leases.refund(&one, &spent.receipt, rig.clock.now());
    assert_eq!(
        (back, rig.leases.totals().not_refunded),
        (0, 1),
        "the lender was told"
    );
    let again = rig
        .leases
        .refund(&one, &Receipt::default(), rig.clock.now());
    assert_eq!(again, 0, "of what nobody was charged nothing comes back");
}

#[test]
fn a_higher_actual_cost_is_taken_from_the_next_lease() {
    let rig = LeaseTest::new();
    let limit = ruled(1, 10);
    let one = check(&limit, 1);
    let spent = answer(rig.spend(&one).unwrap());
    rig.leases.settle(&one, &spent.receipt, 5, rig.clock.now());
    let more = (0..20).filter(|_| rig.is_admitted(&one)).count();
    assert_eq!(more, 5, "of ten, one and four more were spent");
}

#[test]
fn idle_leases_are_returned_and_all_leases_at_shutdown() {
    let rig = LeaseTest::new();
    let limit = ruled(1, 1_000);
    for _ in 0..100 {
        assert!(rig.is_admitted(&check(&limit, 1)));
    }
    assert!(
        rig.lender.remaining(KEY, &limit) < 900,
        "some are held here"
    );
    rig.advance(1_200);
    rig.tend();
    assert_eq!(rig.lender.remaining(KEY, &limit), 901, "one has refilled");
    assert_eq!(rig.lender.lease_count(KEY), 0);
    rig.advance(1_200);
    rig.tend();
    assert_eq!(
        rig.leases.totals().keys,
        0,
        "nothing is remembered for nothing"
    );

    assert!(rig.is_admitted(&check(&limit, 1)));
    let giving = rig.leases.return_all(&rig.lender, || rig.clock.now());
    assert_eq!(poll_once(giving).unwrap().failed, 0);
    assert_eq!(rig.lender.lease_count(KEY), 0);
    assert!(rig.is_admitted(&check(&limit, 1)), "the lender decides");
    assert_eq!(
        rig.lender.lease_count(KEY),
        0,
        "and nothing is lent any more"
    );
}

#[test]
fn an_unavailable_broker_is_an_error_for_all_waiting_checks_and_loses_nothing() {
    let rig = LeaseTest::new();
    let limit = ruled(1, 1_000);
    let one = check(&limit, 1);
    rig.lender.set_fate(Fate::UnderWay);
    let now = || rig.clock.now();
    let mut context = Context::from_waker(Waker::noop());
    let mut first = pin!(rig.leases.borrow(&rig.lender, None, &one, now));
    let mut other = pin!(rig.leases.borrow(&rig.lender, None, &one, now));
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(other.as_mut().poll(&mut context).is_pending());
    rig.lender.deliver(0);
    rig.lender.answer(0, true);
    for (waiting, kind) in [
        (first, StoreErrorKind::TimedOut),
        (other, StoreErrorKind::Busy),
    ] {
        let Poll::Ready(Err(error)) = waiting.poll(&mut context) else {
            panic!("both fail");
        };
        assert_eq!(error.kind(), kind);
    }
    assert_eq!(rig.calls(), 1, "nobody has tried again");
    assert_eq!(
        rig.lender.lease_count(KEY),
        1,
        "what was lent is not known here"
    );
    rig.lender.set_fate(Fate::AtOnce);
    assert!(rig.is_admitted(&one));
    assert_eq!(
        rig.lender.lease_count(KEY),
        1,
        "it was given back with the next errand"
    );
    rig.lender.set_fate(Fate::Unreachable);
    let failed = (0..1_000).find_map(|_| rig.spend(&one).err());
    assert_eq!(failed, Some(StoreErrorKind::Unreachable));
}

#[test]
fn when_a_request_is_dropped_the_waiting_checks_send_their_own() {
    let rig = LeaseTest::new();
    let limit = ruled(1, 1_000);
    let one = check(&limit, 1);
    rig.lender.set_fate(Fate::UnderWay);
    let now = || rig.clock.now();
    let mut context = Context::from_waker(Waker::noop());
    let mut first = Box::pin(rig.leases.borrow(&rig.lender, None, &one, now));
    let mut other = pin!(rig.leases.borrow(&rig.lender, None, &one, now));
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(other.as_mut().poll(&mut context).is_pending());
    rig.lender.deliver(0);
    drop(first);
    rig.lender.set_fate(Fate::AtOnce);
    let taken = other.poll(&mut context);
    assert!(matches!(taken, Poll::Ready(Ok(SpendOutcome::Admitted(_)))));
    let told = &rig.lender.calls()[1].reports;
    assert!(
        told.iter()
            .any(|report| report.is_last && report.spent == 0)
    );
}

#[test]
fn keys_that_do_not_fit_are_decided_by_the_broker() {
    let rig = LeaseTest::new();
    let leases = LocalLeases::new(LeaseOptions {
        max_keys: 1,
        ..LeaseOptions::default()
    });
    let limit = ruled(1, 2);
    let mut admitted = 0;
    for key in 0..200_u32 {
        let key = key.to_be_bytes();
        let check = QuotaCheck {
            key: tollgate_store::StoreKey::new(&key).unwrap(),
            ..check(&limit, 1)
        };
        for _ in 0..5 {
            let taken = rig.spend_on(&leases, &check).unwrap();
            admitted += u64::from(matches!(taken, SpendOutcome::Admitted(_)));
        }
    }
    assert_eq!(admitted, 400);
    let counted = leases.totals();
    assert!(counted.keys <= 64 && counted.table_full > 0, "{counted:?}");
}

#[test]
fn a_peek_spends_nothing() {
    let rig = LeaseTest::new();
    let limit = ruled(1, 2);
    let look = QuotaCheck {
        op: Op::Peek(1),
        ..check(&limit, 1)
    };
    assert!((0..10).all(|_| rig.is_admitted(&look)));
    assert!(rig.is_admitted(&check(&limit, 1)) && rig.is_admitted(&look));
    assert!(rig.is_admitted(&check(&limit, 1)) && !rig.is_admitted(&check(&limit, 1)));
    assert!(!rig.is_admitted(&look));
    let credit = QuotaCheck {
        op: Op::Credit(1),
        ..look
    };
    assert_eq!(rig.spend(&credit), Ok(SpendOutcome::AskStore));
}

#[test]
fn a_changed_quota_applies_at_once() {
    let rig = LeaseTest::new();
    let small = ruled(1, 2);
    let large = IdentifiedLimit {
        id: small.id,
        ..ruled(1, 6)
    };
    let admitted = |limit: &IdentifiedLimit| {
        (0..10)
            .filter(|_| rig.is_admitted(&check(limit, 1)))
            .count()
    };
    assert_eq!(admitted(&small), 2);
    assert_eq!(admitted(&large), 4, "what was spent stays spent");
}

/// Four threads on two nodes: exactly the limit is admitted, and none waits forever.
#[test]
fn concurrent_threads_admit_exactly_the_limit() {
    let rig = LeaseTest::new();
    let limit = ruled(1, 20_000);
    let nodes = [rig.other_node(), rig.other_node()];
    let (rig, limit) = (&rig, &limit);
    let spending = |leases: &LocalLeases| {
        let one = check(limit, 1);
        let mut context = Context::from_waker(Waker::noop());
        let mut admitted = 0;
        for _ in 0..15_000 {
            let mut taken = leases.spend(&one, rig.clock.now());
            if taken == SpendOutcome::Borrow {
                let now = || rig.clock.now();
                let mut borrowing = pin!(leases.borrow(&rig.lender, None, &one, now));
                taken = loop {
                    if let Poll::Ready(taken) = borrowing.as_mut().poll(&mut context) {
                        break taken.unwrap();
                    }
                    std::thread::yield_now();
                };
            }
            admitted += u64::from(matches!(taken, SpendOutcome::Admitted(_)));
        }
        admitted
    };
    let admitted: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = nodes
            .iter()
            .chain(&nodes)
            .map(|node| scope.spawn(|| spending(node)))
            .collect();
        threads.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert_eq!(admitted, 20_000);
}

#[test]
fn a_decision_from_a_lease_allocates_nothing() {
    let rig = LeaseTest::new();
    let limit = ruled(1_000_000, 1_000_000);
    let one = check(&limit, 1);
    for _ in 0..2_060 {
        assert!(rig.is_admitted(&one));
    }
    let allocated = allocation::calls(|| {
        for _ in 0..500 {
            let taken = rig.leases.spend(&one, rig.clock.now());
            assert!(matches!(taken, SpendOutcome::Admitted(_)));
        }
    });
    assert_eq!(allocated, 0);
}

/// Refunding a reported charge would allow a unit to be spent again after the refill has replaced it.
#[test]
fn reported_charges_are_not_refunded_even_if_more_was_spent_since() {
    let rig = LeaseTest::new();
    let limit = ruled(1, 100);
    let one = check(&limit, 1);
    let spend = || answer(rig.spend(&one).unwrap()).receipt;
    for _ in 0..18 {
        spend();
    }
    let first = spend();
    rig.advance(900);
    spend();
    rig.advance(200);
    rig.tend();
    let second = spend();
    let give_back = |receipt| rig.leases.refund(&one, &receipt, rig.clock.now());
    assert_eq!((give_back(first), give_back(second)), (0, 1));
}

#[test]
fn charges_of_one_lease_are_not_refunded_to_another() {
    let rig = LeaseTest::new();
    let limit = ruled(1, 1_000);
    let one = check(&limit, 1);
    let spend = || rig.leases.spend(&one, rig.clock.now());
    for _ in 0..60 {
        assert!(rig.is_admitted(&one));
        rig.tend_if_wanted();
    }
    while poll_once(rig.leases.wait_for_demand()).is_none() {
        assert!(rig.is_admitted(&one));
    }
    rig.lender.set_fate(Fate::UnderWay);
    let mut tending = pin!(rig.leases.maintain(&rig.lender, || rig.clock.now()));
    let mut context = Context::from_waker(Waker::noop());
    assert!(tending.as_mut().poll(&mut context).is_pending());
    let mut last = None;
    while let SpendOutcome::Admitted(answer) = spend() {
        last = Some(answer.receipt);
    }
    let under_way = rig.calls() - 1;
    rig.lender.deliver(under_way);
    rig.lender.answer(under_way, false);
    assert!(tending.poll(&mut context).is_ready());
    let next = answer(spend()).receipt;
    let give_back = |receipt| rig.leases.refund(&one, &receipt, rig.clock.now());
    assert_eq!((give_back(last.unwrap()), give_back(next)), (0, 1));
}

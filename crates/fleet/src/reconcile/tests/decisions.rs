//! How a node decides between two replies of the store, one story per test.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tollgate_core::{Concurrency, FixedWindow, Nanos, Outcome, SlidingCounter, Timestamp, Window};
use tollgate_store::{
    Clock as _, IdentifiedLimit, LimitId, ManualClock, Op, QuotaCheck, StoreKey, StoreReply,
};
use tollgate_testkit::allocation;

use super::super::{Reconciler, SpendOutcome};
use super::fake_remote::{FakeRemote, Fate, START, bucket, check};
use crate::testing::poll_once;

struct ReconcileTest {
    clock: Arc<ManualClock>,
    remote: FakeRemote,
    nodes: [Reconciler; 2],
}

impl ReconcileTest {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(START));
        Self {
            remote: FakeRemote::new(&clock),
            clock,
            nodes: [1, 2].map(|seed| Reconciler::for_keys(100_000, seed)),
        }
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn spend(&self, node: usize, check: &QuotaCheck<'_>) -> SpendOutcome {
        self.nodes[node].spend(check, None, Nanos::SECOND, self.now())
    }

    fn admitted(&self, node: usize, check: &QuotaCheck<'_>, times: usize) -> usize {
        let is_spent = |_: &usize| matches!(self.spend(node, check), SpendOutcome::Admitted(_));
        (0..times).filter(is_spent).count()
    }

    /// Half a second passes and both nodes reconcile; twice, so that the first node sees the second's report.
    fn reconcile(&self) {
        for _ in 0..2 {
            self.clock.advance(Nanos::from_millis(500));
            for node in &self.nodes {
                node.set_nodes(2);
                poll_once(node.reconcile(&self.remote, || self.now())).unwrap();
            }
        }
    }
}

fn reply(outcome: SpendOutcome) -> StoreReply {
    match outcome {
        SpendOutcome::Admitted(reply) | SpendOutcome::Denied(reply) => reply,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_node_never_admits_more_than_the_quota_by_itself_and_then_counts_the_others() {
    let test = ReconcileTest::new();
    let limit = bucket(1, 10);
    let one = check(&limit, 1);
    assert_eq!(test.admitted(0, &one, 50), 10);
    assert_eq!(test.admitted(1, &one, 50), 10, "it has not reconciled yet");
    test.reconcile();
    assert_eq!(
        test.admitted(0, &one, 50) + test.admitted(1, &one, 50),
        0,
        "twenty were spent"
    );
    let denied = reply(test.spend(0, &one));
    let Outcome::Deny { retry_after } = denied.outcome else {
        panic!("{denied:?}");
    };
    assert!(retry_after > Nanos::from_millis(1), "{retry_after:?}");
    assert_eq!(denied.status.remaining, 0);
    test.clock.advance(Nanos::from_secs(30));
    test.reconcile();
    assert!(test.admitted(0, &one, 50) > 0, "the debt refills");
}

#[test]
fn windows_are_shared_too() {
    let fixed = FixedWindow::builder(10, Window::Epoch(Nanos::HOUR)).build();
    let sliding = SlidingCounter::builder(10, Nanos::HOUR).build();
    for (number, limit) in [(2, fixed.unwrap().into()), (3, sliding.unwrap().into())] {
        let test = ReconcileTest::new();
        let limit = IdentifiedLimit {
            id: LimitId(NonZeroU16::new(number).unwrap()),
            limit,
        };
        let one = check(&limit, 1);
        assert_eq!(
            (test.admitted(0, &one, 6), test.admitted(1, &one, 2)),
            (6, 2)
        );
        test.reconcile();
        assert_eq!(test.admitted(0, &one, 1), 1);
        test.reconcile();
        assert_eq!(test.admitted(0, &one, 50), 1, "nine of ten were spent");
        test.reconcile();
        assert!(
            test.admitted(1, &one, 50) <= 2,
            "an idle node has not reconciled"
        );
        test.reconcile();
        assert_eq!(test.admitted(1, &one, 50), 0);
        let denied = reply(test.spend(1, &one));
        assert!(matches!(denied.outcome, Outcome::Deny { .. }));
    }
}

#[test]
fn many_keys_are_reported_in_few_calls_and_idle_ones_not_at_all() {
    let test = ReconcileTest::new();
    let limit = bucket(1, 10);
    for key in 0..640_u32 {
        let key = key.to_be_bytes();
        let check = QuotaCheck {
            key: StoreKey::new(&key).unwrap(),
            ..check(&limit, 1)
        };
        assert!(matches!(test.spend(0, &check), SpendOutcome::Admitted(_)));
    }
    test.clock.advance(Nanos::from_millis(500));
    let round = poll_once(test.nodes[0].reconcile(&test.remote, || test.now())).unwrap();
    assert_eq!((round.keys, round.failed), (640, 0));
    assert_eq!(round.calls, 20, "32 in each");
    let calls = test.remote.calls.load(Ordering::Relaxed);
    test.reconcile();
    assert_eq!(
        test.remote.calls.load(Ordering::Relaxed),
        calls,
        "no key was used"
    );
    test.clock.advance(Nanos::from_secs(60));
    poll_once(test.nodes[0].reconcile(&test.remote, || test.now())).unwrap();
    assert_eq!(test.nodes[0].totals().keys, 0, "idle keys are dropped");
}

#[test]
fn a_charge_that_another_limit_denied_is_refunded_unless_it_was_reported() {
    let test = ReconcileTest::new();
    let limit = bucket(1, 10);
    let one = check(&limit, 1);
    for _ in 0..100 {
        let spent = reply(test.spend(0, &one));
        assert!(spent.outcome.is_admitted());
        test.nodes[0].refund(&one, &spent.receipt, test.now());
    }
    let spent = reply(test.spend(0, &one));
    assert_eq!(spent.status.remaining, 9);
    test.reconcile();
    test.nodes[0].refund(&one, &spent.receipt, test.now());
    test.reconcile();
    assert_eq!(test.admitted(1, &one, 50), 10, "two seconds have passed");
    let more = reply(test.spend(0, &one));
    test.nodes[0].settle(&one, &more.receipt, 5, test.now());
    assert!(test.admitted(0, &one, 50) <= 5);
}

#[test]
fn lost_reports_are_sent_again() {
    let test = ReconcileTest::new();
    let limit = bucket(1, 10);
    let one = check(&limit, 1);
    test.remote.set_fate(Fate::CallLost);
    assert_eq!(test.admitted(0, &one, 10), 10);
    test.reconcile();
    test.remote.set_fate(Fate::Answered);
    test.reconcile();
    assert_eq!(test.admitted(1, &one, 1), 1, "it has not reconciled yet");
    test.reconcile();
    assert!(test.admitted(1, &one, 50) <= 3, "it has reconciled");
}

#[test]
fn at_shutdown_everything_is_reported_at_once() {
    let test = ReconcileTest::new();
    let limit = bucket(1, 10);
    let one = check(&limit, 1);
    assert_eq!(test.admitted(0, &one, 10), 10);
    let round = poll_once(test.nodes[0].report_all(&test.remote, || test.now())).unwrap();
    assert_eq!((round.keys, round.calls, round.failed), (1, 1, 0));
    assert_eq!(test.admitted(1, &one, 1), 1, "it has not reconciled yet");
    test.reconcile();
    assert!(test.admitted(1, &one, 50) <= 2, "it has reconciled");
}

#[test]
fn unsupported_limits_go_to_the_store() {
    let test = ReconcileTest::new();
    let concurrency = IdentifiedLimit {
        id: LimitId(NonZeroU16::MIN),
        limit: Concurrency::new(3, Nanos::MINUTE).unwrap().into(),
    };
    assert!(!Reconciler::can_reconcile(&concurrency.limit));
    assert_eq!(
        test.spend(0, &check(&concurrency, 1)),
        SpendOutcome::AskStore
    );
    let limit = bucket(1, 10);
    let credit = QuotaCheck {
        op: Op::Credit(1),
        ..check(&limit, 1)
    };
    assert_eq!(test.spend(0, &credit), SpendOutcome::AskStore);
    let never = reply(test.spend(0, &check(&limit, 11)));
    assert_eq!(never.outcome, Outcome::Never);
}

#[test]
fn a_decision_allocates_nothing() {
    let test = ReconcileTest::new();
    let limit = bucket(1_000, 1_000);
    let one = check(&limit, 1);
    assert_eq!(test.admitted(0, &one, 1), 1);
    let allocated = allocation::calls(|| {
        assert_eq!(test.admitted(0, &one, 500), 500);
    });
    assert_eq!(allocated, 0);
}

//! What a check of a leased limit replies.

use super::*;

#[test]
fn i03_a_denied_client_that_waits_for_retry_after_is_admitted() {
    let test = LeaseTest::new();
    let limit = bucket_limit(10, 3);
    for _ in 0..3 {
        assert!(test.is_admitted(&check(&limit, 1)));
    }
    for _ in 0..20 {
        let denied = reply(test.spend(&check(&limit, 1)).unwrap());
        let Outcome::Deny { retry_after } = denied.outcome else {
            panic!("{denied:?}");
        };
        assert!(!retry_after.is_zero() && denied.status.remaining == 0);
        test.clock.advance(retry_after);
        assert!(test.is_admitted(&check(&limit, 1)));
    }
}

#[test]
fn i12_limit_remaining_and_reset_are_coherent() {
    let test = LeaseTest::new();
    let limit = bucket_limit(50, 100);
    let mut last: Option<StoreReply> = None;
    for step in 0..2_000_u64 {
        test.advance(step % 7);
        let outcome = test.spend(&check(&limit, 1 + step % 3)).unwrap();
        test.maintain_on_demand();
        let current = reply(outcome);
        let status = current.status;
        assert_eq!(status.limit, 100);
        assert!(status.remaining <= 100, "{current:?}");
        match current.outcome {
            Outcome::Deny { retry_after } => {
                assert!(status.remaining <= step % 3 && !retry_after.is_zero());
            }
            _ => assert!(
                !status.reset_after.is_zero(),
                "units were spent: {current:?}"
            ),
        }
        let is_spent = matches!(outcome, SpendOutcome::Admitted(_));
        if let (Some(last), true, 0) = (last, is_spent, step % 7) {
            // No time has passed, so the spent units are missing.
            assert!(
                status.remaining <= last.status.remaining,
                "{last:?} {current:?}"
            );
        }
        last = Some(current);
    }
    let never = reply(test.spend(&check(&limit, 101)).unwrap());
    assert_eq!(never.outcome, Outcome::Never);
}

#[test]
fn a_peek_spends_nothing() {
    let test = LeaseTest::new();
    let limit = bucket_limit(1, 2);
    let peek = QuotaCheck {
        op: Op::Peek(1),
        ..check(&limit, 1)
    };
    assert!((0..10).all(|_| test.is_admitted(&peek)));
    assert!(test.is_admitted(&check(&limit, 1)) && test.is_admitted(&peek));
    assert!(test.is_admitted(&check(&limit, 1)) && !test.is_admitted(&check(&limit, 1)));
    assert!(!test.is_admitted(&peek));
    let credit = QuotaCheck {
        op: Op::Credit(1),
        ..peek
    };
    assert_eq!(test.spend(&credit), Ok(SpendOutcome::AskStore));
}

#[test]
fn a_changed_quota_applies_at_once() {
    let test = LeaseTest::new();
    let small = bucket_limit(1, 2);
    let large = IdentifiedLimit {
        id: small.id,
        ..bucket_limit(1, 6)
    };
    let admitted = |limit: &IdentifiedLimit| {
        (0..10)
            .filter(|_| test.is_admitted(&check(limit, 1)))
            .count()
    };
    assert_eq!(admitted(&small), 2);
    assert_eq!(admitted(&large), 4, "charges stay");
}

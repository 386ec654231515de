//! What is compared with a candidate, and what is charged to it.

use super::*;

#[test]
fn only_requests_that_the_limit_itself_decides_are_compared_and_charged() {
    let (engine, _clock) = engine(vec![
        with_candidate(per_second(100)),
        limit("other", per_second(2)),
    ]);
    let alice = TestCaller::named("alice");
    for _ in 0..20 {
        let _verdict = engine.decide(&alice);
    }
    assert_eq!(
        totals(&divergence(&engine)),
        (2, 0, 0),
        "the other limit denied all others"
    );
    let _peek = engine.peek(&alice);
    assert_eq!(divergence(&engine).compared, 2, "a peek is not compared");
}

#[test]
fn a_shadow_limit_is_compared_by_its_would_be_outcome() {
    let mut own = with_candidate(per_second(3));
    own.mode = Mode::Shadow;
    let (engine, _clock) = engine(vec![own]);
    for _ in 0..10 {
        assert!(engine.decide(&TestCaller::named("alice")).is_admitted());
    }
    assert_eq!(totals(&divergence(&engine)), (10, 2, 0));
    assert_eq!(engine.totals("api").unwrap().would_deny, 5);
}

#[test]
fn limits_that_share_a_bucket_share_the_candidates_state_and_one_in_shadow_charges_nothing_to_it() {
    let sharing = |name: &str, method: &str, mode| {
        let mut rule = with_candidate(per_second(3));
        rule.name = Box::<str>::from(name).into();
        rule.matching = crate::testing::matching("method", method);
        rule.bucket = Some(Box::<str>::from("all").into());
        rule.mode = mode;
        rule
    };
    let with = |mode| {
        let limits = vec![
            sharing("api", "GET", Mode::Enforce),
            sharing("posts", "POST", mode),
        ];
        let (engine, _clock) = engine(limits);
        for method in ["POST", "POST", "GET", "GET"] {
            let _verdict = engine.decide(&TestCaller::named("alice").with("method", method));
        }
        totals(&divergence(&engine))
    };
    assert_eq!(
        with(Mode::Enforce),
        (2, 1, 0),
        "the second GET is the fourth request in the bucket"
    );
    assert_eq!(
        with(Mode::Shadow),
        (2, 0, 0),
        "posts in shadow are not charged"
    );
}

#[test]
fn tiers_are_not_compared_with_the_candidate() {
    let mut own = with_candidate(per_second(1));
    own.tiers = Some(Tiers {
        by: Attribute::parse("header.plan").unwrap().into(),
        tiers: vec![(Box::<str>::from("pro").into(), per_second(50))],
    });
    let (engine, _clock) = engine(vec![own]);
    for plan in ["pro", "free"] {
        for _ in 0..4 {
            let _verdict = engine.decide(&TestCaller::named("alice").with("header.plan", plan));
        }
    }
    assert_eq!(totals(&divergence(&engine)), (4, 3, 0));
}

#[test]
fn permits_of_a_candidate_are_released_with_those_of_the_limit() {
    let own = LimitRule {
        candidate: Some(places(2)),
        ..limit("api", places(3))
    };
    let (engine, _clock) = engine(vec![own]);
    let alice = TestCaller::named("alice");
    let mut held: Vec<_> = (0..4).map(|_| engine.decide(&alice)).collect();
    assert_eq!(
        totals(&divergence(&engine)),
        (4, 1, 0),
        "both deny the fourth"
    );
    for verdict in &mut held {
        if let Some(ticket) = verdict.take_ticket() {
            engine.respond(ticket, &200).unwrap();
        }
    }
    assert!(engine.decide(&alice).is_admitted());
    assert_eq!(totals(&divergence(&engine)), (5, 1, 0));
}

#[test]
fn responses_are_charged_to_a_candidate_as_to_its_limit() {
    let mut own = with_candidate(per_second(2));
    own.count = Count::Responses(vec![StatusClass::Code(401)]);
    let (engine, _clock) = engine(vec![own]);
    let respond = |status: u16| {
        let mut verdict = engine.decide(&TestCaller::named("alice"));
        if let Some(ticket) = verdict.take_ticket() {
            engine.respond(ticket, &status).unwrap();
        }
        verdict.outcome()
    };
    for _ in 0..10 {
        assert_eq!(respond(200), Outcome::Allow);
    }
    for _ in 0..5 {
        assert_eq!(respond(401), Outcome::Allow);
    }
    assert_eq!(
        totals(&divergence(&engine)),
        (15, 3, 0),
        "after two the candidate would deny"
    );
    assert!(!respond(401).is_admitted());
}

#[test]
fn every_denial_is_charged_to_a_candidate_that_counts_denials() {
    let with = |candidate: u64| {
        let minute = |units| quota(Algorithm::TokenBucket, &[(units, Nanos::MINUTE)]);
        let denials = LimitRule {
            count: Count::Denials,
            candidate: Some(minute(candidate)),
            ..limit("api", minute(3))
        };
        let mut insists = limit("insists", per_second(90));
        insists.matching = crate::testing::matching("method", "POST");
        insists.key[0].missing = tollgate_policy::model::OnMissing::Deny;
        insists.key[0].attribute = Attribute::parse("header.token").unwrap().into();
        vec![denials, limit("fast", per_second(2)), insists]
    };
    // Two are admitted, 8 are denied by the limit on requests, 2 for a missing key.
    let totals_with = |candidate| {
        let (engine, clock) = engine(with(candidate));
        let alice = TestCaller::named("alice");
        for _ in 0..10 {
            let _verdict = engine.decide(&alice);
        }
        for _ in 0..2 {
            assert!(
                !engine
                    .decide(&alice.clone().with("method", "POST"))
                    .is_admitted()
            );
        }
        clock.advance(Nanos::SECOND);
        assert!(
            !engine.decide(&alice).is_admitted(),
            "three denials were too many"
        );
        let reported = divergence(&engine);
        (reported.would_deny, reported.would_allow)
    };
    assert_eq!(totals_with(10), (0, 0), "ten were exhausted too");
    assert_eq!(totals_with(11), (0, 1));
}

#[test]
fn estimates_of_a_candidate_are_settled_with_those_of_its_limit() {
    let mut own = with_candidate(per_second(40));
    own.quota = per_second(80);
    own.cost = Cost::Response {
        header: "x-used".into(),
        estimate: 20,
        at_most: 100,
    };
    struct Used;
    impl crate::Response for Used {
        fn status(&self) -> u16 {
            200
        }
        fn header(&self, _name: &str) -> Option<&[u8]> {
            Some(b"1")
        }
    }
    let (engine, _clock) = engine(vec![own]);
    for _ in 0..20 {
        let mut verdict = engine.decide(&TestCaller::named("alice"));
        engine
            .respond(verdict.take_ticket().unwrap(), &Used)
            .unwrap();
    }
    assert_eq!(totals(&divergence(&engine)), (20, 0, 0));
}

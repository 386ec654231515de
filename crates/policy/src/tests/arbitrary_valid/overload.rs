//! Priority classes and mechanisms against overload that a policy may have.

use crate::attributes::Attribute;
use crate::model::{
    Condition, Located, Match, Mode, OverloadSpec, Percent, PriorityClassSpec, RetrySource, Test,
};

/// Classes with and without a condition, chosen by a number.
pub(super) fn priorities(number: u16) -> Vec<PriorityClassSpec> {
    let class = |name: &str, matching| PriorityClassSpec {
        name: Box::<str>::from(name).into(),
        matching,
    };
    let condition = Condition {
        attribute: Attribute::Method,
        test: Test::OneOf(vec!["POST".into()]),
    };
    let matching = Match {
        conditions: vec![Located::from(condition)],
    };
    match number % 3 {
        0 => Vec::new(),
        1 => vec![class("default", None)],
        _ => vec![class("critical", Some(matching)), class("default", None)],
    }
}

pub(super) fn overload(number: u16) -> OverloadSpec {
    let mode = |number: u16| match number % 3 {
        0 => Mode::Off,
        1 => Mode::Shadow,
        _ => Mode::Enforce,
    };
    OverloadSpec {
        adaptive_concurrency: mode(number),
        utilization: mode(number / 3),
        reserve: mode(number / 9),
        reserved_share: Percent::from_hundredths(number),
        retries: mode(number / 27),
        retry_share: Percent::from_hundredths(number),
        credits: mode(number / 81),
    }
}

/// Always with a client, because `retries` needs one.
pub(super) fn retries(number: u16) -> RetrySource {
    let header = Attribute::Header(match number % 2 {
        0 => RetrySource::HEADER.into(),
        _ => "retry-attempt".into(),
    });
    let client = Located::from(Attribute::Extension("user".into()));
    RetrySource {
        header,
        client: Some(client),
    }
}

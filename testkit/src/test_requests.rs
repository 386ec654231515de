//! Requests and policies that tests make by hand.
//!
//! Must not know: engines, stores, any one test.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot make its request or policy has to end"
)]

use std::net::IpAddr;

use tollgate_core::{Nanos, QuotaUnit};
use tollgate_policy::attributes::{Attribute, Attributes};
use tollgate_policy::model::{
    Algorithm, Amount, Condition, KeyPart, LimitRule, Located, Match, Period, Policy, QuotaSpec,
    RateSpec, Test,
};
use tollgate_policy::rules::Rules;

/// A request that says what it is told to say.
#[derive(Clone, Debug, Default)]
pub struct TestCaller {
    ip: Option<IpAddr>,
    says: Vec<(Attribute, Vec<u8>)>,
}

impl TestCaller {
    /// Somebody of this name, in `header.user`.
    #[must_use]
    pub fn named(user: &str) -> Self {
        Self::default().with("header.user", user)
    }

    /// The same, from this address.
    ///
    /// # Panics
    /// It is no address.
    #[must_use]
    pub fn from(mut self, ip: &str) -> Self {
        self.ip = Some(ip.parse().unwrap());
        self
    }

    /// The same, with this attribute.
    ///
    /// # Panics
    /// There is no such attribute.
    #[must_use]
    pub fn with(mut self, attribute: &str, value: &str) -> Self {
        let attribute = Attribute::parse(attribute).unwrap();
        self.says.push((attribute, value.as_bytes().to_vec()));
        self
    }
}

impl Attributes for TestCaller {
    fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        let said = self.says.iter().find(|(one, _)| one == attribute);
        said.map(|(_, value)| &**value)
    }
}

/// These rates by this algorithm.
#[must_use]
pub fn quota(algorithm: Algorithm, rates: &[(u64, Nanos)]) -> Located<QuotaSpec> {
    let rate = |(units, span): &(u64, Nanos)| RateSpec {
        units: *units,
        period: Period::Span(*span),
    };
    amount(
        algorithm,
        Amount::Rates(rates.iter().map(|one| rate(one).into()).collect()),
    )
}

/// A concurrency limit of so many places, leased for a minute.
#[must_use]
pub fn places(places: u64) -> Located<QuotaSpec> {
    let lease = Nanos::MINUTE;
    amount(
        Algorithm::Concurrency,
        Amount::Concurrency {
            permits: places,
            lease,
        },
    )
}

fn amount(algorithm: Algorithm, amount: Amount) -> Located<QuotaSpec> {
    Located::from(QuotaSpec {
        algorithm,
        amount,
        burst: None,
        unit: QuotaUnit::Requests,
        utc_offset_minutes: 0,
        details: tollgate_policy::model::QuotaDetails::default(),
    })
}

/// So many a second, by token bucket.
#[must_use]
pub fn per_second(units: u64) -> Located<QuotaSpec> {
    quota(Algorithm::TokenBucket, &[(units, Nanos::SECOND)])
}

/// A key of these attributes.
#[must_use]
pub fn key(parts: &[&str]) -> Vec<KeyPart> {
    let part = |name: &&str| KeyPart::new(Attribute::parse(name).unwrap().into());
    parts.iter().map(part).collect()
}

/// A limit for each user.
#[must_use]
pub fn limit(name: &str, quota: Located<QuotaSpec>) -> LimitRule {
    LimitRule {
        key: key(&["header.user"]),
        ..LimitRule::new(Box::from(name), quota)
    }
}

/// A match of one attribute with one value.
#[must_use]
pub fn matching(attribute: &str, value: &str) -> Match {
    let condition = Condition {
        attribute: Attribute::parse(attribute).unwrap(),
        test: Test::OneOf(vec![value.into()]),
    };
    Match {
        conditions: vec![condition.into()],
    }
}

/// A policy of these limits.
#[must_use]
pub fn policy(limits: Vec<LimitRule>) -> Policy {
    Policy {
        limits,
        ..Policy::default()
    }
}

/// The same, compiled.
///
/// # Panics
/// The policy is wrong.
#[must_use]
pub fn rules(limits: Vec<LimitRule>) -> Rules {
    Rules::compile(&policy(limits), [7; 16]).unwrap()
}

//! Handwritten limits for tests: short and complete.
//!
//! Must not know: files.

use tollgate_core::{Nanos, QuotaUnit};

use crate::attributes::{Attribute, Attributes};
use crate::model::{
    Algorithm, Amount, ComputedRate, KeyPart, LimitRule, Located, Period, Policy, QuotaSpec,
    RateSpec,
};

pub(crate) const SECOND: Period = Period::Span(Nanos::SECOND);
pub(crate) const MINUTE: Period = Period::Span(Nanos::MINUTE);
pub(crate) const HOUR: Period = Period::Span(Nanos::HOUR);
pub(crate) const DAY: Period = Period::Span(Nanos::DAY);

/// A quota of these rates.
pub(crate) fn quota(algorithm: Algorithm, rates: &[(u64, Period)]) -> Located<QuotaSpec> {
    quota_of_amount(algorithm, Amount::Rates(rates.iter().map(rate).collect()))
}

fn rate((units, period): &(u64, Period)) -> Located<RateSpec> {
    RateSpec {
        units: *units,
        period: *period,
    }
    .into()
}

/// A token bucket.
pub(crate) fn bucket(units: u64, period: Period) -> Located<QuotaSpec> {
    quota(Algorithm::TokenBucket, &[(units, period)])
}

/// A quota of any amount.
pub(crate) fn quota_of_amount(algorithm: Algorithm, amount: Amount) -> Located<QuotaSpec> {
    QuotaSpec {
        algorithm,
        amount,
        burst: None,
        unit: QuotaUnit::Requests,
        utc_offset_minutes: 0,
        details: crate::model::QuotaDetails::default(),
    }
    .into()
}

/// A computed amount, all over one period.
pub(crate) fn computed(base: u64, each: u64, times: &str, most: u64, period: Period) -> Amount {
    Amount::Computed(ComputedRate {
        base: rate(&(base, period)),
        each: rate(&(each, period)),
        times: attribute(times),
        at_most: rate(&(most, period)),
    })
}

/// An attribute by its name.
pub(crate) fn attribute(name: &str) -> Attribute {
    Attribute::parse(name).unwrap()
}

/// A key of these attributes.
pub(crate) fn key(names: &[&str]) -> Vec<KeyPart> {
    names
        .iter()
        .map(|name| KeyPart::new(attribute(name).into()))
        .collect()
}

/// A limit with every default.
pub(crate) fn limit(name: &str, quota: Located<QuotaSpec>) -> LimitRule {
    LimitRule::new(Box::from(name), quota)
}

/// A policy of these limits.
pub(crate) fn policy(limits: Vec<LimitRule>) -> Policy {
    Policy {
        limits,
        ..Policy::default()
    }
}

/// A request with these attributes.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) ip: Option<std::net::IpAddr>,
    pub(crate) values: Vec<(Attribute, Vec<u8>)>,
}

impl Request {
    /// A request with these attributes; `ip` is an address.
    pub(crate) fn with(values: &[(&str, &str)]) -> Self {
        let mut request = Self::default();
        for (name, value) in values {
            match attribute(name) {
                Attribute::Ip => request.ip = Some(value.parse().unwrap()),
                other => request.values.push((other, value.as_bytes().to_vec())),
            }
        }
        request
    }
}

impl Attributes for Request {
    fn ip(&self) -> Option<std::net::IpAddr> {
        self.ip
    }

    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        let found = self.values.iter().find(|(name, _)| name == attribute);
        found.map(|(_, value)| value.as_slice())
    }
}

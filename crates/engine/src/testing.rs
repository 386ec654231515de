//! What tests of this crate share: requests, policies made by hand, an engine on a clock that stands. Must not know: any
//! one test.

use std::net::IpAddr;
use std::sync::Arc;

use tollgate_core::{Nanos, Timestamp, Unit};
use tollgate_policy::attributes::{Attribute, Attributes};
use tollgate_policy::model::{
    Algorithm, Amount, At, Condition, KeyPart, LimitRule, Match, Period, Policy, QuotaSpec,
    RateSpec, Test,
};
use tollgate_policy::rules::Rules;
use tollgate_store::{ManualClock, Memory};

use crate::Engine;

pub(crate) const START: Timestamp = Timestamp::from_secs(1_700_000_000);

/// A request that says what it is told to say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller {
    ip: Option<IpAddr>,
    says: Vec<(Attribute, Vec<u8>)>,
}

impl Caller {
    /// Somebody of this name, in `header.user`.
    pub(crate) fn named(user: &str) -> Self {
        Self::default().with("header.user", user)
    }

    /// The same, from this address.
    pub(crate) fn from(mut self, ip: &str) -> Self {
        self.ip = Some(ip.parse().unwrap());
        self
    }

    pub(crate) fn with(mut self, attribute: &str, value: &str) -> Self {
        let attribute = Attribute::named(attribute).unwrap();
        self.says.push((attribute, value.as_bytes().to_vec()));
        self
    }
}

impl Attributes for Caller {
    fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        let said = self.says.iter().find(|(one, _)| one == attribute);
        said.map(|(_, value)| &**value)
    }
}

pub(crate) fn quota(algorithm: Algorithm, rates: &[(u64, Nanos)]) -> At<QuotaSpec> {
    let rate = |(units, span): &(u64, Nanos)| RateSpec {
        units: *units,
        period: Period::Span(*span),
    };
    amount(
        algorithm,
        Amount::Rates(rates.iter().map(|one| rate(one).into()).collect()),
    )
}

pub(crate) fn places(places: u64) -> At<QuotaSpec> {
    let lease = Nanos::MINUTE;
    amount(Algorithm::Concurrency, Amount::AtOnce { places, lease })
}

fn amount(algorithm: Algorithm, amount: Amount) -> At<QuotaSpec> {
    At::from(QuotaSpec {
        algorithm,
        amount,
        burst: None,
        unit: Unit::Requests,
        utc_offset_minutes: 0,
    })
}

/// So many a second, by token bucket.
pub(crate) fn per_second(units: u64) -> At<QuotaSpec> {
    quota(Algorithm::TokenBucket, &[(units, Nanos::SECOND)])
}

pub(crate) fn key(parts: &[&str]) -> Vec<KeyPart> {
    let part = |name: &&str| KeyPart::plain(Attribute::named(name).unwrap().into());
    parts.iter().map(part).collect()
}

/// A limit for each user.
pub(crate) fn limit(name: &str, quota: At<QuotaSpec>) -> LimitRule {
    LimitRule {
        key: key(&["header.user"]),
        ..LimitRule::new(Box::from(name), quota)
    }
}

pub(crate) fn matching(attribute: &str, value: &str) -> Match {
    let condition = Condition {
        attribute: Attribute::named(attribute).unwrap(),
        test: Test::OneOf(vec![value.into()]),
    };
    Match {
        conditions: vec![condition.into()],
    }
}

pub(crate) fn policy(limits: Vec<LimitRule>) -> Policy {
    Policy {
        limits,
        ..Policy::default()
    }
}

pub(crate) fn rules(limits: Vec<LimitRule>) -> Rules {
    Rules::compile(&policy(limits), [7; 16]).unwrap()
}

pub(crate) type TestEngine = Engine<Memory<Arc<ManualClock>>>;

/// An engine on a clock that stands at [`START`].
pub(crate) fn engine(limits: Vec<LimitRule>) -> (TestEngine, Arc<ManualClock>) {
    engine_of(rules(limits))
}

pub(crate) fn engine_of(rules: Rules) -> (TestEngine, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(START));
    let store = Memory::with_clock(1_000, Arc::clone(&clock)).unwrap();
    (Engine::new(rules, store).unwrap(), clock)
}

/// Random numbers that a seed repeats (splitmix64).
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// One of 0 to `bound` − 1.
    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        self.word() % bound
    }

    pub(crate) const fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let len = u64::try_from(from.len()).unwrap();
        from[usize::try_from(self.below(len)).unwrap()]
    }
}

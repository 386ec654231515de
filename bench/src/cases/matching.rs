//! Matching a request against policies of ten limits and of ten thousand, of which as many match.
//!
//! A policy's numbers have as many digits whatever its size, so that only how many limits there are differs.

use std::error::Error;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

use tollgate_core::{Nanos, QuotaUnit};
use tollgate_policy::attributes::{Attribute, AttributeFamily, Attributes};
use tollgate_policy::model::{
    Algorithm, Amount, Condition, Glob, IpNet, KeyPart, LimitRule, Match, Mode, OnMissing, Period,
    Policy, QuotaSpec, RateSpec, Template, Test,
};
use tollgate_policy::rules::{KeyBuffer, KeyOutcome, MatchedRules, MeterRef, Rules};

use super::CaseRun;
use crate::measure::measured_section;

/// What limits go by.
#[derive(Clone, Copy)]
pub(super) enum MatchBy {
    /// `/v1/service-00007/items/{id}`
    Route,
    /// `header.x-tenant`
    Header,
    /// A /24 of IPv4.
    Network,
    /// `host: *.tenant-00007.example.com`
    Glob,
    /// A header of the limit's own, which its key needs: `missing: skip`.
    Presence,
    /// All but the presence, half of them with a method or a shared route besides. Four match.
    Mixed,
}

/// Finds the limits of one request, one of so many that each go by the same thing.
pub(super) fn find(times: u64, limits: usize, by: MatchBy) -> CaseRun {
    let rules = rules(limits, by)?;
    let request = MatchRequest::of(limits / 2);
    let mut found = MatchedRules::new();
    rules.match_rules(&request, &mut found);
    let expected = if matches!(by, MatchBy::Mixed) { 4 } else { 1 };
    if found.rules().len() != expected {
        return Err(format!("{} limits match instead of {expected}", found.rules().len()).into());
    }
    measured_section(times, || {
        black_box(&rules).match_rules(black_box(&request), &mut found);
        found.rules().len()
    });
    Ok(())
}

/// Makes the key of an address and a header.
pub(super) fn key(times: u64) -> CaseRun {
    let rules = rules(1, MatchBy::Header)?;
    let request = MatchRequest::of(0);
    let mut found = MatchedRules::new();
    rules.match_rules(&request, &mut found);
    let mut buffer = KeyBuffer::new();
    let meter = MeterRef { rule: 0, meter: 0 };
    if rules.write_key(meter, &request, &found, &mut buffer) != KeyOutcome::Complete {
        return Err("the request has no key".into());
    }
    measured_section(times, || {
        black_box(&rules).write_key(meter, black_box(&request), &found, &mut buffer)
    });
    Ok(())
}

fn rules(limits: usize, by: MatchBy) -> Result<Rules, Box<dyn Error>> {
    let policy = Policy {
        limits: (0..limits)
            .map(|n| match by {
                MatchBy::Presence => limit_by_presence(n),
                _ => limit(n, conditions(n, limits, by)),
            })
            .collect(),
        ..Policy::default()
    };
    Rules::compile(&policy, [7; 16]).map_err(|problems| format!("{problems:?}").into())
}

/// The conditions of the n-th limit. The request is about the middle one; of a mixed policy, about the four there.
fn conditions(n: usize, limits: usize, by: MatchBy) -> Vec<(Attribute, Test)> {
    let is = |value: &str| Test::OneOf(vec![value.into()]);
    let under = |template: String| Test::Route(vec![Template(template.into())]);
    match by {
        MatchBy::Route => vec![(
            Attribute::Route,
            under(format!("/v1/service-{n:05}/items/{{id}}")),
        )],
        MatchBy::Header => vec![(Attribute::Header("x-tenant".into()), is(&tenant(n)))],
        MatchBy::Network => {
            let network = IpNet::new(address(n, 0), 24).into_iter();
            vec![(Attribute::Ip, Test::Within(network.collect()))]
        }
        MatchBy::Presence => Vec::new(),
        MatchBy::Glob => {
            let glob = Glob(format!("*.{}.example.com", tenant(n)).into());
            vec![(Attribute::Host, Test::Glob(vec![glob]))]
        }
        MatchBy::Mixed => {
            // Four neighbours go by four things and mean the same request.
            let distance = n.abs_diff(limits / 2);
            let one = if n >= limits / 2 && distance < 4 {
                limits / 2
            } else {
                n
            };
            let (kind, method) = match n % 4 {
                0 => (MatchBy::Route, Some((Attribute::Method, is("POST")))),
                1 => (
                    MatchBy::Header,
                    Some((Attribute::Route, under("/v1/{*rest}".to_owned()))),
                ),
                2 => (MatchBy::Network, None),
                _ => (MatchBy::Glob, None),
            };
            conditions(one, limits, kind)
                .into_iter()
                .chain(method)
                .collect()
        }
    }
}

fn tenant(n: usize) -> String {
    format!("tenant-{n:05}")
}

fn address(n: usize, last: u8) -> IpAddr {
    let [.., high, low] = n.to_be_bytes();
    Ipv4Addr::new(10, high, low, last).into()
}

/// A request as a server has it: a list of fields.
pub(super) struct MatchRequest {
    ip: IpAddr,
    path: String,
    host: String,
    headers: Vec<(String, String)>,
}

impl MatchRequest {
    pub(super) fn of(n: usize) -> Self {
        let header = |name: &str, value: String| (name.to_owned(), value);
        Self {
            ip: address(n, 9),
            path: format!("/v1/service-{n:05}/items/4711"),
            host: format!("api.{}.example.com", tenant(n)),
            headers: vec![
                header("accept", "application/json".to_owned()),
                header("user-agent", "bench".to_owned()),
                header("x-tenant", tenant(n)),
                header(&own_header(n), "1".to_owned()),
            ],
        }
    }
}

impl Attributes for MatchRequest {
    fn ip(&self) -> Option<IpAddr> {
        Some(self.ip)
    }

    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        match attribute {
            Attribute::Method => Some(b"POST"),
            Attribute::Path => Some(self.path.as_bytes()),
            Attribute::Host => Some(self.host.as_bytes()),
            Attribute::Header(name) => {
                let mut headers = self.headers.iter();
                headers
                    .find(|(known, _)| **known == **name)
                    .map(|(_, value)| value.as_bytes())
            }
            _ => None,
        }
    }

    fn visit_names(&self, family: AttributeFamily, visit: &mut dyn FnMut(&str)) -> bool {
        if family == AttributeFamily::Header {
            self.headers.iter().for_each(|(name, _)| visit(name));
        }
        true
    }
}

fn own_header(n: usize) -> String {
    format!("x-key-{n:05}")
}

/// A limit that applies to requests with a header of its own. In shadow, because only so many enforced limits may apply to
/// one request.
fn limit_by_presence(n: usize) -> LimitRule {
    let part = KeyPart::new(Attribute::Header(own_header(n).into()).into());
    LimitRule {
        key: vec![KeyPart {
            missing: OnMissing::Skip,
            ..part
        }],
        mode: Mode::Shadow,
        ..limit(n, Vec::new())
    }
}

/// A limit with these conditions, by address and tenant.
pub(super) fn limit(n: usize, conditions: Vec<(Attribute, Test)>) -> LimitRule {
    let conditions = conditions.into_iter();
    let rate = RateSpec {
        units: 100,
        period: Period::Span(Nanos::MINUTE),
    };
    let quota = QuotaSpec {
        algorithm: Algorithm::TokenBucket,
        amount: Amount::Rates(vec![rate.into()]),
        burst: None,
        unit: QuotaUnit::Requests,
        utc_offset_minutes: 0,
        details: tollgate_policy::model::QuotaDetails::default(),
    };
    let conditions = conditions.map(|(attribute, test)| Condition { attribute, test }.into());
    LimitRule {
        matching: Match {
            conditions: conditions.collect(),
        },
        key: vec![
            KeyPart::new(Attribute::Ip.into()),
            KeyPart::new(Attribute::Header("x-tenant".into()).into()),
        ],
        ..LimitRule::new(Box::from(format!("limit-{n:05}")), quota.into())
    }
}

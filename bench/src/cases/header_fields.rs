//! The words for an answer, and whose address counts, into buffers that are warm.
//!
//! Must not know: how any of it is written.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

use tollgate_core::{Nanos, Outcome, QuotaStatus, QuotaUnit};
use tollgate_http::{
    ClientAddressResolver, Dialects, ForwardedHeader, HeaderFields, ProblemType, QuotaPolicy,
    RateLimitItem, RateLimitStatus,
};

use super::{CaseRun, NOW};
use crate::measure::measured_section;

const DENIED: Outcome = Outcome::Deny {
    retry_after: Nanos::from_millis(1_500),
};

/// The header fields about so many limits, in these dialects.
pub(super) fn fields(times: u64, dialects: &str, limits: u64, outcome: Outcome) -> CaseRun {
    let dialects: Dialects = dialects.parse()?;
    let policies = policies(limits)?;
    let standings = standings(&policies, outcome);
    let mut words = HeaderFields::new();
    measured_section(times, || {
        let answer = RateLimitStatus::new(outcome, black_box(&standings)).with_now(NOW);
        answer.write(black_box(dialects), &mut words);
        words.len()
    });
    Ok(())
}

pub(super) fn denied_fields(times: u64) -> CaseRun {
    fields(times, "draft-11", 1, DENIED)
}

/// The body of a refusal.
pub(super) fn problem(times: u64) -> CaseRun {
    let policies = policies(1)?;
    let standings = standings(&policies, DENIED);
    let mut body = Vec::new();
    measured_section(times, || {
        body.clear();
        let answer = RateLimitStatus::new(DENIED, black_box(&standings));
        answer.write_problem(ProblemType::QuotaExceeded, 429, &mut body);
        body.len()
    });
    Ok(())
}

/// A client behind two proxies, and its key.
pub(super) fn address(times: u64) -> CaseRun {
    let clients = ClientAddressResolver::behind_proxies(
        ForwardedHeader::XForwardedFor,
        vec!["10.0.0.0/8".parse()?],
    );
    let peer = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    let line: &[u8] = b"203.0.113.9, 192.0.2.7, 10.0.0.2";
    measured_section(times, || {
        let found = clients.resolve(black_box(peer), [black_box(line)]);
        clients.key(found.address)
    });
    Ok(())
}

fn policies(count: u64) -> Result<Vec<QuotaPolicy>, tollgate_http::InvalidPolicyName> {
    (1..=count)
        .map(|n| {
            QuotaPolicy::new(
                &format!("limit-{n}"),
                100 * n,
                Nanos::MINUTE,
                QuotaUnit::Requests,
            )
        })
        .collect()
}

fn standings(policies: &[QuotaPolicy], outcome: Outcome) -> Vec<RateLimitItem<'_>> {
    let status = QuotaStatus {
        limit: 100,
        remaining: 42,
        reset_after: Nanos::from_millis(34_800),
    };
    policies
        .iter()
        .map(|policy| RateLimitItem::new(policy, outcome, &status).with_cost(1))
        .collect()
}

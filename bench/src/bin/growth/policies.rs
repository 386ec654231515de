//! Growth with the limits of a policy of which one applies, and with the limits that apply to a request.
//!
//! Must not know: how limits are found.

use std::fmt::Write as _;

use crate::Failure;
use crate::keys::{NANOS, admits, engine, laps};
use crate::options::Options;
use crate::requests::{KeyedRequest, Random, key};
use crate::series::Growth;

const QUOTA: &str = "rate: 1000/s,burst: 4000000000";
const KEYS: usize = 100_000;

/// What tells the limits of a policy apart.
#[derive(Clone, Copy)]
enum MatchBy {
    Route,
    HeaderValue,
    /// Which of many headers, one for each limit, a request has.
    HeaderPresence,
}

/// One to ten thousand limits, of which one applies.
pub(crate) fn by_size(options: &Options) -> Result<Vec<Growth>, Failure> {
    let mut growth = Growth::new("growth policy", "limits in the policy", NANOS);
    let all = [
        ("by route", MatchBy::Route),
        ("by header value", MatchBy::HeaderValue),
        ("by header presence", MatchBy::HeaderPresence),
    ];
    for (name, by) in all {
        for size in [1_usize, 10, 100, 1_000, 10_000] {
            if size > options.most_limits {
                break;
            }
            let engine = engine(&policy(size, by)?, KEYS)?;
            let mut request = KeyedRequest::new(key(7, 12));
            request.path = format!("/v1/s{:05}/4711", size / 2);
            request.tenant = format!("t{:05}", size / 2);
            let requests: Vec<&KeyedRequest> = vec![&request; options.requests / 2];
            let points = laps(options.rounds, &requests, |one| admits(&engine, one))?;
            growth.point(name, f64::from(u32::try_from(size)?), points);
        }
    }
    Ok(vec![growth])
}

fn policy(size: usize, by: MatchBy) -> Result<String, Failure> {
    let mut text = "limits:\n".to_owned();
    for number in 0..size {
        // Short, because a policy has at most a megabyte.
        let limit = format!("name: l{number:05},{QUOTA}");
        match by {
            MatchBy::Route => writeln!(
                text,
                "- {{{limit},key: header.x-api-key,match: {{route: \"/v1/s{number:05}/{{id}}\"}}}}"
            ),
            MatchBy::HeaderValue => writeln!(
                text,
                "- {{{limit},key: header.x-api-key,match: {{header.x-tenant: t{number:05}}}}}"
            ),
            // In shadow, because only so many enforced limits may apply to one request.
            MatchBy::HeaderPresence => writeln!(
                text,
                "- {{{limit},key: header.t{number:05},missing: skip,mode: shadow}}"
            ),
        }?;
    }
    Ok(text)
}

/// One to 32 limits that all apply, for a zipf of 100,000 keys.
pub(crate) fn by_limits_of_a_request(options: &Options) -> Result<Vec<Growth>, Failure> {
    let axis = "limits that apply to a request";
    let mut growth = Growth::new("growth limits", axis, NANOS);
    let mut random = Random::new();
    let numbers = (0..options.requests).map(|_| random.zipf(KEYS));
    let requests: Vec<KeyedRequest> = numbers
        .map(|number| KeyedRequest::new(key(number, 12)))
        .collect();
    for size in [1, 2, 4, 8, 16, 32] {
        let mut text = "limits:\n".to_owned();
        for number in 0..size {
            writeln!(
                text,
                "  - {{ name: limit-{number}, {QUOTA}, key: header.x-api-key }}"
            )?;
        }
        let keys = KEYS * usize::try_from(size)?;
        let engine = engine(&text, keys)?;
        let points = laps(options.rounds, &requests, |one| admits(&engine, one))?;
        growth.point("policy engine", f64::from(size), points);
    }
    Ok(vec![growth])
}

//! Claims of tokens, through the service: attacks, the order of decisions, the cache, and keys that change.
//!
//! Must not know: transports.

mod attacks;
mod decision_order;
mod key_files;
mod properties;
mod rsa_tokens;
mod signer;

use std::net::IpAddr;
use std::sync::Arc;

use tollgate_core::Timestamp;
use tollgate_engine::{CheckOptions, Verdict};
use tollgate_policy::attributes::{Attribute, Attributes};
use tollgate_policy::source::SourceFormat;
use tollgate_store::ManualClock;

use super::TokenRejection;
use crate::{RateLimitService, Secret, Transport};

/// The start of tests, in seconds since 1970.
const START: u64 = 1_700_000_000;

type TestService = RateLimitService<Arc<ManualClock>>;

/// A request with a token.
struct Caller {
    ip: IpAddr,
    path: &'static str,
    token: String,
}

impl Attributes for Caller {
    fn ip(&self) -> Option<IpAddr> {
        Some(self.ip)
    }

    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        match attribute {
            Attribute::Header(name) if &**name == "authorization" => Some(self.token.as_bytes()),
            Attribute::Path => Some(self.path.as_bytes()),
            // What a transport claims is not read: only the token is.
            Attribute::Claim(_) => Some(b"forged"),
            _ => None,
        }
    }
}

fn caller(token: &str) -> Caller {
    Caller {
        ip: [192, 0, 2, 1].into(),
        path: "/api",
        token: format!("Bearer {token}"),
    }
}

fn load(text: &str) -> tollgate_policy::model::Policy {
    tollgate_policy::load(text, "p.yaml", SourceFormat::Yaml)
        .unwrap_or_else(|problems| panic!("{problems}"))
}

fn service(text: &str) -> (TestService, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(START)));
    let service = RateLimitService::new(&load(text), 1_000, Arc::clone(&clock), Secret::random());
    (service.unwrap_or_else(|error| panic!("{error}")), clock)
}

fn check(service: &TestService, caller: &Caller) -> Verdict {
    service
        .check_local(Transport::Http, caller, CheckOptions::default())
        .unwrap()
}

/// The claim `sub` that a policy with the limit of [`who`] read: the limit of each value has a name of its own.
fn sub_of(service: &TestService, caller: &Caller) -> Option<String> {
    let verdict = check(service, caller);
    let limit = verdict.limits().first()?;
    let name = verdict.rule(limit)?.name.to_string();
    name.strip_prefix("sub-").map(str::to_owned)
}

/// A policy that tells ada, bob and `forged` apart.
fn who(jwt: &str) -> String {
    let limits: String = ["ada", "bob", "forged"]
        .iter()
        .map(|sub| {
            format!("  - {{ name: sub-{sub}, match: {{ claim.sub: {sub} }}, rate: 1000/s }}\n")
        })
        .collect();
    format!("jwt: {jwt}\nlimits:\n{limits}")
}

fn rejections(service: &TestService, reason: TokenRejection) -> u64 {
    service.claims().counters().rejections(reason)
}

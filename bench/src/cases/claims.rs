//! A decision that reads a claim: with a token that is known, and with one whose signature has to be computed.
//!
//! The clock stands still. Must not know: how tokens are verified.

use std::hint::black_box;
use std::sync::Arc;

use tollgate_core::Timestamp;
use tollgate_engine::CheckOptions;
use tollgate_policy::attributes::{Attribute, Attributes};
use tollgate_policy::source::SourceFormat;
use tollgate_service::{RateLimitService, Secret, Transport};
use tollgate_store::ManualClock;

use super::CaseRun;
use crate::measure::measured_section;

/// The modulus of an RSA key of 2048 bits, whose private key was thrown away.
const MODULUS: &str = "473LJUoVH95NW9MZ3bymO4tU6E-hj3THMtVrLnQtfIYIXSckpVMsp9o-ZiOaiz2HzBXbsAEyKClBZpcCeN2tr3dA1UzbEDVSnebO0FEY_MOqvMzMfWyRRANund-1lmOJqOQcj7n7rGiGDso8EJ-Aqf4wD0hboixJcQTIwR-V08HVZ2c5CPZ8A36SkEP2wLkIiXHfqKdTu9NYMX7PXr4dQAjtzwyxafFXebb6yLu-lXsgjq0u7-jBRqyUUaAWdKMWROovJ7zYa49zloHUyiAHF1G7A_8Ahl1nRQQmmKymm_qdFX83FrS5SFycIqEYw0P9LTQebOf05F7ClNTje6yQLQ";

/// A token that this key signed with RS256. It expires at 1,700,000,600.
const TOKEN: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6InJzYSJ9.eyJzdWIiOiJhZGEiLCJleHAiOjE3MDAwMDA2MDAsImlzcyI6Imh0dHBzOi8vaWQuZXhhbXBsZSIsImF1ZCI6ImFwaSJ9.ThwJZxmm2-OET6g0zOJKPTVGMcdgwIwyszHWejmKInX46kRFGzrtUhbE14GPakhfzYIT5mLRNyiUZ58VGYSqzU7LIMvJYXKOD5dYVVc8_9OiIijkgQFlHBdPn5LqU0NyqPjSw6W-nEuhZOZ-tUXeUeypHiKQjOmcvB4jKAWmmgcJ9OE6YPDET2EK1yr8yQgwTZVvY7MguD5mpS3nb7bC-NO5UGGFzgEp8IJkG6W8zTYw-d7GdbydzF1CP_PmpXX1nA5Ec9Ocjwhb7wMELE5ehjqQDOrNZBZqjYODTuCSyilrjGNSkqm4HhlqgJpu6fiv1V1ImmWX6XgTBiFoUKOnig";

struct Caller(Vec<u8>);

impl Caller {
    fn with_token() -> Self {
        Self(format!("Bearer {TOKEN}").into())
    }
}

impl Attributes for Caller {
    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        matches!(attribute, Attribute::Header(name) if &**name == "authorization")
            .then_some(self.0.as_slice())
    }
}

fn service() -> Result<RateLimitService<Arc<ManualClock>>, Box<dyn std::error::Error>> {
    let text = format!(
        "jwt: {{ keys: [{{ kty: RSA, kid: rsa, e: AQAB, n: {MODULUS:?} }}], audiences: api }}\nlimits: [{{ name: a, key: claim.sub, rate: 1000000000/h }}]\n"
    );
    let policy = tollgate_policy::load(&text, "p.yaml", SourceFormat::Yaml)?;
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)));
    Ok(RateLimitService::new(
        &policy,
        1_000,
        clock,
        Secret::random(),
    )?)
}

/// Decides on a request whose token was verified before.
pub(super) fn cached(times: u64) -> CaseRun {
    let (service, caller) = (service()?, Caller::with_token());
    let check =
        || service.check_local(Transport::Http, black_box(&caller), CheckOptions::default());
    check();
    if service.claims().counters().verified() != 1 {
        return Err("the token is not accepted".into());
    }
    measured_section(times, check);
    Ok(())
}

/// Decides on requests whose tokens are all different, with wrong signatures. A right one costs the same.
pub(super) fn unknown(times: u64) -> CaseRun {
    let (service, mut caller) = (service()?, Caller::with_token());
    let digits = caller.0.len() - 40;
    let mut number = 0_u64;
    measured_section(times, || {
        number += 1;
        for (place, digit) in caller
            .0
            .iter_mut()
            .skip(digits)
            .zip(format!("{number:020}").bytes())
        {
            *place = digit;
        }
        service.check_local(Transport::Http, black_box(&caller), CheckOptions::default())
    });
    match service.claims().counters().signature_checks() == times {
        true => Ok(()),
        false => Err("a signature was not computed".into()),
    }
}

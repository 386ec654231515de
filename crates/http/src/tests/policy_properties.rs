//! Properties of a policy that are checked when they are set.
//!
//! Must not know: how anything is written.

use tollgate_core::{Nanos, Outcome, QuotaUnit};

use super::support::{lines, status};
use crate::{QuotaPolicy, RateLimitItem, RateLimitStatus};

#[test]
fn a_bucket_has_the_configured_name() {
    let policy = QuotaPolicy::new("p", 1, Nanos::SECOND, QuotaUnit::Requests).unwrap();
    let policy = policy.with_bucket("abcd1234").unwrap();
    let items = [RateLimitItem::new(
        &policy,
        Outcome::Allow,
        &status(1, Nanos::ZERO),
    )];
    let rate_limit = RateLimitStatus::new(Outcome::Allow, &items);
    assert!(lines(&rate_limit, "discord").contains(&"x-ratelimit-bucket: abcd1234".to_owned()));
    let error = policy
        .clone()
        .with_bucket("a\r\nb")
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        r#"bucket: "a\r\nb" is not valid: it must be 1 to 160 visible ASCII characters"#
    );
    let error = policy
        .clone()
        .partitioned_by(&["User"])
        .unwrap_err()
        .to_string();
    assert!(error.starts_with(r#"partitioned_by: "User" is not valid: it must begin with"#));
    let error = policy.partitioned_by(&[]).unwrap_err().to_string();
    assert_eq!(
        error,
        r#"partitioned_by: "0" is not valid: there must be 1 to 16 dimensions"#
    );
}

//! Vendors' fields: `X-RateLimit-*` with and without suffixes, Discord, GitHub, Anthropic, Shopify and Stripe.
//!
//! Must not know: the drafts' syntax.

use tollgate_core::Nanos;

use super::instants;
use super::structured_field::Malformed;
use super::{Family, LimitTable, MAX_NAME_LEN, PartialLimit, drafts};
use crate::quota_policy::Scope;
use crate::rate_limit_info::{LimitUnit, RateLimitInfo, RefusalReason};

/// `X-RateLimit-*`, after its prefix. A suffix names a window (`-minute`, Kong) or a unit (`-tokens`, OpenAI).
pub(super) fn x_rate_limit(
    name: &str,
    value: &[u8],
    limits: &mut LimitTable,
    info: &mut RateLimitInfo,
) -> Result<(), Malformed> {
    match name {
        "limit" => return drafts::limit(value, Family::X, limits),
        "bucket" => info.bucket = Some(label(value)?),
        "resource" => info.resource = Some(label(value)?),
        "global" => {
            if text(value)?.eq_ignore_ascii_case("true") {
                info.scope = Some(Scope::Global);
            }
        }
        "scope" => {
            info.scope = Some(match text(value)? {
                "user" => Scope::User,
                "global" => Scope::Global,
                "shared" => Scope::Shared,
                _ => return Err(Malformed),
            });
        }
        // More precise than `reset`, and independent of the clock, so it replaces it.
        "reset-after" => {
            let wait = instants::retry_after(text(value)?).ok_or(Malformed)?;
            let status = PartialLimit {
                reset_after: Some(wait),
                ..PartialLimit::default()
            };
            limits.merge(Family::X, "", status);
        }
        _ => {
            let (part, suffix) = name.split_once('-').unwrap_or((name, ""));
            return pushed(part, suffix, value, Family::X, limits);
        }
    }
    Ok(())
}

/// `Anthropic-RateLimit-UNIT-PART`, after its prefix.
pub(super) fn anthropic(
    name: &str,
    value: &[u8],
    limits: &mut LimitTable,
) -> Result<(), Malformed> {
    let Some((unit, part)) = name.rsplit_once('-') else {
        return Ok(());
    };
    pushed(part, unit, value, Family::Anthropic, limits)
}

/// One part of a limit: its quota, what remains, what is used, or when it resets. Other parts are ignored.
pub(super) fn pushed(
    part: &str,
    suffix: &str,
    value: &[u8],
    family: Family,
    limits: &mut LimitTable,
) -> Result<(), Malformed> {
    let status = match part {
        "limit" => PartialLimit {
            quota: Some(number(value)?),
            ..PartialLimit::default()
        },
        "remaining" => PartialLimit {
            remaining: Some(number(value)?),
            ..PartialLimit::default()
        },
        "used" => PartialLimit {
            used: Some(number(value)?),
            ..PartialLimit::default()
        },
        "reset" => PartialLimit {
            reset: Some(instants::reset(text(value)?).ok_or(Malformed)?),
            ..PartialLimit::default()
        },
        _ => return Ok(()),
    };
    limits.merge(family, suffix, status);
    let partial = limits.partial(family, suffix);
    partial.window = partial.window.or_else(|| window_of(suffix));
    if !suffix.is_empty() && partial.window.is_none() {
        partial.unit = Some(LimitUnit::from_name(suffix));
    }
    Ok(())
}

/// Shopify's `32/40`: the level of a leaking bucket and its capacity.
pub(super) fn shopify(value: &[u8], limits: &mut LimitTable) -> Result<(), Malformed> {
    let (used, quota) = text(value)?.split_once('/').ok_or(Malformed)?;
    let (used, quota) = (number(used.as_bytes())?, number(quota.as_bytes())?);
    let status = PartialLimit {
        quota: Some(quota),
        used: Some(used),
        remaining: Some(quota.saturating_sub(used)),
        ..PartialLimit::default()
    };
    limits.merge(Family::Shopify, "", status);
    Ok(())
}

/// Stripe's reason of a 429.
pub(super) fn stripe_reason(value: &[u8], info: &mut RateLimitInfo) -> Result<(), Malformed> {
    let reason = match text(value)? {
        "resource-specific" => RefusalReason::Overloaded,
        _ => RefusalReason::Rate,
    };
    info.reason = Some(reason);
    Ok(())
}

/// `true` or `false`.
pub(super) fn boolean(value: &[u8]) -> Result<bool, Malformed> {
    match text(value)? {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(Malformed),
    }
}

/// The value as text, without the spaces around it.
pub(super) fn text(value: &[u8]) -> Result<&str, Malformed> {
    match str::from_utf8(value) {
        Ok(text) => Ok(text.trim_matches([' ', '\t'])),
        Err(_) => Err(Malformed),
    }
}

fn number(value: &[u8]) -> Result<u64, Malformed> {
    let text = text(value)?;
    // Up to fifteen digits, as structured fields have: nobody counts further.
    let is_number = (1..=15).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number {
        return Err(Malformed);
    }
    text.parse().map_err(|_not_digits| Malformed)
}

fn label(value: &[u8]) -> Result<Box<str>, Malformed> {
    let text = text(value)?;
    let is_label = (1..=MAX_NAME_LEN).contains(&text.len())
        && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if is_label {
        Ok(text.into())
    } else {
        Err(Malformed)
    }
}

fn window_of(suffix: &str) -> Option<Nanos> {
    Some(match suffix {
        "second" => Nanos::from_secs(1),
        "minute" => Nanos::MINUTE,
        "hour" => Nanos::HOUR,
        "day" => Nanos::DAY,
        "month" => Nanos::from_secs(30 * 86_400),
        "year" => Nanos::from_secs(365 * 86_400),
        _ => return None,
    })
}

//! The fields of the RateLimit drafts: 03 to 11 and the editors' copy after it, and Envoy's variant of 03.
//!
//! Must not know: vendors' fields.

use super::instants::Instant;
use super::structured_field::{BareItem, Malformed, Scanner};
use super::{Family, LimitTable, PartialLimit};
use crate::rate_limit_info::LimitUnit;
use tollgate_core::Nanos;

/// `RateLimit`: a list of named limits since revision 08, a dictionary about one limit in revision 07.
pub(super) fn rate_limit(value: &[u8], limits: &mut LimitTable) -> Result<(), Malformed> {
    if value.starts_with(b"limit=")
        || value.starts_with(b"remaining=")
        || value.starts_with(b"reset=")
    {
        return dictionary(value, limits);
    }
    Scanner::new(value)?.list(|scanner| {
        let item = scanner.bare_item()?;
        let mut status = PartialLimit::default();
        let mut has_remaining = false;
        scanner.parameters(|key, value| match (key, &value) {
            // `r` and `t` until revision 11, `a` and `w` in the editors' copy.
            ("r" | "a", _) => {
                status.remaining = value.as_count();
                has_remaining = status.remaining.is_some();
            }
            ("t" | "w", _) => {
                status.reset = value
                    .as_count()
                    .map(|s| Instant::After(Nanos::from_secs(s)));
            }
            ("c", _) => status.cost = value.as_count(),
            ("pk", BareItem::Bytes(key)) => status.partition = Some((*key).into()),
            _ => {}
        })?;
        match item.as_name() {
            // An item without its required parameter is ignored; the others stand.
            Some(name) if has_remaining => limits.merge(Family::Named, name, status),
            Some(_) => {}
            None => return Err(Malformed),
        }
        Ok(())
    })
}

/// `RateLimit-Policy`: named policies since revision 08, numbers with windows before.
pub(super) fn policy(value: &[u8], limits: &mut LimitTable) -> Result<(), Malformed> {
    Scanner::new(value)?.list(|scanner| {
        let item = scanner.bare_item()?;
        let mut policy = PartialLimit::default();
        scanner.parameters(|key, value| match (key, &value) {
            ("q", _) => policy.quota = value.as_count(),
            ("w" | "window", _) => policy.window = window(&value),
            ("qu", _) => policy.unit = value.as_name().map(LimitUnit::from_name),
            ("pk", BareItem::Bytes(key)) => policy.partition = Some((*key).into()),
            _ => {}
        })?;
        match (item.as_name(), item.as_count()) {
            (Some(name), _) if policy.quota.is_some() => {
                limits.merge(Family::Named, name, policy);
            }
            (Some(_), _) => {}
            (None, Some(quota)) => limits.add_policy(quota, policy.window, None),
            (None, None) => return Err(Malformed),
        }
        Ok(())
    })
}

/// `RateLimit-Limit` and `X-RateLimit-Limit`: the quota of one limit, and since revision 03 the policies after it.
pub(super) fn limit(
    value: &[u8],
    family: Family,
    limits: &mut LimitTable,
) -> Result<(), Malformed> {
    let mut is_first = true;
    Scanner::new(value)?.list(|scanner| {
        let quota = scanner.bare_item()?.as_count().ok_or(Malformed)?;
        let (mut length, mut name, mut has_parameters) = (None, None, false);
        scanner.parameters(|key, value| {
            has_parameters = true;
            match key {
                "w" | "window" => length = window(&value),
                "name" => name = value.as_name().map(Box::from),
                _ => {}
            }
        })?;
        if std::mem::take(&mut is_first) {
            let status = PartialLimit {
                quota: Some(quota),
                window: length,
                ..PartialLimit::default()
            };
            limits.merge(family, "", status);
        } else {
            limits.add_policy(quota, length, name);
        }
        Ok(())
    })
}

fn dictionary(value: &[u8], limits: &mut LimitTable) -> Result<(), Malformed> {
    let mut status = PartialLimit::default();
    Scanner::new(value)?.list(|scanner| {
        let (key, value) = scanner.dictionary_member()?;
        let count = value.as_ref().and_then(BareItem::as_count);
        match key {
            "limit" => status.quota = count,
            "remaining" => status.remaining = count,
            "reset" => status.reset = count.map(|s| Instant::After(Nanos::from_secs(s))),
            _ => {}
        }
        scanner.parameters(|_, _| ())
    })?;
    limits.merge(Family::Draft, "", status);
    Ok(())
}

/// A window in seconds. Zero is not a window.
fn window(value: &BareItem<'_>) -> Option<Nanos> {
    let seconds = value.as_count().filter(|seconds| *seconds > 0)?;
    Some(Nanos::from_secs(seconds))
}

//! The fields of the RateLimit drafts: 03 to 11 and the editors' copy after it, and Envoy's variant of 03.
//!
//! Must not know: vendors' fields.

use std::borrow::Cow;

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
    Scanner::new(value)?.list(StatusItem::scan, |item| {
        // An item without its required parameter is ignored; the others stand.
        if item.remaining.is_none() {
            return;
        }
        let status = PartialLimit {
            remaining: item.remaining,
            reset: item.reset.map(|s| Instant::After(Nanos::from_secs(s))),
            cost: item.cost,
            partition: item.partition.map(Box::from),
            ..PartialLimit::default()
        };
        limits.merge(Family::Named, &item.name, status);
    })
}

/// `RateLimit-Policy`: named policies since revision 08, numbers with windows before.
pub(super) fn policy(value: &[u8], limits: &mut LimitTable) -> Result<(), Malformed> {
    Scanner::new(value)?.list(PolicyItem::scan, |item| match (item.name, item.number) {
        (Some(name), _) if item.quota.is_some() => {
            let policy = PartialLimit {
                unit: item.unit,
                quota: item.quota,
                window: item.window,
                partition: item.partition.map(Box::from),
                ..PartialLimit::default()
            };
            limits.merge(Family::Named, &name, policy);
        }
        (None, Some(quota)) => limits.add_policy(quota, item.window, None),
        _ => {}
    })
}

/// An item of `RateLimit`.
struct StatusItem<'a> {
    name: Cow<'a, str>,
    remaining: Option<u64>,
    /// In seconds.
    reset: Option<u64>,
    cost: Option<u64>,
    partition: Option<&'a str>,
}

impl<'a> StatusItem<'a> {
    fn scan(scanner: &mut Scanner<'a>) -> Result<Self, Malformed> {
        let mut item = Self {
            name: scanner.bare_item()?.into_name().ok_or(Malformed)?,
            remaining: None,
            reset: None,
            cost: None,
            partition: None,
        };
        scanner.parameters(|key, value| match (key, &value) {
            // `r` and `t` until revision 11, `a` and `w` in the editors' copy.
            ("r" | "a", _) => item.remaining = value.as_count(),
            ("t" | "w", _) => item.reset = value.as_count(),
            ("c", _) => item.cost = value.as_count(),
            ("pk", BareItem::Bytes(key)) => item.partition = Some(key),
            _ => {}
        })?;
        Ok(item)
    }
}

/// An item of `RateLimit-Policy`.
struct PolicyItem<'a> {
    /// Since revision 08.
    name: Option<Cow<'a, str>>,
    /// The quota, before.
    number: Option<u64>,
    quota: Option<u64>,
    window: Option<Nanos>,
    unit: Option<LimitUnit>,
    partition: Option<&'a str>,
}

impl<'a> PolicyItem<'a> {
    fn scan(scanner: &mut Scanner<'a>) -> Result<Self, Malformed> {
        let item = scanner.bare_item()?;
        let number = item.as_count();
        let mut item = Self {
            name: item.into_name(),
            number,
            quota: None,
            window: None,
            unit: None,
            partition: None,
        };
        if item.name.is_none() && number.is_none() {
            return Err(Malformed);
        }
        scanner.parameters(|key, value| match (key, &value) {
            ("q", _) => item.quota = value.as_count(),
            ("w" | "window", _) => item.window = window(&value),
            ("qu", _) => item.unit = value.as_name().map(LimitUnit::from_name),
            ("pk", BareItem::Bytes(key)) => item.partition = Some(key),
            _ => {}
        })?;
        Ok(item)
    }
}

/// `RateLimit-Limit` and `X-RateLimit-Limit`: the quota of one limit, and since revision 03 the policies after it.
pub(super) fn limit(
    value: &[u8],
    family: Family,
    limits: &mut LimitTable,
) -> Result<(), Malformed> {
    let member = |scanner: &mut Scanner<'_>| {
        let quota = scanner.bare_item()?.as_count().ok_or(Malformed)?;
        let (mut length, mut name) = (None, None);
        scanner.parameters(|key, value| match key {
            "w" | "window" => length = window(&value),
            "name" => name = value.as_name().map(Box::from),
            _ => {}
        })?;
        Ok((quota, length, name))
    };
    let mut is_first = true;
    Scanner::new(value)?.list(member, |(quota, length, name)| {
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
    })
}

fn dictionary(value: &[u8], limits: &mut LimitTable) -> Result<(), Malformed> {
    let mut status = PartialLimit::default();
    let member = |scanner: &mut Scanner<'_>| {
        let (key, value) = scanner.dictionary_member()?;
        let count = value.as_ref().and_then(BareItem::as_count);
        match key {
            "limit" => status.quota = count,
            "remaining" => status.remaining = count,
            "reset" => status.reset = count.map(|s| Instant::After(Nanos::from_secs(s))),
            _ => {}
        }
        scanner.parameters(|_, _| ())
    };
    Scanner::new(value)?.list(member, |()| ())?;
    limits.merge(Family::Draft, "", status);
    Ok(())
}

/// A window in seconds. Zero is not a window.
fn window(value: &BareItem<'_>) -> Option<Nanos> {
    let seconds = value.as_count().filter(|seconds| *seconds > 0)?;
    Some(Nanos::from_secs(seconds))
}

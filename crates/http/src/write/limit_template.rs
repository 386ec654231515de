//! The `RateLimit` field of admissions of the same keys, of which only the numbers differ.
//!
//! Must not know: dialects that list one limit, how limits are decided.

use tollgate_core::QuotaStatus;

use super::lists::MAX_LISTED;
use crate::digits::{EIGHT_DIGITS, eight_digits, padded_digits};
use crate::partition::PartitionKey;
use crate::rate_limit_item::RateLimitItem;
use crate::text::{push_integer, rendered_integer, seconds};

/// The value of draft 11's `RateLimit` for limits that all admit and have something left: only the numbers are missing.
///
/// ```
/// use tollgate_core::{Nanos, Outcome, QuotaStatus, QuotaUnit};
/// use tollgate_http::{LimitTemplate, QuotaPolicy, RateLimitItem};
///
/// let policy = QuotaPolicy::new("per-user", 100, Nanos::MINUTE, QuotaUnit::Requests)?;
/// let status = QuotaStatus { limit: 100, remaining: 42, reset_after: Nanos::from_millis(34_800) };
/// let items = [RateLimitItem::new(&policy, Outcome::Allow, &status)];
/// let mut template = LimitTemplate::new(&items).expect("the limit has a reset");
/// assert_eq!(template.render([&status].into_iter()), br#""per-user";r=42;t=35"#);
/// # Ok::<(), tollgate_http::InvalidPolicyName>(())
/// ```
#[derive(Clone, Debug)]
pub struct LimitTemplate {
    limits: Box<[TemplateLimit]>,
    /// The text after the last number.
    after: Box<[u8]>,
    /// The value that was rendered last. The next one has mostly as many digits, so that they are replaced where they are. Bytes behind
    /// the value let eight digits be written at once.
    text: Vec<u8>,
    len: usize,
}

#[derive(Clone, Debug)]
struct TemplateLimit {
    /// The text before the remaining quota.
    before: Box<[u8]>,
    remaining: RenderedNumber,
    reset: RenderedNumber,
}

/// A number in the text, and where it is.
#[derive(Clone, Copy, Debug, Default)]
struct RenderedNumber {
    number: u64,
    start: usize,
    len: usize,
}

impl LimitTemplate {
    /// The template of these limits. `None` if one has no reset, or if they are too many for one field.
    #[must_use]
    pub fn new(items: &[RateLimitItem<'_>]) -> Option<Self> {
        let is_concurrent = |item: &RateLimitItem<'_>| item.policy.is_concurrent();
        if items.is_empty() || items.len() > MAX_LISTED || items.iter().any(is_concurrent) {
            return None;
        }
        let partition = |item: &RateLimitItem<'_>| {
            let parameter = item.partition.as_ref().map(PartitionKey::as_parameter);
            parameter
                .map_or(&[][..], |parameter| &parameter[..])
                .to_vec()
        };
        let mut limits = Vec::with_capacity(items.len());
        let mut text = Vec::new();
        for item in items {
            text.extend_from_slice(item.policy.item_prefix().as_bytes());
            limits.push(TemplateLimit {
                before: text.into(),
                remaining: RenderedNumber::default(),
                reset: RenderedNumber::default(),
            });
            text = partition(item);
            text.extend_from_slice(b", ");
        }
        text.truncate(text.len().saturating_sub(2));
        Some(Self {
            limits: limits.into(),
            after: text.into(),
            text: Vec::new(),
            len: 0,
        })
    }

    /// The value with the numbers of these limits, in their order.
    #[inline]
    pub fn render<'a>(&mut self, statuses: impl Iterator<Item = &'a QuotaStatus> + Clone) -> &[u8] {
        if !self.replace_numbers(statuses.clone()) {
            self.write(statuses);
        }
        self.text.get(..self.len).unwrap_or_default()
    }

    /// Replaces the numbers of the last value. Returns false if one has another number of digits.
    #[inline]
    fn replace_numbers<'a>(&mut self, statuses: impl Iterator<Item = &'a QuotaStatus>) -> bool {
        let text = self.text.as_mut_slice();
        let mut limits = self.limits.iter_mut().zip(statuses);
        limits.all(|(limit, status)| {
            limit.remaining.replace(remaining(status), text)
                && limit.reset.replace(seconds(status.reset_after), text)
        })
    }

    #[cold]
    fn write<'a>(&mut self, statuses: impl Iterator<Item = &'a QuotaStatus>) {
        let text = &mut self.text;
        text.clear();
        for (limit, status) in self.limits.iter_mut().zip(statuses) {
            text.extend_from_slice(&limit.before);
            limit.remaining = RenderedNumber::push(text, remaining(status));
            text.extend_from_slice(b";t=");
            limit.reset = RenderedNumber::push(text, seconds(status.reset_after));
        }
        text.extend_from_slice(&self.after);
        self.len = text.len();
        text.extend_from_slice(&[0; 8]);
    }
}

fn remaining(status: &QuotaStatus) -> u64 {
    status.remaining.min(status.limit)
}

impl RenderedNumber {
    fn push(text: &mut Vec<u8>, number: u64) -> Self {
        let start = text.len();
        push_integer(text, number);
        Self {
            number,
            start,
            len: text.len().saturating_sub(start),
        }
    }

    /// Replaces the digits. Returns false if there are more or fewer than before.
    #[inline]
    fn replace(&mut self, number: u64, text: &mut [u8]) -> bool {
        if number == self.number && self.len > 0 {
            return true;
        }
        self.number = number;
        let place = text.get_mut(self.start..).unwrap_or_default();
        let number = rendered_integer(number);
        if number < EIGHT_DIGITS {
            return replace_first(place, number, self.len);
        }
        let first_len = self.len.saturating_sub(8);
        let Some((first, rest)) = place.split_at_mut_checked(first_len) else {
            return false;
        };
        if let Some(rest) = rest.first_chunk_mut() {
            *rest = padded_digits(number % EIGHT_DIGITS);
        }
        // At most seven digits: see `MAX_INTEGER`.
        let (digits, count) = eight_digits(number / EIGHT_DIGITS);
        first
            .iter_mut()
            .zip(digits)
            .for_each(|(old, new)| *old = new);
        count == first_len
    }
}

/// Replaces the first `len` bytes by a number of less than nine digits. Returns false if it has another length.
#[inline]
fn replace_first(place: &mut [u8], number: u64, len: usize) -> bool {
    let (digits, count) = eight_digits(number);
    let Some(place) = place.first_chunk_mut::<8>() else {
        return false;
    };
    // Eight bytes at once: the new digits, and the old text after them.
    let kept = u64::MAX
        .checked_shl(u32::try_from(count * 8).unwrap_or(u32::MAX))
        .unwrap_or(0);
    let word = u64::from_le_bytes(digits) & !kept | u64::from_le_bytes(*place) & kept;
    *place = word.to_le_bytes();
    count == len
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Nanos, Outcome, QuotaUnit};

    use super::*;
    use crate::QuotaPolicy;

    /// Numbers of every length, after each other and again: the digits of a value are never left in the next one.
    #[test]
    fn a_value_does_not_depend_on_the_one_before() {
        let names = ["first", "second"].map(|name| {
            QuotaPolicy::new(name, u64::MAX, Nanos::MINUTE, QuotaUnit::Requests).unwrap()
        });
        let mut random = 1_u64;
        let mut draw = || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            random >> 33
        };
        let mut statuses = [QuotaStatus {
            limit: u64::MAX,
            remaining: 0,
            reset_after: Nanos::ZERO,
        }; 2];
        let item = |index: usize, status| RateLimitItem::new(&names[index], Outcome::Allow, status);
        let items = [0, 1].map(|index| item(index, &statuses[index]));
        let mut template = LimitTemplate::new(&items).unwrap();
        let mut in_place = 0;
        for _ in 0..100_000 {
            let status = &mut statuses[usize::from(draw() % 2 == 0)];
            let digits = u32::try_from(draw() % 20).unwrap();
            match draw() % 4 {
                // Most change little from one response to the next.
                0 => status.remaining = draw().wrapping_mul(draw()) % 10_u64.pow(digits),
                1 => status.remaining = status.remaining.saturating_sub(draw() % 3),
                2 => status.remaining = 10_u64.pow(digits) - draw() % 2,
                _ => status.reset_after = Nanos::from_millis(draw() % 10_u64.pow(digits.min(15))),
            }
            in_place += u32::from(template.clone().replace_numbers(statuses.iter()));
            let text = template.render(statuses.iter());
            let expected = statuses
                .iter()
                .zip(["first", "second"])
                .map(|(status, name)| {
                    let (remaining, reset) = (status.remaining, seconds(status.reset_after));
                    let most = 999_999_999_999_999;
                    format!("\"{name}\";r={};t={}", remaining.min(most), reset.min(most))
                });
            let expected: Vec<String> = expected.collect();
            assert_eq!(text, expected.join(", ").as_bytes());
        }
        assert!((20_000..90_000).contains(&in_place), "{in_place}");
    }
}

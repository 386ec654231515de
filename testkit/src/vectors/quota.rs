//! Quotas as vector files write them, and how one replaces another on live state.
//!
//! Must not know: traces, expectations, stores.

use serde::Deserialize;
use tollgate_core::fixed_window::Window;
use tollgate_core::limit::{Limit, Quota};
use tollgate_core::{
    Calendar, Concurrency, FixedWindow, InvalidQuota, LeakyBucket, Nanos, Rate, SlidingCounter,
    SlidingLog, TokenBucket, UtcOffset,
};

use super::parse;

/// A quota as people write it, by algorithm. Named as the fields of a policy file are.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum QuotaSpec {
    /// `{ rate: 10/s, burst: 20, overdraft: 5, block: 1 }`
    TokenBucket(TokenBucketSpec),
    /// `{ rate: 10/s, burst: 20, overdraft: 5 }`; NGINX's `nodelay`.
    LeakyMeter(LeakyMeterSpec),
    /// `{ rate: 10/s, burst: 20, delay: 10, overdraft: 5 }`
    LeakyQueue(LeakyQueueSpec),
    /// `{ limit: 10, window: 1m, from: first_hit }` or `{ limit: 10, calendar: month, utc_offset: "+05:30" }`
    FixedWindow(FixedWindowSpec),
    /// `{ limit: 10, window: 1m, overdraft: 5, block: 1 }`
    SlidingLog(SlidingLogSpec),
    /// `{ limit: 10, window: 1m, overdraft: 5 }`
    SlidingCounter(SlidingCounterSpec),
    /// `{ limit: 10, lease: 30s }`
    Concurrency(ConcurrencySpec),
}

/// See [`TokenBucket`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenBucketSpec {
    #[serde(deserialize_with = "rate")]
    rate: Rate,
    burst: Option<u64>,
    #[serde(default)]
    overdraft: u64,
    #[serde(default = "one")]
    block: u64,
}

/// See [`LeakyBucket::meter`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LeakyMeterSpec {
    #[serde(deserialize_with = "rate")]
    rate: Rate,
    #[serde(default)]
    burst: u64,
    #[serde(default)]
    overdraft: u64,
}

/// See [`LeakyBucket::queue`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LeakyQueueSpec {
    #[serde(deserialize_with = "rate")]
    rate: Rate,
    #[serde(default)]
    burst: u64,
    #[serde(default)]
    delay: u64,
    #[serde(default)]
    overdraft: u64,
}

/// See [`FixedWindow`]. Either a window or a calendar.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FixedWindowSpec {
    limit: u64,
    #[serde(default, deserialize_with = "maybe_span")]
    window: Option<Nanos>,
    #[serde(default)]
    from: WindowStart,
    calendar: Option<WindowLength>,
    #[serde(default, deserialize_with = "offset")]
    utc_offset: UtcOffset,
    #[serde(default)]
    overdraft: u64,
}

/// Where windows of a given length begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WindowStart {
    /// On multiples of the length since 1970.
    #[default]
    Epoch,
    /// With the first request that finds none open.
    FirstHit,
}

/// A calendar's span.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WindowLength {
    /// From midnight to midnight.
    Day,
    /// From Monday to Monday.
    Week,
    /// From the first to the first.
    Month,
}

/// See [`SlidingLog`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SlidingLogSpec {
    limit: u64,
    #[serde(deserialize_with = "span")]
    window: Nanos,
    #[serde(default)]
    overdraft: u64,
    #[serde(default = "one")]
    block: u64,
}

/// See [`SlidingCounter`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SlidingCounterSpec {
    limit: u64,
    #[serde(deserialize_with = "span")]
    window: Nanos,
    #[serde(default)]
    overdraft: u64,
}

/// See [`Concurrency`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConcurrencySpec {
    limit: u64,
    #[serde(deserialize_with = "span")]
    lease: Nanos,
}

impl QuotaSpec {
    /// Compiles the quota for state that no other quota has touched.
    pub(super) fn compile(&self) -> Result<Limit, String> {
        self.build(0).map_err(|error| error.to_string())
    }

    /// Compiles the quota for state that `old` has written, so that nothing owed under `old` is forgiven.
    pub(super) fn replacing(&self, old: &Limit) -> Result<Limit, String> {
        let ceiling = match old.quota() {
            Quota::SlidingCounter(old) => u64::from(old.ceiling()),
            _ => 0,
        };
        let new = self.build(ceiling).map_err(|error| error.to_string())?;
        Ok(new.sharing_state_with(old))
    }

    fn build(&self, ceiling: u64) -> Result<Limit, InvalidQuota> {
        Ok(match self {
            Self::TokenBucket(spec) => {
                let mut builder = TokenBucket::builder(spec.rate);
                if let Some(burst) = spec.burst {
                    builder = builder.burst(burst);
                }
                Limit::new(
                    builder
                        .overdraft(spec.overdraft)
                        .block(spec.block)
                        .build()?,
                )
            }
            Self::LeakyMeter(spec) => {
                let builder = LeakyBucket::meter(spec.rate).burst(spec.burst);
                Limit::new(builder.overdraft(spec.overdraft).build()?)
            }
            Self::LeakyQueue(spec) => {
                let builder = LeakyBucket::queue(spec.rate).burst(spec.burst);
                Limit::new(
                    builder
                        .delay(spec.delay)
                        .overdraft(spec.overdraft)
                        .build()?,
                )
            }
            Self::FixedWindow(spec) => {
                let builder = FixedWindow::builder(spec.limit, spec.window());
                Limit::new(builder.overdraft(spec.overdraft).build()?)
            }
            Self::SlidingLog(spec) => {
                let builder = SlidingLog::builder(spec.limit, spec.window);
                Limit::new(
                    builder
                        .overdraft(spec.overdraft)
                        .block(spec.block)
                        .build()?,
                )
            }
            Self::SlidingCounter(spec) => {
                let builder = SlidingCounter::builder(spec.limit, spec.window);
                Limit::new(builder.overdraft(spec.overdraft).ceiling(ceiling).build()?)
            }
            Self::Concurrency(spec) => Limit::new(Concurrency::new(spec.limit, spec.lease)?),
        })
    }
}

impl FixedWindowSpec {
    /// A window without a length and without a calendar has no length, which the builder refuses by name.
    fn window(&self) -> Window {
        let calendar = match self.calendar {
            Some(WindowLength::Day) => Calendar::Day,
            Some(WindowLength::Week) => Calendar::Week,
            Some(WindowLength::Month) => Calendar::Month,
            None => {
                let length = self.window.unwrap_or_default();
                return match self.from {
                    WindowStart::Epoch => Window::Epoch(length),
                    WindowStart::FirstHit => Window::FirstHit(length),
                };
            }
        };
        Window::Calendar(calendar, self.utc_offset)
    }
}

fn one() -> u64 {
    1
}

/// Reads a word with one of the parsers, so that its errors carry the line they stand on.
pub(super) fn word<'de, D, T>(input: D, parse: fn(&str) -> Result<T, String>) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
{
    let text = String::deserialize(input)?;
    parse(&text).map_err(serde::de::Error::custom)
}

/// A span of time.
pub(super) fn span<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Nanos, D::Error> {
    word(input, parse::span)
}

/// A span of time, for fields that may be left out.
pub(super) fn maybe_span<'de, D: serde::Deserializer<'de>>(
    input: D,
) -> Result<Option<Nanos>, D::Error> {
    word(input, parse::span).map(Some)
}

fn rate<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Rate, D::Error> {
    word(input, parse::rate)
}

fn offset<'de, D: serde::Deserializer<'de>>(input: D) -> Result<UtcOffset, D::Error> {
    word(input, parse::offset)
}

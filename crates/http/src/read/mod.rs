//! Reads what a response says about limits: the inverse of `write`, and the fields of other servers.
//!
//! Malformed fields are ignored and counted, and everything has a bound. Must not know: pacing and retries, any HTTP
//! library.

mod body;
mod drafts;
mod grpc;
mod instants;
mod limit_table;
mod structured_field;
mod vendors;

use tollgate_core::{Nanos, Timestamp};

use self::limit_table::{Family, LimitTable, PartialLimit};
use self::structured_field::Malformed;
use crate::rate_limit_info::RateLimitInfo;

/// The most limits of one response.
const MAX_LIMITS: usize = 32;
/// The longest name of a limit, a bucket or a resource.
const MAX_NAME_LEN: usize = 160;
/// The longest field value.
const MAX_VALUE_LEN: usize = 4_096;
/// The most fields that concern limits.
const MAX_FIELDS: u32 = 64;
/// The longest body.
const MAX_BODY_LEN: usize = 65_536;

/// Reads the limits of a response from its header fields, trailers and body, in every dialect at once.
///
/// ```
/// use tollgate_core::{Nanos, Timestamp};
/// use tollgate_http::ResponseReader;
///
/// let mut reader = ResponseReader::new(Timestamp::from_secs(1_700_000_000));
/// reader.field("ratelimit-policy", br#""api";q=100;w=60"#);
/// reader.field("ratelimit", br#""api";r=0;t=36"#);
/// reader.field("retry-after", b"36");
/// let info = reader.finish();
/// assert_eq!(info.retry_after, Some(Nanos::from_secs(36)));
/// let [limit] = &info.limits[..] else { panic!() };
/// assert_eq!((limit.quota, limit.remaining), (Some(100), Some(0)));
/// assert_eq!((limit.window, limit.reset_after), (Some(Nanos::MINUTE), Some(Nanos::from_secs(36))));
///
/// // OpenAI's durations and Anthropic's times.
/// let mut reader = ResponseReader::new(Timestamp::from_secs(1_700_000_000));
/// reader.field("x-ratelimit-remaining-tokens", b"149984");
/// reader.field("x-ratelimit-reset-tokens", b"6m0s");
/// reader.field("anthropic-ratelimit-requests-reset", b"2023-11-14T22:13:50Z");
/// let resets: Vec<_> = reader.finish().limits.iter().map(|limit| limit.reset_after).collect();
/// assert_eq!(resets, [Some(Nanos::from_secs(360)), Some(Nanos::from_secs(30))]);
/// ```
pub struct ResponseReader {
    limits: LimitTable,
    info: RateLimitInfo,
    /// This machine's time when the response arrived.
    now: Timestamp,
    /// The server's time when it sent the response.
    date: Option<Timestamp>,
    /// The longest delay and the last date of `Retry-After`. Readers of a field that is sent twice may take either, so both are obeyed.
    retry_after: (Option<Nanos>, Option<Timestamp>),
    fields: u32,
}

impl ResponseReader {
    /// A reader of a response that arrived at `now`. Times are compared with the response's `Date`, so that a wrong
    /// clock on either side does no harm. Without that field they are compared with `now`.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self {
            limits: LimitTable::default(),
            info: RateLimitInfo::default(),
            now,
            date: None,
            retry_after: (None, None),
            fields: 0,
        }
    }

    /// Reads one field line. `name` is in lowercase. Fields that do not concern limits are skipped.
    pub fn field(&mut self, name: &str, value: &[u8]) {
        if !is_relevant(name) {
            return;
        }
        self.fields = self.fields.saturating_add(1);
        let is_read = value.len() <= MAX_VALUE_LEN
            && self.fields <= MAX_FIELDS
            && self.read_field(name, value).is_ok();
        if !is_read {
            self.info.malformed_fields = self.info.malformed_fields.saturating_add(1);
        }
    }

    /// Reads the body of a refusal, if it is JSON. A body that is longer than 64 KiB is skipped.
    pub fn body(&mut self, content_type: &[u8], body: &[u8]) {
        let media_type = content_type.split(|byte| *byte == b';').next();
        let is_json = media_type.is_some_and(|media_type| {
            let media_type = media_type.trim_ascii();
            media_type.eq_ignore_ascii_case(b"application/json") || media_type.ends_with(b"+json")
        });
        if !is_json || body.is_empty() {
            return;
        }
        self.resolve_retry_after();
        if body.len() > MAX_BODY_LEN || body::json(body, &mut self.info).is_err() {
            self.info.malformed_fields = self.info.malformed_fields.saturating_add(1);
        }
    }

    /// What the response says.
    #[must_use]
    pub fn finish(mut self) -> RateLimitInfo {
        self.resolve_retry_after();
        let server_now = self.date.unwrap_or(self.now);
        let dropped = self.limits.dropped;
        self.info.malformed_fields = self.info.malformed_fields.saturating_add(dropped);
        if !self.info.is_cached {
            self.limits.finish(server_now, &mut self.info.limits);
        }
        self.info
    }

    fn resolve_retry_after(&mut self) {
        let (delay, date) = std::mem::take(&mut self.retry_after);
        let server_now = self.date.unwrap_or(self.now);
        let until_date = date.map(|date| date.since(server_now));
        self.info.retry_after = self.info.retry_after.max(delay).max(until_date);
    }

    fn read_field(&mut self, name: &str, value: &[u8]) -> Result<(), Malformed> {
        let (limits, info) = (&mut self.limits, &mut self.info);
        if let Some(part) = name.strip_prefix("x-ratelimit-") {
            return vendors::x_rate_limit(part, value, limits, info);
        }
        if let Some(part) = name.strip_prefix("x-rate-limit-") {
            return vendors::x_rate_limit(part, value, limits, info);
        }
        if let Some(part) = name.strip_prefix("anthropic-ratelimit-") {
            return vendors::anthropic(part, value, limits);
        }
        match name {
            "ratelimit" => drafts::rate_limit(value, limits),
            "ratelimit-policy" => drafts::policy(value, limits),
            "ratelimit-limit" => drafts::limit(value, Family::Draft, limits),
            "ratelimit-remaining" => vendors::pushed("remaining", "", value, Family::Draft, limits),
            "ratelimit-reset" => vendors::pushed("reset", "", value, Family::Draft, limits),
            "x-shopify-shop-api-call-limit" => vendors::shopify(value, limits),
            "stripe-rate-limited-reason" => vendors::stripe_reason(value, info),
            "stripe-should-retry" | "x-should-retry" => {
                info.may_retry = Some(vendors::boolean(value)?);
                Ok(())
            }
            "grpc-status" => grpc::status(value, info),
            "grpc-retry-pushback-ms" => grpc::pushback(value, info),
            "grpc-status-details-bin" => grpc::details(value, info),
            "date" => {
                self.date = Some(instants::http_date(vendors::text(value)?).ok_or(Malformed)?);
                Ok(())
            }
            "age" => {
                // Zero is an answer that was only passed on.
                let age = instants::retry_after(vendors::text(value)?).ok_or(Malformed)?;
                info.is_cached = age != instants::Instant::After(Nanos::ZERO);
                Ok(())
            }
            "retry-after" => {
                let (delay, date) = &mut self.retry_after;
                match instants::retry_after(vendors::text(value)?).ok_or(Malformed)? {
                    instants::Instant::After(wait) => *delay = (*delay).max(Some(wait)),
                    instants::Instant::At(time) => *date = (*date).max(Some(time)),
                }
                Ok(())
            }
            "retry-after-ms" | "x-retry-after-ms" => {
                let wait = instants::millis(vendors::text(value)?).ok_or(Malformed)?;
                info.retry_after = info.retry_after.max(Some(wait));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl std::fmt::Debug for ResponseReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseReader").finish_non_exhaustive()
    }
}

/// Whether a field can say something about limits. Most fields do not, so this is decided by their first letters.
fn is_relevant(name: &str) -> bool {
    match name.as_bytes().first() {
        Some(b'r') => name.starts_with("ratelimit") || name.starts_with("retry-after"),
        Some(b'x') => [
            "x-ratelimit-",
            "x-rate-limit-",
            "x-retry-after-ms",
            "x-should-retry",
            "x-shopify-shop-api",
        ]
        .iter()
        .any(|prefix| name.starts_with(prefix)),
        Some(b'a') => name == "age" || name.starts_with("anthropic-ratelimit-"),
        Some(b's') => name.starts_with("stripe-"),
        Some(b'g') => name.starts_with("grpc-"),
        Some(b'd') => name == "date",
        _ => false,
    }
}

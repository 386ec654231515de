//! Writes a rate limit status in the chosen dialects: one file per family, one function per dialect.
//!
//! Must not know: how long to wait and which limit binds. `rate_limit_status.rs` decides that.

pub(crate) mod limit_template;
pub(crate) mod lists;
mod single;
mod vendors;

use crate::dialect::{Dialect, Dialects};
use crate::header_fields::{HeaderFields, Merge};
use crate::rate_limit_status::RateLimitStatus;
use crate::text::push_integer;

impl RateLimitStatus<'_> {
    /// Replaces the contents of `fields` by the header fields of this status. A refusal also gets `Retry-After` and
    /// `Cache-Control: no-store`.
    ///
    /// Each field lists at most sixteen limits, always including the binding one.
    pub fn write(&self, dialects: Dialects, fields: &mut HeaderFields) {
        fields.clear();
        if !self.is_redirection() {
            for dialect in dialects.iter() {
                match dialect {
                    Dialect::Draft11 => lists::draft_11(self, fields),
                    Dialect::Next => lists::next(self, fields),
                    Dialect::Draft07 => single::draft_07(self, fields),
                    Dialect::Draft06 => single::draft_06(self, fields),
                    Dialect::Draft03 => single::draft_03(self, fields),
                    Dialect::Envoy => single::envoy(self, fields),
                    Dialect::XRateLimit => vendors::delta(self, fields),
                    Dialect::XRateLimitEpoch => vendors::epoch(self, fields),
                    Dialect::XRateLimitEpochMillis => vendors::epoch_millis(self, fields),
                    Dialect::Discord => vendors::discord(self, fields),
                    Dialect::GitHub => vendors::github(self, fields),
                }
            }
        }
        if self.is_refusal() {
            if let Some(seconds) = self.retry_after() {
                let value = |text: &mut Vec<u8>| push_integer(text, seconds);
                fields.push("retry-after", Merge::KeepExisting, value);
            }
            // RFC 6585 forbids caching a 429. Other codes could be cached for other callers.
            fields.push("cache-control", Merge::Append, |text| {
                text.extend_from_slice(b"no-store");
            });
        }
    }
}

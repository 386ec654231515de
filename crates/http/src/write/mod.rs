//! An answer in the chosen dialects: one file per family, one function per dialect.
//!
//! Must not know: what to promise. `answer.rs` says how long to wait and which limit binds.

pub(crate) mod lists;
mod single;
mod vendors;

use crate::dialect::{Dialect, Dialects};
use crate::header_fields::{HeaderFields, Merge};
use crate::rate_limit_status::RateLimitStatus;
use crate::text::push_integer;

impl RateLimitStatus<'_> {
    /// Writes the fields into `words`, instead of those that were in there: what each dialect tells of the limits and, if
    /// the request is refused, `Retry-After` and `Cache-Control: no-store`.
    ///
    /// At most sixteen limits are listed, the binding one always among them.
    pub fn write(&self, dialects: Dialects, words: &mut HeaderFields) {
        words.clear();
        if !self.is_redirection() {
            for dialect in dialects.iter() {
                match dialect {
                    Dialect::Draft11 => lists::draft_11(self, words),
                    Dialect::Next => lists::next(self, words),
                    Dialect::Draft07 => single::draft_07(self, words),
                    Dialect::Draft06 => single::draft_06(self, words),
                    Dialect::Draft03 => single::draft_03(self, words),
                    Dialect::Envoy => single::envoy(self, words),
                    Dialect::XRateLimit => vendors::delta(self, words),
                    Dialect::XRateLimitEpoch => vendors::epoch(self, words),
                    Dialect::XRateLimitEpochMillis => vendors::epoch_millis(self, words),
                    Dialect::Discord => vendors::discord(self, words),
                    Dialect::GitHub => vendors::github(self, words),
                }
            }
        }
        if self.is_refusal() {
            if let Some(seconds) = self.retry_after() {
                let value = |text: &mut Vec<u8>| push_integer(text, seconds);
                words.push("retry-after", Merge::KeepExisting, value);
            }
            // RFC 6585 forbids storing a 429; other codes would be stored for other callers.
            words.push("cache-control", Merge::Append, |text| {
                text.extend_from_slice(b"no-store");
            });
        }
    }
}

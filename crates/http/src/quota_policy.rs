//! What clients are told about one limit that does not change from answer to answer, written once.
//!
//! Must not know: decisions, or which header library carries the text.

use std::fmt;

use tollgate_core::{Nanos, Outcome, QuotaStatus, QuotaUnit};

use crate::policy_name::{InvalidPolicyName, is_parameter_key, is_token, is_visible, quote};
use crate::rate_limit_item::RateLimitItem;
use crate::rate_limit_status::RateLimitStatus;
use crate::text::{push_integer, seconds};
use crate::write::lists::push_limit_item;

/// One limit as clients know it: its name, its quota, and everything about it that stays the same.
///
/// ```
/// use tollgate_core::{Nanos, QuotaUnit};
/// use tollgate_http::QuotaPolicy;
///
/// let policy = QuotaPolicy::new("per-user", 100, Nanos::MINUTE, QuotaUnit::Requests)?;
/// assert_eq!(policy.policy_field(), r#""per-user";q=100;w=60"#);
///
/// let policy = QuotaPolicy::concurrent("in-flight", 20)?;
/// assert_eq!(policy.policy_field(), r#""in-flight";q=20;qu="concurrent-requests""#);
/// # Ok::<(), tollgate_http::InvalidPolicyName>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaPolicy {
    name: Box<str>,
    /// The name as a structured-field String, quotes included.
    quoted_name: Box<str>,
    /// The beginning of the item of `RateLimit`, up to the number that is left.
    item_prefix: Box<str>,
    /// The name as the next draft writes it: without quotes if it can do without.
    next_name: Box<str>,
    quota: u64,
    window: Nanos,
    unit: &'static str,
    is_concurrent: bool,
    /// The item of `RateLimit-Policy`: the draft wants it stable over responses, so it is written once.
    item: Box<str>,
    /// The same, as the next draft writes it.
    next_item: Box<str>,
    /// The item of the next draft's `RateLimit-Partition`; empty if partitions are not explained.
    dimensions: Box<str>,
    bucket: Box<str>,
    scope: Scope,
    message: Option<Box<str>>,
}

/// Whom a limit counts together, in the words of Discord.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Scope {
    /// Each caller alone.
    #[default]
    User,
    /// Each caller alone, over everything they do.
    Global,
    /// All who use one thing.
    Shared,
}

impl Scope {
    /// The scope's name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Global => "global",
            Self::Shared => "shared",
        }
    }
}

impl QuotaPolicy {
    /// A policy of `quota` units in each `window`. A window of zero is left out: the draft has no such window.
    ///
    /// # Errors
    /// The name must be 1 to 160 printable ASCII characters, which is what a structured-field String can hold.
    pub fn new(
        name: &str,
        quota: u64,
        window: Nanos,
        unit: QuotaUnit,
    ) -> Result<Self, InvalidPolicyName> {
        let unit = match unit {
            // The default, which the draft's text and its registry spell differently: saying nothing is always right.
            QuotaUnit::Requests => "",
            QuotaUnit::Bytes => "content-bytes",
            other => other.name(),
        };
        Self::with_unit(name, quota, window, unit)
    }

    /// A policy of at most `quota` requests at the same time. It has no window, and no time at which more is there.
    ///
    /// # Errors
    /// As [`Policy::new`].
    pub fn concurrent(name: &str, quota: u64) -> Result<Self, InvalidPolicyName> {
        Self::with_unit(name, quota, Nanos::ZERO, CONCURRENT)
    }

    fn with_unit(
        name: &str,
        quota: u64,
        window: Nanos,
        unit: &'static str,
    ) -> Result<Self, InvalidPolicyName> {
        let quoted = quote(name)?;
        let short = if is_token(name) { name } else { &quoted };
        let item = |name: &str| {
            let mut text = Vec::new();
            push_policy_item(&mut text, name, quota, unit, window);
            boxed(text)
        };
        Ok(Self {
            name: name.into(),
            item: item(&quoted),
            next_item: item(short),
            next_name: short.into(),
            item_prefix: format!("{quoted};r=").into(),
            is_concurrent: unit == CONCURRENT,
            quoted_name: quoted.into(),
            quota,
            window,
            unit,
            dimensions: "".into(),
            bucket: format!("{:016x}", fingerprint(name)).into(),
            scope: Scope::default(),
            message: None,
        })
    }

    /// Whom the limit counts together.
    #[must_use]
    pub const fn with_scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// What `detail` of a denial says instead of the usual sentence. Anything that people can read; 1,024 characters of it.
    #[must_use]
    pub fn with_message(mut self, message: &str) -> Self {
        self.message = Some(message.chars().take(1_024).collect());
        self
    }

    /// What Discord's dialect calls the limit, instead of sixteen digits that are made of its name.
    ///
    /// # Errors
    /// It must be 1 to 160 visible ASCII characters.
    pub fn with_bucket(mut self, bucket: &str) -> Result<Self, InvalidDetail> {
        if !is_visible(bucket) {
            let reason = "it must be 1 to 160 visible ASCII characters";
            return Err(InvalidDetail::new("bucket", bucket, reason));
        }
        self.bucket = bucket.into();
        Ok(self)
    }

    /// Explains the partitions to clients of the next draft: the names of what a key is made of, such as `user_id`.
    ///
    /// # Errors
    /// There are 1 to 16 names, each of them a parameter's key: lowercase letters, digits, `_`, `-`, `.` and `*`.
    pub fn partitioned_by(mut self, dimensions: &[&str]) -> Result<Self, InvalidDetail> {
        if dimensions.is_empty() || dimensions.len() > 16 {
            let count = dimensions.len().to_string();
            let reason = "there must be 1 to 16 dimensions";
            return Err(InvalidDetail::new("partitioned_by", &count, reason));
        }
        let mut text = String::from(&*self.next_name);
        for dimension in dimensions {
            if !is_parameter_key(dimension) {
                let reason = "it must begin with a lowercase letter or `*` and have only those, digits, `_`, `-` and `.`";
                return Err(InvalidDetail::new("partitioned_by", dimension, reason));
            }
            text.push(';');
            text.push_str(dimension);
        }
        self.dimensions = text.into();
        Ok(self)
    }

    /// The policy's name, as `violated-policies` lists it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value of `RateLimit-Policy` where this is the only policy.
    #[must_use]
    pub fn policy_field(&self) -> &str {
        &self.item
    }

    /// The value of `RateLimit` where this is the only policy, for those who write few. Others use
    /// [`Answer::write`](crate::Answer::write), which allocates nothing. `more_after` is the time until one more unit is
    /// there; it is said where nothing remains.
    #[must_use]
    pub fn limit_field(&self, outcome: Outcome, status: &QuotaStatus, more_after: Nanos) -> String {
        let mut standing = RateLimitItem::new(self, outcome, status);
        standing.next_unit_after = more_after;
        let mut text = Vec::new();
        push_limit_item(&mut text, &RateLimitStatus::new(outcome, &[]), &standing);
        boxed(text).into()
    }

    pub(crate) const fn quota(&self) -> u64 {
        self.quota
    }

    pub(crate) const fn window(&self) -> Nanos {
        self.window
    }

    pub(crate) fn quoted_name(&self) -> &str {
        &self.quoted_name
    }

    pub(crate) fn item_prefix(&self) -> &str {
        &self.item_prefix
    }

    pub(crate) fn next_name(&self) -> &str {
        &self.next_name
    }

    pub(crate) fn next_item(&self) -> &str {
        &self.next_item
    }

    pub(crate) const fn unit(&self) -> &'static str {
        self.unit
    }

    pub(crate) const fn is_concurrent(&self) -> bool {
        self.is_concurrent
    }

    pub(crate) fn dimensions(&self) -> &str {
        &self.dimensions
    }

    pub(crate) fn bucket_id(&self) -> &str {
        &self.bucket
    }

    pub(crate) const fn scope(&self) -> Scope {
        self.scope
    }

    pub(crate) fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }
}

const CONCURRENT: &str = "concurrent-requests";

/// One item of `RateLimit-Policy`, under the name as it is to be written.
pub(crate) fn push_policy_item(
    text: &mut Vec<u8>,
    name: &str,
    quota: u64,
    unit: &str,
    window: Nanos,
) {
    text.extend_from_slice(name.as_bytes());
    text.extend_from_slice(b";q=");
    push_integer(text, quota);
    if !unit.is_empty() {
        text.extend_from_slice(b";qu=\"");
        text.extend_from_slice(unit.as_bytes());
        text.push(b'"');
    }
    if !window.is_zero() {
        // Rounded up: the same quota over a longer window never promises more than there is.
        text.extend_from_slice(b";w=");
        push_integer(text, seconds(window));
    }
}

/// All that is written here is ASCII: names are checked and the rest is ours.
fn boxed(text: Vec<u8>) -> Box<str> {
    String::from_utf8(text).unwrap_or_default().into()
}

/// FNV-1a, because what names a bucket must be the same on every node and in every version. Names are no secret.
fn fingerprint(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Something about a policy that cannot be sent: which, its value, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidDetail {
    field: &'static str,
    value: String,
    reason: &'static str,
}

impl InvalidDetail {
    fn new(field: &'static str, value: &str, reason: &'static str) -> Self {
        Self {
            field,
            value: value.chars().take(128).collect(),
            reason,
        }
    }
}

impl fmt::Display for InvalidDetail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field,
            value,
            reason,
        } = self;
        write!(f, "{field}: {value:?} is not valid: {reason}")
    }
}

impl std::error::Error for InvalidDetail {}

//! The static part of a limit that clients see: its name, quota and window, formatted once.
//!
//! Must not know: decisions, header libraries.

use std::fmt;

use tollgate_core::{Nanos, Outcome, QuotaStatus, QuotaUnit};

use crate::policy_name::{InvalidPolicyName, is_parameter_key, is_token, is_visible, quote};
use crate::rate_limit_item::RateLimitItem;
use crate::rate_limit_status::RateLimitStatus;
use crate::text::{push_integer, seconds};
use crate::write::lists::push_limit_item;

/// A limit's quota policy: its name, its quota, and everything else that stays the same between responses.
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
    /// The item of `RateLimit` up to the remaining quota.
    item_prefix: Box<str>,
    /// The name in the `next` dialect: without quotes if it is a Token.
    next_name: Box<str>,
    quota: u64,
    window: Nanos,
    unit: &'static str,
    is_concurrent: bool,
    /// The item of `RateLimit-Policy`, formatted once because it is the same in every response.
    item: Box<str>,
    /// The same in the `next` dialect.
    next_item: Box<str>,
    /// The item of `RateLimit-Partition` in the `next` dialect; empty if no dimensions are set.
    dimensions: Box<str>,
    bucket: Box<str>,
    scope: Scope,
    message: Option<Box<str>>,
}

/// The scope of a limit, in Discord's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Scope {
    /// Each caller separately.
    #[default]
    User,
    /// Each caller separately, over all routes.
    Global,
    /// All callers of one resource together.
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
    /// A policy of `quota` units in each `window`. A window of zero is not sent: the draft has no such window.
    ///
    /// # Errors
    /// The name must be 1 to 160 printable ASCII characters, as a structured-field String requires.
    pub fn new(
        name: &str,
        quota: u64,
        window: Nanos,
        unit: QuotaUnit,
    ) -> Result<Self, InvalidPolicyName> {
        let unit = match unit {
            // The default. The draft's text and its registry spell it differently, so it is not sent.
            QuotaUnit::Requests => "",
            QuotaUnit::Bytes => "content-bytes",
            other => other.name(),
        };
        Self::with_unit(name, quota, window, unit)
    }

    /// A policy of at most `quota` concurrent requests. It has no window and no reset.
    ///
    /// # Errors
    /// As [`QuotaPolicy::new`].
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

    /// Sets the scope.
    #[must_use]
    pub const fn with_scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// Sets the `detail` of denials instead of the default sentence. It is cut to 1,024 characters.
    #[must_use]
    pub fn with_message(mut self, message: &str) -> Self {
        self.message = Some(message.chars().take(1_024).collect());
        self
    }

    /// Sets the bucket of Discord's dialect. The default is a hash of the name.
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

    /// Sets the partition dimensions that the `next` dialect sends: the names of the key's parts, such as `user_id`.
    ///
    /// # Errors
    /// There must be 1 to 16 names, each a parameter key: lowercase letters, digits, `_`, `-`, `.` and `*`.
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

    /// The policy's name, as in `violated-policies`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value of `RateLimit-Policy` if this is the only policy.
    #[must_use]
    pub fn policy_field(&self) -> &str {
        &self.item
    }

    /// The value of `RateLimit` if this is the only policy. It allocates;
    /// [`RateLimitStatus::write`](crate::RateLimitStatus::write) does not. `next_unit_after` is the time until the next unit is
    /// available; it is sent if nothing remains.
    #[must_use]
    pub fn limit_field(&self, outcome: Outcome, status: &QuotaStatus, more_after: Nanos) -> String {
        let mut item = RateLimitItem::new(self, outcome, status);
        item.next_unit_after = more_after;
        let mut text = Vec::new();
        push_limit_item(&mut text, &RateLimitStatus::new(outcome, &[]), &item);
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

/// Appends one item of `RateLimit-Policy`. `name` is already quoted if it must be.
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
        // Rounded up: the same quota over a longer window never promises too much.
        text.extend_from_slice(b";w=");
        push_integer(text, seconds(window));
    }
}

/// The bytes are always ASCII, because names are checked.
fn boxed(text: Vec<u8>) -> Box<str> {
    String::from_utf8(text).unwrap_or_default().into()
}

/// FNV-1a, because a bucket must have the same id on every node and in every version. Names are not secret.
fn fingerprint(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A property of a policy cannot be sent: which property, its value, and why.
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

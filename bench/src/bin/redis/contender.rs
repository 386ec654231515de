//! Who is measured: our store's calls, and the article's script with the same limit.
//!
//! Both build a call for the client and read its reply, which is what they cost the client. Must not know: servers,
//! counters.

use std::num::NonZeroU16;

use tollgate_core::limit::Limit;
use tollgate_core::{FixedWindow, Nanos, Rate, SlidingCounter, TokenBucket, Window};
use tollgate_redis::wire::{ScriptCall, ScriptKind, decode};
use tollgate_redis::{KeyHashSecret, ReservationRetention};
use tollgate_store::{IdentifiedLimit, LimitId, Op, QuotaCheck, StoreKey, StoreReply};
use tollgate_testkit::redis::article_script;

use crate::Failure;

/// A token bucket that both can have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    pub(crate) units: u64,
    pub(crate) period: Nanos,
    pub(crate) burst: u64,
}

/// One of those that are measured, with its limit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Contender {
    Ours(IdentifiedLimit),
    Article { per_second: f64, burst: u64 },
}

impl Contender {
    /// Our store and the article's script, with the same bucket.
    pub(crate) fn both(bucket: Bucket) -> Result<[Self; 2], Failure> {
        let Bucket {
            units,
            period,
            burst,
        } = bucket;
        let rate = Rate::new(units, period);
        let ours = TokenBucket::builder(rate).burst(burst).build()?;
        let units = f64::from(u32::try_from(units)?);
        let per_second = units / std::time::Duration::from(period).as_secs_f64();
        Ok([Self::ours(ours.into()), Self::Article { per_second, burst }])
    }

    /// Our other states of a fixed size, which no article has.
    pub(crate) fn windows() -> Result<[Self; 2], Failure> {
        let counter = SlidingCounter::builder(100, Nanos::HOUR).build()?;
        let window = FixedWindow::builder(100, Window::Epoch(Nanos::HOUR)).build()?;
        Ok([Self::ours(counter.into()), Self::ours(window.into())])
    }

    const fn ours(limit: Limit) -> Self {
        let id = LimitId(NonZeroU16::MIN);
        Self::Ours(IdentifiedLimit { id, limit })
    }

    /// The scripts that the server has to know before calls are made.
    pub(crate) fn scripts() -> impl Iterator<Item = &'static str> {
        let ours = ScriptKind::DECIDING.iter().map(|which| which.script().text);
        ours.chain([article_script::SCRIPT])
    }

    /// The call that spends one unit on a key.
    pub(crate) fn call(&self, article: &str, number: u64) -> Result<redis::Cmd, Failure> {
        let mut call = redis::cmd("EVALSHA");
        match self {
            Self::Ours(limit) => {
                let bytes = number.to_be_bytes();
                let checks = [check(limit, &bytes)?];
                let secret = KeyHashSecret::new(*b"measured beside ");
                let request =
                    ScriptCall::new(secret, ReservationRetention::default(), &checks, None)?;
                call.arg(&request.kind.script().digest);
                call.arg(request.keys.len());
                for bytes in request.keys.iter().chain(&request.args) {
                    call.arg(bytes);
                }
            }
            Self::Article { per_second, burst } => {
                call.arg(article).arg(1).arg(article_script::key(number));
                call.arg(&article_script::arguments(*per_second, *burst, 1));
            }
        }
        Ok(call)
    }

    /// Whether the reply admits: ours with all that a caller is answered.
    pub(crate) fn is_admitted(&self, number: u64, reply: &[i64]) -> Result<bool, Failure> {
        match self {
            Self::Ours(limit) => {
                let bytes = number.to_be_bytes();
                let mut answers = [StoreReply::EMPTY];
                let decided = decode(&[check(limit, &bytes)?], reply, &mut answers)?;
                Ok(decided.outcome.is_admitted())
            }
            Self::Article { .. } => Ok(reply.first() == Some(&1)),
        }
    }
}

fn check<'a>(limit: &'a IdentifiedLimit, bytes: &'a [u8]) -> Result<QuotaCheck<'a>, Failure> {
    Ok(QuotaCheck {
        key: StoreKey::new(bytes)?,
        limit,
        op: Op::Spend(1),
    })
}

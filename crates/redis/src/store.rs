//! The store: a batch becomes one call, its reply becomes the answers.
//!
//! Must not know: how calls are encoded, how connections are kept.

use std::sync::atomic::{AtomicU64, Ordering};

use redis::Value;
use tollgate_core::compose::Verdict;
use tollgate_store::{Answer, Check, ErrorKind, StoreError};

use crate::link::Link;
use crate::options::Options;
use crate::wire::{Request, decode};

/// Decides in Redis or Valkey, exactly: one round trip, one script, one clock.
#[derive(Debug)]
pub struct RedisStore {
    options: Options,
    link: Link,
    corrupt: AtomicU64,
}

impl RedisStore {
    /// Connects, as far as the server is there: without it the store exists, answers [`ErrorKind::Unreachable`], and
    /// keeps trying in the background. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The address makes no sense.
    pub async fn connect(options: Options) -> Result<Self, StoreError> {
        let link = Link::open(&options).await?;
        Ok(Self {
            options,
            link,
            corrupt: AtomicU64::new(0),
        })
    }

    /// Decides on a batch, all or nothing: see [`tollgate_store::Store`], whose contract this is, awaited.
    ///
    /// Within the deadline, whatever the server does. Dropping the future does not take a call back that was sent.
    ///
    /// # Errors
    /// The batch makes no sense, or the server did not answer. No call is repeated that may have been carried out.
    pub async fn decide(
        &self,
        checks: &[Check<'_>],
        answers: &mut [Answer],
    ) -> Result<Verdict, StoreError> {
        if checks.len() != answers.len() {
            let detail = "there must be as many answers as checks";
            return Err(StoreError::new(ErrorKind::BadRequest, detail));
        }
        if checks.is_empty() {
            return Ok(Verdict::default());
        }
        let request = Request::new(self.options.secret, self.options.remembering, checks, None)?;
        let reply = self.link.call(&request).await?;
        let decided = integers(&reply)
            .and_then(|integers| decode(checks, &integers, answers))
            .inspect_err(|_| self.link.distrust(&request))?;
        if decided.corrupt > 0 {
            self.corrupt.fetch_add(decided.corrupt, Ordering::Relaxed);
        }
        Ok(decided.verdict)
    }

    /// Whether any connection is up.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.link.is_connected()
    }

    /// How many states could not be read so far. They were taken for absent and written anew.
    #[must_use]
    pub fn corrupt_states(&self) -> u64 {
        self.corrupt.load(Ordering::Relaxed)
    }
}

/// A script's reply is a flat list of integers and nothing else.
fn integers(reply: &Value) -> Result<Vec<i64>, StoreError> {
    let garbled = || StoreError::new(ErrorKind::Garbled, "the reply is not a list of integers");
    let Value::Array(values) = reply else {
        return Err(garbled());
    };
    values
        .iter()
        .map(|value| match value {
            Value::Int(n) => Ok(*n),
            _ => Err(garbled()),
        })
        .collect()
}

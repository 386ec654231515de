//! The rest of writing a limiter down, once it is known that its state is in Redis.
//!
//! Must not know: how decisions are made.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::Nanos;

use super::connection::Redis;
use super::limit_ids;
use super::limiter::{Limiter, RedisLimiterInner};
use crate::invalid::InvalidLimiter;
use crate::limit_name::LimitName;
use crate::limits::Limits;
use crate::sleeper::JitteredSleeper;
use crate::until_ready::WaitQueues;

/// How long a reservation is held unless somebody says otherwise.
const DEFAULT_HOLD: Duration = Duration::from_mins(10);

/// A limiter over Redis before it is built. Made by [`over`](crate::Builder::over).
#[must_use = "a builder does nothing until `build` is called"]
pub struct LimiterBuilder {
    redis: Redis,
    limits: Limits,
    memory_only_setting: Option<&'static str>,
    ids: Vec<(LimitName, u16)>,
    hold: Duration,
    sleeper: JitteredSleeper,
    wait_queues: WaitQueues,
}

impl LimiterBuilder {
    pub(crate) fn new(
        redis: &Redis,
        limits: Limits,
        misplaced: Option<&'static str>,
        pause: JitteredSleeper,
        lines: WaitQueues,
    ) -> Self {
        Self {
            redis: redis.clone(),
            limits,
            memory_only_setting: misplaced,
            ids: Vec::new(),
            hold: DEFAULT_HOLD,
            sleeper: pause,
            wait_queues: lines,
        }
    }

    /// Chooses the number by which the server knows this limit, instead of the one that follows from its name. For
    /// a limit that was renamed and is to keep its state, for names whose numbers meet, and for those who would
    /// rather number all; see [which state a limit finds](super#which-state-a-limit-finds). A number below 64 also makes
    /// the names of keys two bytes shorter, which in most servers saves eight for each key.
    pub fn id(mut self, limit: impl Into<LimitName>, id: u16) -> Self {
        self.ids.push((limit.into(), id));
        self
    }

    /// How long a [reservation](Limiter::reserve) can be settled downwards or cancelled: ten minutes unless said otherwise.
    /// After that it stays charged.
    pub const fn hold(mut self, time: Duration) -> Self {
        self.hold = time;
        self
    }

    /// Checks everything and makes the limiter. Asks the server nothing.
    ///
    /// # Errors
    /// A number that cannot be honoured exactly, a choice that only a table in memory has, or a limit whose number another
    /// limit over this connection has.
    pub fn build(self) -> Result<Limiter, InvalidLimiter> {
        if let Some(choice) = self.memory_only_setting {
            return Err(InvalidLimiter::OnlyInMemory { choice });
        }
        let limits = self.limits.validate()?;
        let unknown = |name: &LimitName| limits.iter().all(|(known, _)| known != name);
        if let Some((name, id)) = self.ids.iter().find(|(name, _)| unknown(name)) {
            return Err(InvalidLimiter::Id {
                name: name.clone(),
                id: *id,
                problem: "there is no limit of this name",
            });
        }
        let shared = RedisLimiterInner::new(
            &self.redis,
            limits,
            limit_ids::LimitIdOverrides(self.ids),
            Nanos::from(self.hold),
            self.sleeper,
            self.wait_queues,
        )?;
        Ok(Limiter {
            shared: Arc::new(shared),
        })
    }
}

impl fmt::Debug for LimiterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("limits", &self.limits)
            .field("ids", &self.ids)
            .field("hold", &self.hold)
            .finish_non_exhaustive()
    }
}

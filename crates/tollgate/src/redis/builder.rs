//! The builder of a limiter over Redis.
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

/// The default time for which a reservation can be settled.
const DEFAULT_HOLD: Duration = Duration::from_mins(10);

/// Builds a [`Limiter`] over Redis. Created by [`with_redis`](crate::LimiterBuilder::with_redis).
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

    /// Sets the id of a limit in Redis, instead of the id derived from its name. Use it to rename a limit without losing its
    /// state, to resolve a collision of two names, or to assign all ids yourself; see
    /// [which state a limit uses](super#which-state-a-limit-uses). An id below 64 also makes the Redis keys two bytes
    /// shorter, which saves eight bytes per key in most servers.
    pub fn id(mut self, limit: impl Into<LimitName>, id: u16) -> Self {
        self.ids.push((limit.into(), id));
        self
    }

    /// How long a [reservation](Limiter::reserve) can be cancelled or settled to a lower cost. Defaults to ten minutes. After
    /// that it stays charged.
    pub const fn hold(mut self, time: Duration) -> Self {
        self.hold = time;
        self
    }

    /// Validates all settings and builds the limiter. Makes no call to Redis.
    ///
    /// # Errors
    /// A quota that cannot be enforced exactly, a setting that only a limiter in memory has, or a limit id that another limit
    /// over this connection has.
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
                problem: "the limiter has no limit with this name",
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
        f.debug_struct("LimiterBuilder")
            .field("limits", &self.limits)
            .field("ids", &self.ids)
            .field("hold", &self.hold)
            .finish_non_exhaustive()
    }
}

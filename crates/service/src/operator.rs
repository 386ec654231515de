//! Operators' actions on a running service, on this node and in the fleet.
//!
//! The engine stores, signs and logs operators' changes; this module adds the actions that also need the fleet. Must not
//! know: how operators call it, who is authorised.

use std::fmt;

use tollgate_engine::Control;
use tollgate_engine::control::{Attribution, OperatorError};
use tollgate_store::{Clock, MemoryStore, StoreError};

use crate::service::RateLimitService;

/// Why a reset failed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ResetError {
    /// The limit or key does not exist. Nothing was reset.
    Refused(OperatorError),
    /// The key was reset on this node, but the shared store did not answer.
    Store(StoreError),
}

impl<C: Clock> RateLimitService<C> {
    /// The operators' actions on the engine: switches, overrides, blocks.
    #[must_use]
    pub fn control(&self) -> Control<'_, MemoryStore<C>> {
        self.engine().control()
    }

    /// Resets a key of a limit on this node and in the shared store, and makes other nodes drop cached denials. Returns
    /// whether the key had any state.
    ///
    /// # Errors
    /// The limit or key does not exist, or the shared store did not answer.
    pub async fn reset(
        &self,
        limit: &str,
        key: &[&str],
        by: Attribution<'_>,
    ) -> Result<bool, ResetError> {
        let had_state = self.control().reset(limit, key, by);
        let had_state = had_state.map_err(ResetError::Refused)?;
        let had_shared_state = match self.fleet_engine() {
            Some(fleet) => fleet.erase(limit, key).await.map_err(ResetError::Store)?,
            None => false,
        };
        // Cannot fail: `reset` above has checked the limit and the key.
        let _told = self.control().publish_reset(limit, key, by);
        Ok(had_state || had_shared_state)
    }
}

impl fmt::Display for ResetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => refused.fmt(f),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ResetError {}

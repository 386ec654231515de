//! Operators' actions on a running service, on this node and in the fleet.
//!
//! The engine stores, signs and logs operators' changes; this module adds the actions that also need the fleet. Must not
//! know: how operators call it, who is authorised.

use std::fmt;

use tollgate_engine::Control;
use tollgate_engine::control::{AdjustedKey, Attribution, OperatorError, UnitAdjustment};
use tollgate_store::{Clock, MemoryStore, StoreError};

use crate::service::RateLimitService;

/// Why a reset, a charge or a refund failed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum OperatorActionError {
    /// The limit or key does not exist. Nothing was changed.
    Refused(OperatorError),
    /// The shared store did not answer. A key that was to be reset was reset on this node.
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
    ) -> Result<bool, OperatorActionError> {
        let had_state = self.control().reset(limit, key, by);
        let had_state = had_state.map_err(OperatorActionError::Refused)?;
        let had_shared_state = match self.fleet_engine() {
            Some(fleet) => fleet
                .erase(limit, key)
                .await
                .map_err(OperatorActionError::Store)?,
            None => false,
        };
        // Cannot fail: `reset` above has checked the limit and the key.
        let _told = self.control().publish_reset(limit, key, by);
        Ok(had_state || had_shared_state)
    }

    /// Charges or refunds units of a key, in the shared store of a fleet or on this node. Returns the units that are left.
    ///
    /// # Errors
    /// The limit or key does not exist or counts no units, or the store did not answer. Nothing was changed then, unless the
    /// store's error [may have charged](StoreError::may_have_charged).
    pub async fn adjust(
        &self,
        key: AdjustedKey<'_>,
        adjustment: UnitAdjustment,
        by: Attribution<'_>,
    ) -> Result<u64, OperatorActionError> {
        let prepared = self.control().prepare_adjustment(key, adjustment, by);
        let prepared = prepared.map_err(OperatorActionError::Refused)?;
        let remaining = match self.fleet_engine() {
            Some(fleet) => {
                let remaining = fleet
                    .adjust(&prepared)
                    .await
                    .map_err(OperatorActionError::Store)?;
                self.control().record_adjustment(&prepared, by);
                if prepared.is_refund() {
                    // Cannot fail: the limit and the key were checked. Other nodes drop cached denials.
                    let _told = self.control().publish_reset(key.limit, key.values, by);
                }
                remaining
            }
            None => self
                .control()
                .adjust(&prepared, by)
                .map_err(OperatorActionError::Store)?,
        };
        self.metrics().record_adjustment(adjustment);
        Ok(remaining)
    }
}

impl fmt::Display for OperatorActionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => refused.fmt(f),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OperatorActionError {}

//! What operators do to a running service, on this node and in the fleet.
//!
//! The engine keeps, signs and logs everything that operators say; this adds what reaches beyond the engine. Must not know:
//! how operators ask, who may.

use std::fmt;

use tollgate_engine::Control;
use tollgate_engine::control::{Attribution, OperatorError};
use tollgate_store::{Clock, MemoryStore, StoreError};

use crate::service::RateLimitService;

/// Why a key was not reset everywhere.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ResetError {
    /// The engine refuses: there is no such limit or key. Nothing was reset.
    Refused(OperatorError),
    /// The key was reset on this node, and the store that the fleet shares did not answer.
    Store(StoreError),
}

impl<C: Clock> RateLimitService<C> {
    /// What operators can do by the engine alone: switches, overrides, blocks.
    #[must_use]
    pub fn control(&self) -> Control<'_, MemoryStore<C>> {
        self.engine().control()
    }

    /// Forgets what a key has used of a limit, on this node and in the store that the fleet shares, and tells other nodes to
    /// forget cached denials. Returns whether there was anything to forget.
    ///
    /// # Errors
    /// There is no such limit or key, or the shared store did not answer.
    pub async fn reset(
        &self,
        limit: &str,
        key: &[&str],
        by: Attribution<'_>,
    ) -> Result<bool, ResetError> {
        let here = self.control().reset(limit, key, by);
        let here = here.map_err(ResetError::Refused)?;
        let shared = match self.fleet_engine() {
            Some(fleet) => fleet.erase(limit, key).await.map_err(ResetError::Store)?,
            None => false,
        };
        // That the limit has such a key was found out above.
        let _told = self.control().publish_reset(limit, key, by);
        Ok(here || shared)
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

//! This node as one of a fleet: it says that it is there, hears who else is, and shares what operators say.
//!
//! [`Membership`] is what others ask; [`Membership::run`] is the one task that talks to the [`Register`]. Nothing waits for
//! it: without a register the node decides as before, by what it last saw. Must not know: where the register is, how
//! decisions are made.

mod heartbeat;
mod local_node;
mod mismatch;
mod register_sync;
#[cfg(test)]
mod tests;
mod view;

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tollgate_store::register::{FleetName, NodeId};

pub use local_node::{LocalNode, NodeTotals};
pub use mismatch::Mismatch;
pub use view::{FleetNode, FleetView};

use crate::secret::Secret;
use view::FleetState;

#[cfg(doc)]
use tollgate_store::register::Register;

/// How a node takes part in its fleet.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MembershipSettings {
    /// What the fleet is called.
    pub fleet: FleetName,
    /// How many nodes there are, for as long as nobody was seen.
    pub nodes: Option<NonZeroU32>,
    /// How often a node says that it is there. In fleets of more than 64 nodes up to three times as rarely.
    pub heartbeat_interval: Duration,
    /// For how many beats other nodes may have another secret before that is an alarm.
    pub secret_alarm_after_beats: u32,
    /// For how many beats other nodes may have another policy: reloads do not happen everywhere at once.
    pub policy_alarm_after_beats: u32,
}

impl Default for MembershipSettings {
    fn default() -> Self {
        Self {
            fleet: FleetName::default(),
            nodes: None,
            heartbeat_interval: Duration::from_millis(500),
            secret_alarm_after_beats: 4,
            policy_alarm_after_beats: 20,
        }
    }
}

/// How many nodes there are, and how that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetSize {
    /// So many were seen last.
    Observed(NonZeroU32),
    /// Nobody was seen yet; so many are said to be there.
    Configured(NonZeroU32),
    /// Nobody knows. Whoever divides by it takes it for one, and then every node has the whole limit.
    Unknown,
}

impl FleetSize {
    /// What to divide by.
    #[must_use]
    pub const fn count(self) -> NonZeroU32 {
        match self {
            Self::Observed(nodes) | Self::Configured(nodes) => nodes,
            Self::Unknown => NonZeroU32::MIN,
        }
    }

    /// As pages call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Observed(_) => "seen",
            Self::Configured(_) => "configured",
            Self::Unknown => "unknown",
        }
    }
}

/// This node's place in a fleet.
pub struct Membership {
    id: NodeId,
    settings: MembershipSettings,
    fingerprint: u64,
    state: Mutex<FleetState>,
    /// Whether the register was heard, or did not answer, since the start.
    is_synced: watch::Sender<bool>,
    wake: Arc<Notify>,
    /// The number of what was put last. It outlives the task that counts it.
    put_counter: AtomicU64,
    panics: AtomicU64,
}

impl Membership {
    /// A place in a fleet for this process, whose digests are keyed by this secret.
    #[must_use]
    pub fn new(secret: Secret, settings: MembershipSettings) -> Arc<Self> {
        Arc::new(Self {
            // A fresh hasher is keyed by the operating system's randomness.
            id: NodeId(RandomState::new().hash_one(0_u8)),
            settings,
            fingerprint: secret.fingerprint(),
            state: Mutex::default(),
            is_synced: watch::Sender::new(false),
            wake: Arc::default(),
            put_counter: AtomicU64::new(0),
            panics: AtomicU64::new(0),
        })
    }

    /// Who this is.
    #[must_use]
    pub const fn id(&self) -> NodeId {
        self.id
    }

    /// What the fleet is called.
    #[must_use]
    pub const fn fleet(&self) -> &FleetName {
        &self.settings.fleet
    }

    /// How many nodes there are: as last seen, else as configured, else nobody knows.
    #[must_use]
    pub fn fleet_size(&self) -> FleetSize {
        match (self.state().nodes(), self.settings.nodes) {
            (Some(nodes), _) => FleetSize::Observed(nodes),
            (None, Some(nodes)) => FleetSize::Configured(nodes),
            (None, None) => FleetSize::Unknown,
        }
    }

    /// Completes once everything that operators have said was taken over, or the register did not answer. A server that
    /// waits for it before it is ready does not let those through who are blocked.
    pub async fn wait_until_synced(&self) {
        // An error would mean that the sender is gone, which is this.
        let mut begun = self.is_synced.subscribe();
        let _settled = begun.wait_for(|begun| *begun).await.is_ok();
    }

    /// Everything that is known now.
    #[must_use]
    pub fn view(&self) -> FleetView {
        self.state().view(self.id, self.fingerprint)
    }

    /// How often the task that talks to the register died of a bug and was started again.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, FleetState> {
        // Every field is written by itself, so a thread that died left nothing that could mislead.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Membership")
            .field("id", &self.id)
            .field("fleet", &self.settings.fleet)
            .finish_non_exhaustive()
    }
}

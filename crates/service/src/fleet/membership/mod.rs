//! This node's membership in a fleet: it sends heartbeats, sees the other nodes, and shares operators' changes.
//!
//! [`Membership`] answers queries; [`Membership::run`] is the one task that calls the [`Register`]. No request waits for it:
//! without a register the node decides as before, by the last known state. Must not know: where the register is, how
//! requests are decided.

mod forged_usage;
mod heartbeat;
mod local_node;
mod message_key;
mod mismatch;
mod register_sync;
mod rejections;
mod signed_register;
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
use tollgate_store::register::{FleetName, NodeId, Register};

pub use local_node::{LocalNode, NodeTotals};
pub use mismatch::Mismatch;
pub use rejections::{Rejection, RejectionCounts};
pub use view::{FleetNode, FleetView};

use crate::secret::Secret;
use message_key::MessageKey;
use rejections::Rejections;
use signed_register::SignedRegister;
use view::FleetState;

/// The settings of a fleet membership.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MembershipSettings {
    /// The fleet's name.
    pub fleet: FleetName,
    /// The number of nodes to assume until the register reports it.
    pub nodes: Option<NonZeroU32>,
    /// The time between heartbeats. In fleets of more than 64 nodes it is up to three times as long.
    pub heartbeat_interval: Duration,
    /// The number of heartbeats with another secret on other nodes before the alarm is raised.
    pub secret_alarm_after_beats: u32,
    /// The same for another policy. It is larger because nodes do not reload at the same time.
    pub policy_alarm_after_beats: u32,
    /// Whether messages without a signature are accepted: only while nodes of a version that did not sign are replaced.
    pub accept_unsigned: bool,
}

impl Default for MembershipSettings {
    fn default() -> Self {
        Self {
            fleet: FleetName::default(),
            nodes: None,
            heartbeat_interval: Duration::from_millis(500),
            secret_alarm_after_beats: 4,
            policy_alarm_after_beats: 20,
            accept_unsigned: false,
        }
    }
}

/// The number of nodes, and its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetSize {
    /// As the register last reported.
    Observed(NonZeroU32),
    /// As configured, because the register has not answered yet.
    Configured(NonZeroU32),
    /// Unknown. It counts as one, so every node applies the whole limit.
    Unknown,
}

impl FleetSize {
    /// The number by which limits are divided.
    #[must_use]
    pub const fn count(self) -> NonZeroU32 {
        match self {
            Self::Observed(nodes) | Self::Configured(nodes) => nodes,
            Self::Unknown => NonZeroU32::MIN,
        }
    }

    /// Its name in admin pages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Observed(_) => "seen",
            Self::Configured(_) => "configured",
            Self::Unknown => "unknown",
        }
    }
}

/// This node's membership in a fleet.
pub struct Membership {
    id: NodeId,
    settings: MembershipSettings,
    secret: Secret,
    fingerprint: u64,
    rejections: Arc<Rejections>,
    state: Mutex<FleetState>,
    /// Whether the first round with the register is over, successful or not.
    is_synced: watch::Sender<bool>,
    wake: Arc<Notify>,
    /// The number of the last push. It outlives the task, which may be restarted.
    put_counter: AtomicU64,
    panics: AtomicU64,
}

impl Membership {
    /// A membership of this process, whose digests use this secret.
    #[must_use]
    pub fn new(secret: Secret, settings: MembershipSettings) -> Arc<Self> {
        Arc::new(Self {
            // A fresh hasher is keyed by the operating system's randomness.
            id: NodeId(RandomState::new().hash_one(0_u8)),
            settings,
            secret,
            fingerprint: secret.fingerprint(),
            rejections: Arc::default(),
            state: Mutex::default(),
            is_synced: watch::Sender::new(false),
            wake: Arc::default(),
            put_counter: AtomicU64::new(0),
            panics: AtomicU64::new(0),
        })
    }

    /// This node's id.
    #[must_use]
    pub const fn id(&self) -> NodeId {
        self.id
    }

    /// The fleet's name.
    #[must_use]
    pub const fn fleet(&self) -> &FleetName {
        &self.settings.fleet
    }

    /// The number of nodes: as last reported, else as configured, else unknown.
    #[must_use]
    pub fn fleet_size(&self) -> FleetSize {
        match (self.state().nodes(), self.settings.nodes) {
            (Some(nodes), _) => FleetSize::Observed(nodes),
            (None, Some(nodes)) => FleetSize::Configured(nodes),
            (None, None) => FleetSize::Unknown,
        }
    }

    /// Waits until the operators' changes of the fleet are applied, or the register did not answer. A server that waits for
    /// this before it is ready does not admit blocked callers at startup.
    pub async fn wait_until_synced(&self) {
        // `self` owns the sender, so this cannot fail.
        let mut begun = self.is_synced.subscribe();
        let _settled = begun.wait_for(|begun| *begun).await.is_ok();
    }

    /// A snapshot of the fleet's state.
    #[must_use]
    pub fn view(&self) -> FleetView {
        self.state().view(self.id, self.fingerprint)
    }

    /// The number of times that the task panicked and was restarted.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// How many messages were ignored because they are not authentic.
    #[must_use]
    pub fn rejections(&self) -> RejectionCounts {
        self.rejections.counts()
    }

    /// Whether messages without a signature are accepted.
    #[must_use]
    pub const fn accepts_unsigned(&self) -> bool {
        self.settings.accept_unsigned
    }

    /// The register with authenticated messages.
    fn signed(&self, register: Arc<dyn Register>) -> SignedRegister {
        let key = MessageKey::new(self.secret, self.settings.fleet.clone());
        let rejections = Arc::clone(&self.rejections);
        SignedRegister::new(register, key, self.settings.accept_unsigned, rejections)
    }

    fn state(&self) -> MutexGuard<'_, FleetState> {
        // Fields are independent, so a poisoned state is still usable.
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

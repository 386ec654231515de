//! The last known state of the fleet.
//!
//! Must not know: registers, how the state is reported.

use std::num::NonZeroU32;

use tokio::time::Instant;
use tollgate_core::Nanos;
use tollgate_store::register::{Heartbeat, MemberList, NodeId, NodeLoad, RegisterCursor};

use super::MembershipSettings;
use super::mismatch::{AlarmChange, Mismatch, MismatchAlarm};

/// The last known state of the fleet.
#[derive(Debug, Default)]
pub(super) struct FleetState {
    members: Option<(MemberList, Instant)>,
    alarms: [MismatchAlarm; 2],
    /// Why the register does not answer; `None` while it answers.
    register_error: Option<String>,
    /// Why pushes fail although the register answers heartbeats.
    push_error: Option<String>,
    failures: u64,
    applied_cursor: Option<RegisterCursor>,
    unsupported_entries: usize,
    pending_counts: (usize, u64),
    started_at: Option<Instant>,
}

/// A snapshot of the fleet's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetView {
    /// The nodes, ordered by id, including those that expired since the last heartbeat.
    pub nodes: Vec<FleetNode>,
    /// The number of nodes whose entry this version cannot parse.
    pub unreadable_nodes: usize,
    /// The load of all nodes together.
    pub load: NodeLoad,
    /// The number of nodes with another secret, and with another policy, while the alarm is raised: in the order of
    /// [`Mismatch::ALL`](super::Mismatch::ALL).
    pub mismatches: [usize; 2],
    /// The version of the operators' changes that is applied on this node; 0 if there was never one.
    pub controls_version: u64,
    /// Local changes that the register has not stored yet.
    pub pending_changes: usize,
    /// Local changes that the register has rejected.
    pub discarded_changes: u64,
    /// Entries of a later version, which this version does not understand.
    pub unsupported_entries: usize,
    /// The time since the register answered a heartbeat, or since this node started, if it never did.
    pub beat_age: Nanos,
    /// The number of failed rounds.
    pub failures: u64,
    /// Why the register does not answer, or why pushes fail.
    pub error: Option<String>,
}

/// A node of the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetNode {
    /// Its last heartbeat.
    pub beat: Heartbeat,
    /// The age of that heartbeat.
    pub age: Nanos,
    /// Whether it is this node.
    pub is_self: bool,
    /// How it differs from this node.
    pub mismatch: Option<Mismatch>,
}

/// Changes since the last heartbeat, to be logged.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FleetChanges {
    pub(super) nodes: Option<u32>,
    pub(super) alarms: Vec<(Mismatch, AlarmChange, usize)>,
    /// Whether the register did not answer before.
    pub(super) has_recovered: bool,
}

impl FleetState {
    pub(super) fn record_start(&mut self, now: Instant) {
        self.started_at.get_or_insert(now);
    }

    pub(super) fn nodes(&self) -> Option<NonZeroU32> {
        let (members, _) = self.members.as_ref()?;
        NonZeroU32::new(u32::try_from(members.count()).unwrap_or(u32::MAX))
    }

    /// Records the nodes that the register reports.
    pub(super) fn record_members(
        &mut self,
        members: MemberList,
        own: &Heartbeat,
        settings: &MembershipSettings,
        now: Instant,
    ) -> FleetChanges {
        let before = self.nodes();
        let differing = Mismatch::ALL.map(|what| {
            let nodes = members.nodes.iter();
            nodes
                .filter(|member| mismatch(&member.heartbeat, own) == Some(what))
                .count()
        });
        let thresholds = [
            settings.secret_alarm_after_beats,
            settings.policy_alarm_after_beats,
        ];
        let kinds = Mismatch::ALL.into_iter().zip(&mut self.alarms);
        let alarms = kinds
            .zip(differing.into_iter().zip(thresholds))
            .filter_map(|((what, alarm), (differing, threshold))| {
                Some((what, alarm.observe(differing, threshold)?, differing))
            })
            .collect();
        self.members = Some((members, now));
        let nodes = self.nodes();
        FleetChanges {
            nodes: nodes.filter(|_| nodes != before).map(NonZeroU32::get),
            alarms,
            has_recovered: self.register_error.take().is_some(),
        }
    }

    /// Records that the register did not answer. Returns whether it answered before.
    pub(super) fn record_failure(&mut self, why: String) -> bool {
        self.failures = self.failures.saturating_add(1);
        self.register_error.replace(why).is_none()
    }

    /// Sets why pushes fail, `None` if they succeed. Returns the previous value.
    pub(super) fn set_push_error(&mut self, why: Option<String>) -> Option<String> {
        std::mem::replace(&mut self.push_error, why)
    }

    pub(super) const fn record_progress(
        &mut self,
        cursor: Option<RegisterCursor>,
        not_understood: usize,
        unheard: (usize, u64),
    ) {
        self.applied_cursor = cursor;
        self.unsupported_entries = not_understood;
        self.pending_counts = unheard;
    }

    pub(super) fn view(&self, id: NodeId, fingerprint: u64) -> FleetView {
        let now = Instant::now();
        let since = |then: Instant| {
            let nanos = now.saturating_duration_since(then).as_nanos();
            Nanos::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        };
        let empty = MemberList::default();
        let members = self.members.as_ref();
        let waited = members
            .map(|(_, at)| *at)
            .or(self.started_at)
            .map_or(Nanos::ZERO, since);
        let members = members.map_or(&empty, |(members, _)| members);
        let own = members
            .nodes
            .iter()
            .find(|member| member.heartbeat.node == id);
        let own = own.map(|member| member.heartbeat.clone());
        let nodes = members.nodes.iter().map(|member| FleetNode {
            beat: member.heartbeat.clone(),
            age: member.age.saturating_add(waited),
            is_self: member.heartbeat.node == id,
            mismatch: match &own {
                Some(own) => mismatch(&member.heartbeat, own),
                None => {
                    (member.heartbeat.secret_fingerprint != fingerprint).then_some(Mismatch::Secret)
                }
            },
        });
        let [secret, policy] = self.alarms;
        FleetView {
            nodes: nodes.collect(),
            unreadable_nodes: members.unreadable,
            load: members.load,
            mismatches: [secret.active_count(), policy.active_count()],
            controls_version: self.applied_cursor.map_or(0, |cursor| cursor.version),
            pending_changes: self.pending_counts.0,
            discarded_changes: self.pending_counts.1,
            unsupported_entries: self.unsupported_entries,
            beat_age: waited,
            failures: self.failures,
            error: self
                .register_error
                .clone()
                .or_else(|| self.push_error.clone()),
        }
    }
}

/// How a node differs. Policy digests depend on the secret, so they are compared only if the secrets match.
fn mismatch(other: &Heartbeat, own: &Heartbeat) -> Option<Mismatch> {
    if other.secret_fingerprint != own.secret_fingerprint {
        return Some(Mismatch::Secret);
    }
    (other.policy_fingerprint != own.policy_fingerprint).then_some(Mismatch::Policy)
}

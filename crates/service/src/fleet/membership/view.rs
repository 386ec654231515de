//! What is known of the fleet, as it was last seen.
//!
//! Must not know: registers, how it is told.

use std::num::NonZeroU32;

use tokio::time::Instant;
use tollgate_core::Nanos;
use tollgate_store::register::{Beat, Load, Mark, NodeId, Roll};

use super::MembershipSettings;
use super::alarm::{Alarm, AlarmChange, Mismatch};

/// What is known, and since when.
#[derive(Debug, Default)]
pub(super) struct FleetState {
    roll: Option<(Roll, Instant)>,
    alarms: [Alarm; 2],
    /// Why the register did not answer; `None` while it does.
    trouble: Option<String>,
    /// Why it does not take what is said here, although it answers.
    untold: Option<String>,
    failures: u64,
    heard: Option<Mark>,
    not_understood: usize,
    unheard: (usize, u64),
    began: Option<Instant>,
}

/// Everything that is known of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetView {
    /// Who is there, by number; those whose life ended since are still in it.
    pub fellows: Vec<FleetNode>,
    /// Nodes that are there and of which nothing else can be read.
    pub unread: usize,
    /// What all of them have to do.
    pub load: Load,
    /// How many nodes have another secret, and another policy, if that is alarming: in the order of [`Mismatch::ALL`](super::Mismatch::ALL).
    pub mismatches: [usize; 2],
    /// The version of what operators said that is in force here; 0 if nothing was ever said.
    pub controls_version: u64,
    /// How much was said here that the register has not heard yet.
    pub waiting: usize,
    /// How much was said here that it will never hear.
    pub left_out: u64,
    /// How many entries a later version has put, which this one does not understand.
    pub not_understood: usize,
    /// How long ago the register answered a beat, or since when it has been asked without an answer.
    pub beat_age: Nanos,
    /// How often it did not answer.
    pub failures: u64,
    /// Why it does not answer now, or does not take what is said here.
    pub trouble: Option<String>,
}

/// One of the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetNode {
    /// What it said of itself.
    pub beat: Beat,
    /// How long ago.
    pub age: Nanos,
    /// Whether it is this one.
    pub is_self: bool,
    /// What it has differently from this one.
    pub differs: Option<Mismatch>,
}

/// What is different since the last beat, to be logged.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FleetChanges {
    pub(super) nodes: Option<u32>,
    pub(super) alarms: Vec<(Mismatch, AlarmChange, usize)>,
    /// Whether the register had not answered before.
    pub(super) is_back: bool,
}

impl FleetState {
    pub(super) fn began(&mut self, now: Instant) {
        self.began.get_or_insert(now);
    }

    pub(super) fn nodes(&self) -> Option<NonZeroU32> {
        let (roll, _) = self.roll.as_ref()?;
        NonZeroU32::new(u32::try_from(roll.count()).unwrap_or(u32::MAX))
    }

    /// Everybody was heard.
    pub(super) fn see(
        &mut self,
        roll: Roll,
        own: &Beat,
        settings: &MembershipSettings,
        now: Instant,
    ) -> FleetChanges {
        let before = self.nodes();
        let differing = Mismatch::ALL.map(|what| {
            let fellows = roll.nodes.iter();
            fellows
                .filter(|seen| differs(&seen.beat, own) == Some(what))
                .count()
        });
        let patience = [settings.secret_patience, settings.policy_patience];
        let looked = Mismatch::ALL.into_iter().zip(&mut self.alarms);
        let alarms = looked
            .zip(differing.into_iter().zip(patience))
            .filter_map(|((what, alarm), (differing, patience))| {
                Some((what, alarm.look(differing, patience)?, differing))
            })
            .collect();
        self.roll = Some((roll, now));
        let nodes = self.nodes();
        FleetChanges {
            nodes: nodes.filter(|_| nodes != before).map(NonZeroU32::get),
            alarms,
            is_back: self.trouble.take().is_some(),
        }
    }

    /// The register did not answer. Answers whether it did before.
    pub(super) fn fail(&mut self, why: String) -> bool {
        self.failures = self.failures.saturating_add(1);
        self.trouble.replace(why).is_none()
    }

    /// What is said here is taken, or why not. Answers why it was not before.
    pub(super) fn untold(&mut self, why: Option<String>) -> Option<String> {
        std::mem::replace(&mut self.untold, why)
    }

    pub(super) const fn note(
        &mut self,
        heard: Option<Mark>,
        not_understood: usize,
        unheard: (usize, u64),
    ) {
        self.heard = heard;
        self.not_understood = not_understood;
        self.unheard = unheard;
    }

    pub(super) fn view(&self, id: NodeId, fingerprint: u64) -> FleetView {
        let now = Instant::now();
        let since = |then: Instant| {
            let nanos = now.saturating_duration_since(then).as_nanos();
            Nanos::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        };
        let nobody = Roll::default();
        let roll = self.roll.as_ref();
        let waited = roll
            .map(|(_, at)| *at)
            .or(self.began)
            .map_or(Nanos::ZERO, since);
        let roll = roll.map_or(&nobody, |(roll, _)| roll);
        let own = roll.nodes.iter().find(|seen| seen.beat.node == id);
        let own = own.map(|seen| seen.beat.clone());
        let fellows = roll.nodes.iter().map(|seen| FleetNode {
            beat: seen.beat.clone(),
            age: seen.age.saturating_add(waited),
            is_self: seen.beat.node == id,
            differs: match &own {
                Some(own) => differs(&seen.beat, own),
                None => (seen.beat.fingerprint != fingerprint).then_some(Mismatch::Secret),
            },
        });
        let [secret, policy] = self.alarms;
        FleetView {
            fellows: fellows.collect(),
            unread: roll.unread,
            load: roll.load,
            mismatches: [secret.alarming(), policy.alarming()],
            controls_version: self.heard.map_or(0, |mark| mark.version),
            waiting: self.unheard.0,
            left_out: self.unheard.1,
            not_understood: self.not_understood,
            beat_age: waited,
            failures: self.failures,
            trouble: self.trouble.clone().or_else(|| self.untold.clone()),
        }
    }
}

/// What a node has differently. Digests of policies are keyed by the secret: with another one they say nothing.
fn differs(fellow: &Beat, own: &Beat) -> Option<Mismatch> {
    if fellow.fingerprint != own.fingerprint {
        return Some(Mismatch::Secret);
    }
    (fellow.policy != own.policy).then_some(Mismatch::Policy)
}

//! The operators' overrides for decisions: a snapshot that is compiled for one generation and replaced as a whole.
//!
//! Without overrides a decision only loads a flag. Must not know: who set the overrides, how they are stored.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::{ArcSwapOption, Guard};
use tollgate_core::{Outcome, Timestamp};
use tollgate_policy::model::{IpNet, Mode, OverloadSpec, Percent, ShedMechanism};
use tollgate_policy::rules::{Rule, Rules, SelectedQuota};

/// The mode override of one limit, or of all limits. It can only weaken the policy's mode; the share of keys can be
/// any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct ModeOverride {
    pub(crate) mode: Mode,
    pub(crate) enforce: Option<Percent>,
}

impl ModeOverride {
    /// The strictest mode of a mechanism against overload. Such a mechanism has no keys, so a share of them means shadow.
    fn most_of_mechanism(self) -> Mode {
        match self.enforce {
            None | Some(Percent::ALL) => self.mode,
            Some(_) => self.mode.max(Mode::Shadow),
        }
    }
}

/// The expiry of an override. `None`: until it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OverrideExpiry(pub(crate) Option<Timestamp>);

impl OverrideExpiry {
    pub(crate) fn is_active(self, now: Timestamp) -> bool {
        self.0.is_none_or(|until| now < until)
    }

    /// The outcome of a blocked request.
    pub(crate) fn outcome(self, now: Timestamp) -> Outcome {
        match self.0 {
            Some(until) => Outcome::Deny {
                retry_after: until.since(now),
            },
            None => Outcome::Never,
        }
    }
}

/// All overrides of one generation.
#[derive(Debug, Default)]
pub(crate) struct OverrideSnapshot {
    pub(crate) global: ModeOverride,
    pub(crate) rules: HashMap<usize, RuleOverrides>,
    /// The switches of mechanisms against overload, by their index.
    pub(crate) mechanisms: [ModeOverride; ShedMechanism::ALL.len()],
    pub(crate) addresses: BlockedAddresses,
}

/// The overrides of one rule.
#[derive(Debug, Default)]
pub(crate) struct RuleOverrides {
    pub(crate) mode_override: ModeOverride,
    /// By keyed digest, because other nodes only know digests.
    pub(crate) keys: HashMap<[u8; 16], KeyOverrides>,
}

/// The overrides of one key.
#[derive(Debug, Default)]
pub(crate) struct KeyOverrides {
    pub(crate) blocked: Option<OverrideExpiry>,
    pub(crate) quota: Option<(OverrideExpiry, Box<[Option<SelectedQuota>]>)>,
}

/// Blocked addresses and networks.
#[derive(Debug, Default)]
pub(crate) struct BlockedAddresses {
    blocked: HashMap<IpNet, OverrideExpiry>,
    /// The prefix lengths of all blocked networks.
    lengths: Vec<(bool, u8)>,
}

impl OverrideSnapshot {
    /// Whether all limits, lists and blocks are off.
    pub(crate) fn is_off(&self) -> bool {
        self.global.mode == Mode::Off
    }

    /// Whether there are no overrides.
    pub(crate) fn is_empty(&self) -> bool {
        self.global == ModeOverride::default()
            && self.rules.is_empty()
            && self.mechanisms == [ModeOverride::default(); ShedMechanism::ALL.len()]
            && self.addresses.blocked.is_empty()
    }

    /// The mode of a rule, and the share of its keys that it is enforced for.
    pub(crate) fn mode_of(&self, index: usize, rule: &Rule) -> (Mode, Percent) {
        let mode_override = self
            .rules
            .get(&index)
            .map(|overrides| overrides.mode_override);
        let mode_override = mode_override.unwrap_or_default();
        let mode = rule.mode.max(mode_override.mode).max(self.global.mode);
        let share = mode_override.enforce.unwrap_or(rule.enforce);
        let max = self.global.enforce.unwrap_or(Percent::ALL);
        (mode, share.min(max))
    }

    /// What a policy says about overload, weakened by switches.
    pub(crate) fn overload(&self, spec: OverloadSpec) -> OverloadSpec {
        let global = self.global.most_of_mechanism();
        spec.weakened(|mechanism| {
            let switch = self.mechanisms.get(mechanism.index()).copied();
            switch.unwrap_or_default().most_of_mechanism().max(global)
        })
    }

    pub(crate) fn key_overrides(
        &self,
        rules: &Rules,
        rule: usize,
        key: &[u8],
    ) -> Option<&KeyOverrides> {
        let keys = &self.rules.get(&rule)?.keys;
        // The digest is only computed if some key has an override.
        let keys = Some(keys).filter(|keys| !keys.is_empty())?;
        keys.get(&rules.digest(key))
    }
}

impl KeyOverrides {
    pub(crate) fn blocked(&self, now: Timestamp) -> Option<OverrideExpiry> {
        self.blocked.filter(|until| until.is_active(now))
    }

    pub(crate) fn has_quota(&self, now: Timestamp) -> bool {
        let quota = self.quota.as_ref();
        quota.is_some_and(|(until, _)| until.is_active(now))
    }

    /// The quota of this key under one of the rule's meters.
    pub(crate) fn quota(&self, meter: usize, now: Timestamp) -> Option<SelectedQuota> {
        let (until, quotas) = self.quota.as_ref()?;
        quotas
            .get(meter)
            .copied()
            .flatten()
            .filter(|_| until.is_active(now))
    }
}

impl BlockedAddresses {
    pub(crate) fn insert(&mut self, network: IpNet, until: OverrideExpiry) {
        let length = (network.addr().is_ipv4(), network.prefix_len());
        if !self.lengths.contains(&length) {
            self.lengths.push(length);
        }
        self.blocked.insert(network, until);
    }

    /// The longest block that an address falls under.
    pub(crate) fn find(&self, address: IpAddr, now: Timestamp) -> Option<OverrideExpiry> {
        let address = address.to_canonical();
        let of_kind = |(v4, _): &&(bool, u8)| *v4 == address.is_ipv4();
        let blocks = self.lengths.iter().filter(of_kind).filter_map(|(_, bits)| {
            let network = IpNet::new(address, *bits).ok()?.trunc();
            self.blocked.get(&network).copied()
        });
        blocks
            .filter(|until| until.is_active(now))
            .max_by_key(|until| until.0.map_or(u64::MAX, Timestamp::as_nanos))
    }
}

/// The place in a generation that holds its overrides.
#[derive(Debug, Default)]
pub(crate) struct OverrideSlot {
    is_used: AtomicBool,
    /// Increases with every change.
    version: AtomicU64,
    snapshot: ArcSwapOption<OverrideSnapshot>,
}

impl OverrideSlot {
    /// The current snapshot, if there are overrides.
    pub(crate) fn read(&self) -> Option<Guard<Option<Arc<OverrideSnapshot>>>> {
        self.is_used
            .load(Ordering::Acquire)
            .then(|| self.snapshot.load())
    }

    /// Replaces the snapshot, for every decision that starts afterwards.
    pub(crate) fn replace(&self, snapshot: OverrideSnapshot) {
        let is_used = !snapshot.is_empty();
        self.snapshot.store(is_used.then(|| Arc::new(snapshot)));
        self.is_used.store(is_used, Ordering::Release);
        self.bump();
    }

    /// The number of changes.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Invalidates cached denials.
    pub(crate) fn bump(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }
}

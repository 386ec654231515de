//! What operators have said, as decisions look it up: one snapshot, made for one generation and replaced as a whole.
//!
//! While nobody has said anything a decision pays for one load of a flag. Must not know: who said it and why, how it is
//! kept.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwapOption, Guard};
use tollgate_core::{Outcome, Timestamp};
use tollgate_policy::model::{IpNet, Mode, Percent};
use tollgate_policy::rules::{Chosen, Rule, Rules};

/// What is said about a limit, or about all of them: only ever less force than the policy gives it, except for the share
/// of keys, which may be any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Lever {
    pub(crate) mode: Mode,
    pub(crate) enforce: Option<Percent>,
}

/// Until when something holds. `None`: until it is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Until(pub(crate) Option<Timestamp>);

impl Until {
    pub(crate) fn holds(self, now: Timestamp) -> bool {
        self.0.is_none_or(|until| now < until)
    }

    /// What whoever is blocked until then hears.
    pub(crate) fn refusal(self, now: Timestamp) -> Outcome {
        match self.0 {
            Some(until) => Outcome::Deny {
                retry_after: until.since(now),
            },
            None => Outcome::Never,
        }
    }
}

/// Everything that is said about one generation.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    pub(crate) everything: Lever,
    pub(crate) rules: HashMap<usize, OfRule>,
    pub(crate) addresses: Addresses,
}

/// What is said about one rule.
#[derive(Debug, Default)]
pub(crate) struct OfRule {
    pub(crate) lever: Lever,
    /// By keyed digest: who says something about a key on another node does not tell it.
    pub(crate) keys: HashMap<[u8; 16], OfKey>,
}

/// What is said about one key of one rule.
#[derive(Debug, Default)]
pub(crate) struct OfKey {
    pub(crate) blocked: Option<Until>,
    pub(crate) quota: Option<(Until, Box<[Option<Chosen>]>)>,
}

/// Addresses that are refused.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    blocked: HashMap<IpNet, Until>,
    /// Every length that a blocked network has.
    lengths: Vec<(bool, u8)>,
}

impl Desk {
    /// Whether nothing is decided at all.
    pub(crate) fn is_off(&self) -> bool {
        self.everything.mode == Mode::Off
    }

    /// Whether anything is said.
    pub(crate) fn is_empty(&self) -> bool {
        self.everything == Lever::default()
            && self.rules.is_empty()
            && self.addresses.blocked.is_empty()
    }

    /// How a rule stands, and for which share of its keys.
    pub(crate) fn stand(&self, index: usize, rule: &Rule) -> (Mode, Percent) {
        let lever = self.rules.get(&index).map(|of| of.lever);
        let lever = lever.unwrap_or_default();
        let mode = rule.mode.max(lever.mode).max(self.everything.mode);
        let share = lever.enforce.unwrap_or(rule.enforce);
        let most = self.everything.enforce.unwrap_or(Percent::ALL);
        (mode, share.min(most))
    }

    pub(crate) fn of_key(&self, rules: &Rules, rule: usize, key: &[u8]) -> Option<&OfKey> {
        let keys = &self.rules.get(&rule)?.keys;
        // A digest is made only where something is said about any key.
        let keys = Some(keys).filter(|keys| !keys.is_empty())?;
        keys.get(&rules.digest(key))
    }
}

impl OfKey {
    pub(crate) fn blocked(&self, now: Timestamp) -> Option<Until> {
        self.blocked.filter(|until| until.holds(now))
    }

    pub(crate) fn has_quota(&self, now: Timestamp) -> bool {
        let quota = self.quota.as_ref();
        quota.is_some_and(|(until, _)| until.holds(now))
    }

    /// The quota that one of the rule's meters has for this key.
    pub(crate) fn quota(&self, meter: usize, now: Timestamp) -> Option<Chosen> {
        let (until, quotas) = self.quota.as_ref()?;
        quotas
            .get(meter)
            .copied()
            .flatten()
            .filter(|_| until.holds(now))
    }
}

impl Addresses {
    pub(crate) fn insert(&mut self, network: IpNet, until: Until) {
        let length = (network.addr().is_ipv4(), network.prefix_len());
        if !self.lengths.contains(&length) {
            self.lengths.push(length);
        }
        self.blocked.insert(network, until);
    }

    /// The block that an address falls under and that lasts longest.
    pub(crate) fn find(&self, address: IpAddr, now: Timestamp) -> Option<Until> {
        let address = address.to_canonical();
        let of_kind = |(v4, _): &&(bool, u8)| *v4 == address.is_ipv4();
        let found = self.lengths.iter().filter(of_kind).filter_map(|(_, bits)| {
            let network = IpNet::new(address, *bits).ok()?.trunc();
            self.blocked.get(&network).copied()
        });
        found
            .filter(|until| until.holds(now))
            .max_by_key(|until| until.0.map_or(u64::MAX, Timestamp::as_nanos))
    }
}

/// Where a generation finds what is said about it.
#[derive(Debug, Default)]
pub(crate) struct DeskSlot {
    is_said: AtomicBool,
    desk: ArcSwapOption<Desk>,
}

impl DeskSlot {
    /// Nothing is said, or this.
    pub(crate) fn read(&self) -> Option<Guard<Option<Arc<Desk>>>> {
        self.is_said
            .load(Ordering::Acquire)
            .then(|| self.desk.load())
    }

    /// Holds for every decision that begins after this.
    pub(crate) fn put(&self, desk: Desk) {
        let is_said = !desk.is_empty();
        self.desk.store(is_said.then(|| Arc::new(desk)));
        self.is_said.store(is_said, Ordering::Release);
    }
}

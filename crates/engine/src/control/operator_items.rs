//! One operator item (a switch, an override or a block) with a name that is the same on every node.
//!
//! A switch that equals the policy's setting is not an item, so undoing every change leaves no items. Must not know:
//! how items are encoded or sent.

use std::collections::HashMap;
use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;
use tollgate_core::Timestamp;

use super::audit_log::OperatorChange;
use super::operator_state::{
    Block, KeyIdentity, KeyOverride, MAX_BLOCKS, MAX_OVERRIDES, MAX_SWITCHES, OperatorState, Switch,
};

/// One item in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OperatorItem {
    /// The switch of a limit, or of all limits.
    Switch(Option<Box<str>>, Switch),
    Override(KeyOverride),
    Block(Block),
}

impl OperatorItem {
    /// The item's name in the register. It must be the same on nodes of every version.
    pub(super) fn name(&self) -> Box<str> {
        match self {
            Self::Switch(None, _) => "switch".into(),
            Self::Switch(Some(limit), _) => format!("switch/{limit}").into(),
            Self::Override(one) => key_item_name("override", &one.key),
            Self::Block(Block::Key { key, .. }) => key_item_name("block", key),
            Self::Block(Block::Address { address, .. }) => format!("address/{address}").into(),
        }
    }

    pub(super) fn until(&self) -> Option<u64> {
        match self {
            Self::Switch(..) => None,
            Self::Override(one) => one.until,
            Self::Block(block) => block.until(),
        }
    }

    /// Whether both have the same effect, apart from the expiry and the displayed key.
    pub(super) fn has_same_effect(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Override(one), Self::Override(two)) => {
                one.key.is_same_key(&two.key) && one.quota == two.quota
            }
            (Self::Block(_), Self::Block(_)) => self.name() == other.name(),
            _ => self == other,
        }
    }

    /// The item's key, if it has one.
    pub(super) fn key(&self) -> Option<&KeyIdentity> {
        match self {
            Self::Override(KeyOverride { key, .. }) | Self::Block(Block::Key { key, .. }) => {
                Some(key)
            }
            _ => None,
        }
    }

    fn key_mut(&mut self) -> Option<&mut KeyIdentity> {
        match self {
            Self::Override(KeyOverride { key, .. }) | Self::Block(Block::Key { key, .. }) => {
                Some(key)
            }
            _ => None,
        }
    }

    /// Displays the key as this node displayed it before.
    pub(super) fn copy_shown_key(&mut self, before: &Self) {
        if let (Some(key), Some(before)) = (self.key_mut(), before.key()) {
            key.shown.clone_from(&before.shown);
        }
    }

    /// The audit event of setting this item.
    pub(super) fn to_change(&self) -> OperatorChange {
        let until = self.until().map(Timestamp::from_nanos);
        match self.clone() {
            Self::Switch(limit, to) => OperatorChange::Switched { limit, to },
            Self::Override(KeyOverride { key, quota, .. }) => OperatorChange::Overridden {
                limit: key.limit,
                key: key.shown,
                quota,
                until,
            },
            Self::Block(Block::Key { key, .. }) => OperatorChange::Blocked {
                limit: Some(key.limit),
                target: key.shown,
                until,
            },
            Self::Block(Block::Address { address, .. }) => OperatorChange::Blocked {
                limit: None,
                target: address.into(),
                until,
            },
        }
    }

    /// The audit event of removing this item.
    pub(super) fn to_removal(&self) -> OperatorChange {
        match self.clone() {
            Self::Switch(limit, _) => OperatorChange::Switched {
                limit,
                to: Switch::default(),
            },
            Self::Override(KeyOverride { key, .. }) => OperatorChange::OverrideLifted {
                limit: key.limit,
                key: key.shown,
            },
            Self::Block(Block::Key { key, .. }) => OperatorChange::Unblocked {
                limit: Some(key.limit),
                target: key.shown,
            },
            Self::Block(Block::Address { address, .. }) => OperatorChange::Unblocked {
                limit: None,
                target: address.into(),
            },
        }
    }
}

/// Names a key by its digest and its recipe: the same value of another attribute is another key.
fn key_item_name(kind: &str, key: &KeyIdentity) -> Box<str> {
    let mut hasher = SipHasher13::new();
    hasher.write(key.made_of.as_bytes());
    let made_of = hasher.finish() >> 32;
    format!("{kind}/{}/{}.{made_of:08x}", key.limit, key.key).into()
}

/// The name of the entry that announces a reset.
pub(super) fn reset_entry_name(key: &KeyIdentity) -> Box<str> {
    key_item_name("reset", key)
}

/// Whether an entry announces a reset.
pub(super) fn is_reset_entry(name: &str) -> bool {
    name.starts_with("reset/")
}

/// All items in force by name, in the order in which they were set.
#[derive(Debug)]
pub(super) struct OperatorItems {
    index: HashMap<Box<str>, usize>,
    items: Vec<Option<OperatorItem>>,
}

impl OperatorItems {
    pub(super) fn from_state(controls: OperatorState) -> Self {
        let OperatorState {
            everything,
            limits,
            overrides,
            blocks,
        } = controls;
        let switches = limits.into_iter().map(|(limit, to)| (Some(limit), to));
        let switches = std::iter::once((None, everything)).chain(switches);
        let switches = switches
            .filter(|(_, to)| *to != Switch::default())
            .map(|(limit, to)| OperatorItem::Switch(limit, to));
        let items = switches
            .chain(overrides.into_iter().map(OperatorItem::Override))
            .chain(blocks.into_iter().map(OperatorItem::Block));
        let mut all = Self {
            index: HashMap::new(),
            items: Vec::new(),
        };
        for item in items {
            all.put(item);
        }
        all
    }

    pub(super) fn into_state(self) -> OperatorState {
        let mut controls = OperatorState::default();
        for item in self.items.into_iter().flatten() {
            match item {
                OperatorItem::Switch(None, to) => controls.everything = to,
                OperatorItem::Switch(Some(limit), to) => {
                    controls.limits.insert(limit, to);
                }
                OperatorItem::Override(one) => controls.overrides.push(one),
                OperatorItem::Block(block) => controls.blocks.push(block),
            }
        }
        controls
    }

    pub(super) fn get(&self, name: &str) -> Option<&OperatorItem> {
        let position = *self.index.get(name)?;
        self.items.get(position)?.as_ref()
    }

    /// Replaces the item of the same name, or appends a new one.
    pub(super) fn put(&mut self, item: OperatorItem) {
        let name = item.name();
        let position = self.index.get(&name).copied();
        match position.and_then(|position| self.items.get_mut(position)) {
            Some(position) => *position = Some(item),
            None => {
                self.index.insert(name, self.items.len());
                self.items.push(Some(item));
            }
        }
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<OperatorItem> {
        let position = self.index.remove(name)?;
        self.items.get_mut(position)?.take()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.index.keys().map(|name| &**name)
    }

    /// Whether one more item of this type fits.
    pub(super) fn has_room_for(&self, item: &OperatorItem) -> bool {
        let (max, is_same): (_, fn(&OperatorItem) -> bool) = match item {
            OperatorItem::Switch(..) => {
                (MAX_SWITCHES, |one| matches!(one, OperatorItem::Switch(..)))
            }
            OperatorItem::Override(_) => (MAX_OVERRIDES, |one| {
                matches!(one, OperatorItem::Override(_))
            }),
            OperatorItem::Block(_) => (MAX_BLOCKS, |one| matches!(one, OperatorItem::Block(_))),
        };
        // The exact count is rarely needed.
        self.index.len() < max
            || self.index.contains_key(&item.name())
            || self
                .items
                .iter()
                .flatten()
                .filter(|one| is_same(one))
                .count()
                < max
    }

    /// The names of all items that differ.
    pub(super) fn changed_names(&self, other: &Self) -> Vec<Box<str>> {
        let mut names: Vec<Box<str>> = self
            .names()
            .filter(|name| self.get(name) != other.get(name))
            .chain(other.names().filter(|name| self.get(name).is_none()))
            .map(Box::from)
            .collect();
        names.sort();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Halt;

    fn key(limit: &str, made_of: &str) -> KeyIdentity {
        KeyIdentity {
            limit: limit.into(),
            made_of: made_of.into(),
            key: "0123456789abcdef0123456789abcdef".into(),
            shown: "alice".into(),
        }
    }

    fn all() -> OperatorState {
        let until = None;
        let quota = "5/s".into();
        OperatorState {
            everything: Switch::halted(Halt::Shadow),
            limits: [("api".into(), Switch::halted(Halt::Off))].into(),
            overrides: vec![KeyOverride {
                key: key("api", "ip"),
                quota,
                until,
            }],
            blocks: vec![
                Block::Key {
                    key: key("api", "ip"),
                    until,
                },
                Block::Address {
                    address: "10.0.0.0/8".into(),
                    until,
                },
            ],
        }
    }

    /// If this fails, nodes of two versions cannot remove each other's items.
    #[test]
    fn names_are_the_same_in_every_version() {
        let items = OperatorItems::from_state(all());
        let mut names: Vec<&str> = items.names().collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "address/10.0.0.0/8",
                "block/api/0123456789abcdef0123456789abcdef.ed7577ae",
                "override/api/0123456789abcdef0123456789abcdef.ed7577ae",
                "switch",
                "switch/api",
            ]
        );
        let other = key_item_name("block", &key("api", "header.user"));
        assert!(!names.contains(&&*other), "another key spec");
    }

    #[test]
    fn items_convert_to_state_and_back() {
        assert_eq!(OperatorItems::from_state(all()).into_state(), all());
        assert_eq!(
            OperatorItems::from_state(OperatorState::default())
                .names()
                .count(),
            0,
            "a default state has no items"
        );
        let mut items = OperatorItems::from_state(all());
        for name in items.names().map(Box::from).collect::<Vec<Box<str>>>() {
            assert!(items.remove(&name).is_some());
        }
        assert_eq!(items.into_state(), OperatorState::default());
    }

    #[test]
    fn changed_names_are_those_that_were_set_changed_or_removed() {
        let mut next = all();
        next.everything = Switch::default();
        next.blocks.pop();
        next.overrides[0].quota = "6/s".into();
        next.limits.insert("new".into(), Switch::halted(Halt::Off));
        let differences =
            OperatorItems::from_state(all()).changed_names(&OperatorItems::from_state(next));
        let changed: Vec<&str> = differences.iter().map(|name| &**name).collect();
        assert_eq!(changed.len(), 4);
        assert_eq!(
            (changed[0], changed[2], changed[3]),
            ("address/10.0.0.0/8", "switch", "switch/new")
        );
        assert!(
            OperatorItems::from_state(all())
                .changed_names(&OperatorItems::from_state(all()))
                .is_empty()
        );
    }
}

//! Operator blocks of keys, addresses and networks.
//!
//! Must not know: how decisions look blocks up.

use tollgate_core::{Nanos, Timestamp};

use super::lookup::{normalize_network, resolve_key, rule_index};
use super::{AppliedChange, Attribution, Block, Control, OperatorChange, OperatorError};
use crate::store::StateStore;

impl<S: StateStore> Control<'_, S> {
    /// Denies every request under a limit with this key; in a hierarchy, with this key at any level.
    ///
    /// # Errors
    /// The limit or key does not exist, there are too many blocks, or the attribution is missing.
    pub fn block_key(
        &self,
        limit: &str,
        key: &[&str],
        duration: Option<Nanos>,
        attribution: Attribution<'_>,
    ) -> Result<(), OperatorError> {
        self.apply_change(attribution, |generation, state, now| {
            let index = rule_index(generation, limit)?;
            let key = resolve_key(generation, index, limit, key)?;
            let until = duration.map(|duration| now.after(duration));
            state.block(Block::Key {
                key: key.clone(),
                until: until.map(Timestamp::as_nanos),
            })?;
            let change = OperatorChange::Blocked {
                limit: Some(limit.into()),
                target: key.shown.clone(),
                until,
            };
            Ok(AppliedChange {
                change,
                key: Some(key),
            })
        })
    }

    /// Denies every request from an address or a network (`192.0.2.7`, `10.0.0.0/8`), regardless of the policy.
    ///
    /// # Errors
    /// The address is invalid, there are too many blocks, or the attribution is missing.
    pub fn block_address(
        &self,
        address: &str,
        duration: Option<Nanos>,
        attribution: Attribution<'_>,
    ) -> Result<(), OperatorError> {
        self.apply_change(attribution, |_, state, now| {
            let network = normalize_network(address)?;
            let until = duration.map(|duration| now.after(duration));
            state.block(Block::Address {
                address: network.clone(),
                until: until.map(Timestamp::as_nanos),
            })?;
            let target = network.into();
            let limit = None;
            Ok(OperatorChange::Blocked {
                limit,
                target,
                until,
            }
            .into())
        })
    }

    /// Removes the block of a key. To end a block by a `penalty`, use [`reset`](Self::reset).
    ///
    /// # Errors
    /// The key is not blocked, or the attribution is missing.
    pub fn unblock_key(
        &self,
        limit: &str,
        key: &[&str],
        attribution: Attribution<'_>,
    ) -> Result<(), OperatorError> {
        self.apply_change(attribution, |generation, state, _| {
            let index = rule_index(generation, limit)?;
            let key = resolve_key(generation, index, limit, key)?;
            let is_target =
                |block: &Block| matches!(block, Block::Key { key: other, .. } if other.is_same_key(&key));
            state.unblock(is_target)?;
            let change = OperatorChange::Unblocked {
                limit: Some(limit.into()),
                target: key.shown.clone(),
            };
            Ok(AppliedChange {
                change,
                key: Some(key),
            })
        })
    }

    /// Removes the block of an address or network.
    ///
    /// # Errors
    /// It is not blocked, or the attribution is missing.
    pub fn unblock_address(
        &self,
        address: &str,
        attribution: Attribution<'_>,
    ) -> Result<(), OperatorError> {
        self.apply_change(attribution, |_, state, _| {
            let network = normalize_network(address)?;
            let is_target = |block: &Block| {
                matches!(block, Block::Address { address, .. } if *address == network)
            };
            state.unblock(is_target)?;
            let target = network.into();
            Ok(OperatorChange::Unblocked { limit: None, target }.into())
        })
    }
}

//! Penalties and rewards by operators: charges or refunds units of one key under one limit.
//!
//! A charge never denies and stops at the limit's overdraft; a refund stops at a full bucket. An adjustment is prepared, carried
//! out by the store that has the key's states, and recorded only then. Must not know: transports, the shared store of a fleet.

use std::fmt;
use std::num::NonZeroU64;

use tollgate_policy::attributes::{Attribute, Attributes};
use tollgate_policy::rules::{KeyBuffer, MeterRef, MeterRole, SelectedQuota};
use tollgate_store::{
    KeyTooLong, Op, QuotaCheck, StoreError, StoreErrorKind, StoreKey, StoreReply,
};

use super::attribution::check_attribution;
use super::lookup::{resolve_key, rule_index};
use super::operator_state::key_spec_text;
use super::{AppliedChange, Attribution, Control, KeyIdentity, OperatorChange, OperatorError};
use crate::generation::Generation;
use crate::key_states::KeyState;
use crate::meter_state::NoAttributes;
use crate::store::StateStore;

/// Units that an operator charges or refunds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitAdjustment {
    /// A penalty: as if the key had used these units.
    Charge(NonZeroU64),
    /// A reward: as if the key had not used these units.
    Refund(NonZeroU64),
}

/// One key of one limit.
#[derive(Clone, Copy)]
#[expect(
    missing_debug_implementations,
    reason = "attributes are a trait object without `Debug`"
)]
pub struct AdjustedKey<'a> {
    /// The name of the limit.
    pub limit: &'a str,
    /// The values of the key, in the order of its parts.
    pub values: &'a [&'a str],
    /// The attributes that select the quota, for limits whose quota depends on the request.
    pub attributes: Option<&'a dyn Attributes>,
}

/// Which of a key's states an adjustment concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdjustmentScope {
    /// All of them: without a fleet.
    All,
    /// Those that a fleet shares.
    Shared,
    /// Those that belong to this process also in a fleet.
    ThisNode,
}

/// A checked adjustment that is not carried out yet.
#[derive(Debug)]
pub struct PreparedAdjustment {
    adjustment: UnitAdjustment,
    key: KeyIdentity,
    states: Vec<AdjustedState>,
}

/// One state that an adjustment changes.
#[derive(Debug)]
struct AdjustedState {
    state: KeyState,
    /// Whether the state belongs to this process also in a fleet.
    is_local: bool,
}

impl UnitAdjustment {
    const fn op(self) -> Op {
        match self {
            Self::Charge(units) => Op::ChargeAlways(units.get()),
            Self::Refund(units) => Op::Credit(units.get()),
        }
    }
}

impl fmt::Display for UnitAdjustment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Charge(units) => write!(f, "{units} units charged to"),
            Self::Refund(units) => write!(f, "{units} units refunded to"),
        }
    }
}

impl PreparedAdjustment {
    /// The checks that carry it out, with their slot keys.
    ///
    /// # Errors
    /// A key is too long.
    pub fn checks(
        &self,
        scope: AdjustmentScope,
    ) -> Result<(Vec<Option<StoreKey<'_>>>, Vec<QuotaCheck<'_>>), StoreError> {
        let too_long =
            |error: KeyTooLong| StoreError::new(StoreErrorKind::BadRequest, error.to_string());
        let is_concerned = |state: &&AdjustedState| match scope {
            AdjustmentScope::All => true,
            AdjustmentScope::Shared => !state.is_local,
            AdjustmentScope::ThisNode => state.is_local,
        };
        let mut slot_keys = Vec::new();
        let mut checks = Vec::new();
        for AdjustedState { state, .. } in self.states.iter().filter(is_concerned) {
            let slot_key = state.slot_key.as_deref().map(StoreKey::new);
            slot_keys.push(slot_key.transpose().map_err(too_long)?);
            checks.push(QuotaCheck {
                key: StoreKey::new(&state.key).map_err(too_long)?,
                limit: &state.limit,
                op: self.adjustment.op(),
            });
        }
        Ok((slot_keys, checks))
    }

    /// Carries it out in a store that answers at once. Returns the fewest units that are left, if any state is concerned.
    ///
    /// # Errors
    /// The store failed.
    pub fn apply(
        &self,
        store: &impl StateStore,
        scope: AdjustmentScope,
    ) -> Result<Option<u64>, StoreError> {
        let (_, checks) = self.checks(scope)?;
        let mut replies = vec![StoreReply::EMPTY; checks.len()];
        if !checks.is_empty() {
            // Charges and refunds are never denied.
            let _outcome = store.decide(&checks, &mut replies)?;
        }
        Ok(fewest_remaining(&replies))
    }

    /// Whether it gives units back, so that cached denials are wrong.
    #[must_use]
    pub const fn is_refund(&self) -> bool {
        matches!(self.adjustment, UnitAdjustment::Refund(_))
    }
}

/// The fewest units that are left under any of these replies.
#[must_use]
pub fn fewest_remaining(replies: &[StoreReply]) -> Option<u64> {
    replies.iter().map(|reply| reply.status.remaining).min()
}

impl<S: StateStore> Control<'_, S> {
    /// Checks an adjustment of a key's units. Nothing is changed yet.
    ///
    /// # Errors
    /// The limit or key does not exist, the limit does not count units, its quota depends on attributes that are not given, or
    /// the attribution is missing.
    pub fn prepare_adjustment(
        &self,
        key: AdjustedKey<'_>,
        adjustment: UnitAdjustment,
        attribution: Attribution<'_>,
    ) -> Result<PreparedAdjustment, OperatorError> {
        check_attribution(attribution)?;
        let generation = self.engine.generation();
        let index = rule_index(&generation, key.limit)?;
        let identity = resolve_key(&generation, index, key.limit, key.values)?;
        let states = self.adjusted_states(&generation, index, key, &identity)?;
        Ok(PreparedAdjustment {
            adjustment,
            key: identity,
            states,
        })
    }

    /// Carries out an adjustment on this node alone, and records it. Returns the units that are left.
    ///
    /// # Errors
    /// The store failed. Nothing is changed or recorded then.
    pub fn adjust(
        &self,
        prepared: &PreparedAdjustment,
        attribution: Attribution<'_>,
    ) -> Result<u64, StoreError> {
        let remaining = prepared.apply(self.engine.store(), AdjustmentScope::All)?;
        self.record_adjustment(prepared, attribution);
        Ok(remaining.unwrap_or(0))
    }

    /// Records an adjustment that was carried out, and drops the cached denials that a refund makes wrong.
    pub fn record_adjustment(&self, prepared: &PreparedAdjustment, attribution: Attribution<'_>) {
        let (limit, key) = (prepared.key.limit.clone(), prepared.key.shown.clone());
        let change = OperatorChange::Adjusted {
            limit,
            key,
            adjustment: prepared.adjustment,
        };
        if prepared.is_refund() {
            self.engine.clear_cached_denials();
        }
        // Cannot fail: `prepare_adjustment` has checked the attribution.
        let _recorded = self.apply_change(attribution, |_, _, _| {
            Ok(AppliedChange {
                change,
                key: Some(prepared.key.clone()),
            })
        });
    }

    /// The states of a key that count units, each with the quota of the key.
    fn adjusted_states(
        &self,
        generation: &Generation,
        index: usize,
        key: AdjustedKey<'_>,
        identity: &KeyIdentity,
    ) -> Result<Vec<AdjustedState>, OperatorError> {
        let refuse = |reason| OperatorError::NotAdjustable {
            limit: key.limit.into(),
            reason,
        };
        let Some((rule, entry)) = generation.rule(index) else {
            return Err(refuse("the policy has changed"));
        };
        if entry.counts_values {
            return Err(refuse("it counts distinct values"));
        }
        let rules = generation.rules();
        let mut states = Vec::new();
        for (meter, (definition, state)) in rule.meters.iter().zip(&entry.meters).enumerate() {
            let meter_ref = MeterRef { rule: index, meter };
            let is_level = rules
                .key_spec(meter_ref)
                .is_some_and(|spec| *key_spec_text(spec) == *identity.made_of);
            let is_counted = matches!(definition.role, MeterRole::Main | MeterRole::Local);
            let mut buffer = KeyBuffer::new();
            let written = rules.write_key_of_values(meter_ref, key.values, &mut buffer);
            if !is_counted || !is_level || written.is_none() {
                continue;
            }
            if state.is_concurrency {
                return Err(refuse("it counts requests in progress, not units"));
            }
            let bytes = buffer.as_bytes().to_vec();
            let selected = self.quota_of_key(generation, meter_ref, key, &bytes)?;
            let Some(limit) = state.quota_without_wait(selected) else {
                continue;
            };
            let has_slot_key = rules.write_colocation_of_values(meter_ref, key.values, &mut buffer);
            states.push(AdjustedState {
                state: KeyState {
                    key: bytes,
                    slot_key: has_slot_key.then(|| buffer.as_bytes().to_vec()),
                    limit,
                },
                is_local: definition.role == MeterRole::Local,
            });
        }
        match states.is_empty() {
            true => Err(refuse("this key is not limited")),
            false => Ok(states),
        }
    }

    /// The quota of a key under a meter, as a request with the same attributes would get it.
    fn quota_of_key(
        &self,
        generation: &Generation,
        MeterRef { rule: index, meter }: MeterRef,
        key: AdjustedKey<'_>,
        bytes: &[u8],
    ) -> Result<SelectedQuota, OperatorError> {
        let rules = generation.rules();
        let overrides = generation.overrides().read();
        let snapshot = overrides.as_ref().and_then(|guard| guard.as_ref());
        let overridden = snapshot
            .and_then(|snapshot| snapshot.key_overrides(rules, index, bytes))
            .and_then(|key| key.quota(meter, self.engine.store().now()));
        if let Some(selected) = overridden {
            return Ok(selected);
        }
        let rule = rules.rules().get(index);
        let Some((rule, meter)) = rule.and_then(|rule| Some((rule, rule.meters.get(meter)?)))
        else {
            return Ok(SelectedQuota::Unlimited);
        };
        let request = key.attributes.unwrap_or(&NoAttributes);
        let route = request.get(&Attribute::Route);
        let variant = rule.selector.variant(request, route, bytes);
        let needs_request = rule.selector.depends_on_request(bytes) || meter.is_computed(variant);
        if needs_request && key.attributes.is_none() {
            return Err(OperatorError::MissingAttributes {
                limit: key.limit.into(),
            });
        }
        Ok(meter.select_quota(variant, request, route))
    }
}

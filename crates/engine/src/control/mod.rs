//! Operator controls: halt limits, enforce them for a share of keys, give a key another quota, block keys and
//! addresses, reset a key's usage, and charge or refund units.
//!
//! A change applies to the next decision. Only resets, charges and refunds need the store. Every change has an attribution, is logged and
//! is bounded. Changes survive reloads, for the limit of the same name. A switch can only weaken the policy: a limit
//! that the policy has in shadow stays in shadow. Must not know: transports, who may do what.

mod adjustment;
mod attribution;
mod audit_log;
mod blocks;
mod compile;
mod lookup;
mod operator_error;
mod operator_items;
mod operator_state;
mod override_quota;
mod register_codec;
mod register_outbox;
mod register_sync;
#[cfg(test)]
mod tests;

pub use adjustment::{
    AdjustedKey, AdjustmentScope, PreparedAdjustment, UnitAdjustment, fewest_remaining,
};
pub use attribution::Attribution;
pub use audit_log::{MAX_EVENTS, OperatorChange, OperatorEvent, UtcTime};
pub use operator_error::OperatorError;
pub use operator_state::{
    Block, Halt, KeyIdentity, KeyOverride, MAX_BLOCKS, MAX_OVERRIDES, OperatorState, Switch,
};
pub use register_outbox::{RegisterChanges, WakeCallback};
pub use register_sync::SyncOutcome;

pub(crate) use audit_log::AuditLog;
pub(crate) use compile::compile_snapshot;
pub(crate) use register_outbox::RegisterOutbox;

use tollgate_core::{Nanos, Timestamp};
use tollgate_store::StoreKey;

use crate::engine::Engine;
use crate::generation::Generation;
use crate::store::StateStore;
use attribution::{OwnedAttribution, check_attribution};
use lookup::{check_switch, resolve_key, rule_index};

/// The operator interface of an engine.
///
/// ```
/// use tollgate_engine::Engine;
/// use tollgate_engine::control::{Attribution, Halt, Switch};
/// use tollgate_policy::rules::Rules;
/// use tollgate_policy::source::SourceFormat;
/// use tollgate_store::MemoryStore;
///
/// let text = "limits: [{ name: logins, key: ip, rate: 10/min }]";
/// let policy = tollgate_policy::load(text, "policy.yaml", SourceFormat::Yaml)?;
/// let rules = Rules::compile(&policy, [7; 16]).map_err(|problems| format!("{problems:?}"))?;
/// let engine = Engine::new(rules, MemoryStore::for_keys(1_000)?)?;
///
/// let ada = Attribution { who: "ada", why: "logins fail since 14:02" };
/// engine.control().switch(Some("logins"), Switch::halted(Halt::Shadow), ada)?;
/// let error = engine.control().switch(Some("login"), Switch::default(), ada).unwrap_err();
/// assert_eq!(error.to_string(), "there is no limit `login`; did you mean `logins`?");
/// assert_eq!(engine.control().events()[0].to_string(), "ada: limit `logins` switched to shadow (logins fail since 14:02)");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Control<'a, S> {
    engine: &'a Engine<S>,
}

impl<'a, S: StateStore> Control<'a, S> {
    pub(crate) const fn new(engine: &'a Engine<S>) -> Self {
        Self { engine }
    }

    /// Invalidates the denials that a fleet has cached.
    pub fn clear_cached_denials(&self) {
        self.engine.clear_cached_denials();
    }

    /// Halts a limit or, without a name, all limits; or enforces it for another share of keys. To undo it, set the
    /// previous switch. A mechanism against overload has a switch as a limit has, under its
    /// [name](tollgate_policy::model::ShedMechanism::switch_name); it has no keys, so a share of them puts it into shadow.
    ///
    /// In a group that applies the narrowest limit, a limit that is switched off still hides the wider ones.
    ///
    /// With all limits `off`, lists and blocks are off too and nothing is denied. With all limits in shadow, lists and
    /// blocks still deny.
    ///
    /// # Errors
    /// The limit does not exist, or the attribution is missing.
    pub fn switch(
        &self,
        limit: Option<&str>,
        to: Switch,
        attribution: Attribution<'_>,
    ) -> Result<(), OperatorError> {
        self.apply_change(attribution, |generation, state, _| {
            match limit {
                None => state.everything = to,
                Some(name) => {
                    check_switch(generation, name)?;
                    state.limits.insert(name.into(), to);
                    state
                        .limits
                        .retain(|_, switch| *switch != Switch::default());
                }
            }
            let limit = limit.map(Box::from);
            Ok(OperatorChange::Switched { limit, to }.into())
        })
    }

    /// Gives one key of a limit another quota, with an expiry or until it is removed. The text uses the policy's syntax
    /// and the limit's own algorithm: `9000/min`, `9000/min burst 500`, `10/s, 1000/h` for several windows,
    /// `unlimited`, or the number of permits of a concurrency limit. The key's debt stays.
    ///
    /// # Errors
    /// The limit or key does not exist, the limit cannot count the quota, there are too many overrides, or the
    /// attribution is missing.
    pub fn override_key(
        &self,
        limit: &str,
        key: &[&str],
        quota: &str,
        duration: Option<Nanos>,
        attribution: Attribution<'_>,
    ) -> Result<(), OperatorError> {
        self.apply_change(attribution, |generation, state, now| {
            let index = rule_index(generation, limit)?;
            let named = resolve_key(generation, index, limit, key)?;
            operator_state::check_len("quota", quota, operator_state::MAX_QUOTA_BYTES)?;
            // Fail now, and not when the snapshot is compiled.
            override_quota::resolve_override(generation, index, quota)?;
            let entry = KeyOverride {
                key: named.clone(),
                quota: quota.trim().into(),
                until: duration.map(|duration| now.after(duration).as_nanos()),
            };
            let change = OperatorChange::Overridden {
                limit: limit.into(),
                key: entry.key.shown.clone(),
                quota: entry.quota.clone(),
                until: entry.until.map(Timestamp::from_nanos),
            };
            state
                .overrides
                .retain(|other| !other.key.is_same_key(&entry.key));
            if state.overrides.len() >= MAX_OVERRIDES {
                return Err(OperatorError::TooMany {
                    kind: "overrides",
                    max: MAX_OVERRIDES,
                });
            }
            state.overrides.push(entry);
            Ok(AppliedChange {
                change,
                key: Some(named),
            })
        })
    }

    /// Removes an override.
    ///
    /// # Errors
    /// The override does not exist, or the attribution is missing.
    pub fn remove_override(
        &self,
        limit: &str,
        key: &[&str],
        attribution: Attribution<'_>,
    ) -> Result<(), OperatorError> {
        self.apply_change(attribution, |generation, state, _| {
            let index = rule_index(generation, limit)?;
            let key = resolve_key(generation, index, limit, key)?;
            let before = state.overrides.len();
            state.overrides.retain(|other| !other.key.is_same_key(&key));
            if state.overrides.len() == before {
                return Err(OperatorError::NotFound { kind: "override" });
            }
            let change = OperatorChange::OverrideLifted {
                limit: limit.into(),
                key: key.shown.clone(),
            };
            Ok(AppliedChange {
                change,
                key: Some(key),
            })
        })
    }

    /// Resets a key's usage under a limit, including its candidate and a block by a `penalty`. In a hierarchy it resets
    /// the level of the key. Returns whether there was any usage. Values that a `distinct` limit has recorded stay
    /// recorded.
    ///
    /// # Errors
    /// The limit or key does not exist, or the attribution is missing.
    pub fn reset(
        &self,
        limit: &str,
        key: &[&str],
        attribution: Attribution<'_>,
    ) -> Result<bool, OperatorError> {
        let mut was_used = false;
        self.apply_change(attribution, |generation, _, _| {
            let index = rule_index(generation, limit)?;
            let named = resolve_key(generation, index, limit, key)?;
            was_used = self.erase(generation, limit, key);
            let change = OperatorChange::Reset {
                limit: limit.into(),
                key: named.shown.clone(),
                was_used,
            };
            Ok(AppliedChange {
                change,
                key: Some(named),
            })
        })?;
        Ok(was_used)
    }

    /// Everything in force now, to save it or to send it to other nodes.
    #[must_use]
    pub fn operator_state(&self) -> OperatorState {
        let mut state = self.engine.registry().operator_state.clone();
        state.expire(self.engine.store().now());
        state
    }

    /// Replaces everything in force by a [saved state](Self::operator_state) of another node or an earlier process.
    /// Settings of limits that the policy does not have are kept for a policy that has them.
    ///
    /// # Errors
    /// The state exceeds a bound, or the attribution is missing. Nothing changes then.
    pub fn restore(
        &self,
        saved: OperatorState,
        attribution: Attribution<'_>,
    ) -> Result<(), OperatorError> {
        self.apply_change(attribution, |_, state, _| {
            saved.check()?;
            *state = saved;
            Ok(OperatorChange::Restored.into())
        })
    }

    /// The most recent changes, the oldest first; at most [`MAX_EVENTS`].
    #[must_use]
    pub fn events(&self) -> Vec<OperatorEvent> {
        self.engine.registry().audit_log.read()
    }

    /// Applies a change or none of it, and logs it.
    fn apply_change(
        &self,
        attribution: Attribution<'_>,
        what: impl FnOnce(
            &Generation,
            &mut OperatorState,
            Timestamp,
        ) -> Result<AppliedChange, OperatorError>,
    ) -> Result<(), OperatorError> {
        check_attribution(attribution)?;
        let mut registry = self.engine.registry();
        let registry = &mut *registry;
        let generation = self.engine.generation();
        let now = self.engine.store().now();
        let mut next = registry.operator_state.clone();
        next.expire(now);
        let before = next.clone();
        let AppliedChange { change, key } = what(&generation, &mut next, now)?;
        let digest = key.and_then(|key| key.digest());
        if next != registry.operator_state {
            registry.operator_state = next;
            self.engine
                .apply_overrides(&generation, &registry.operator_state);
            registry.record_changes(&before, &OwnedAttribution::from_borrowed(attribution));
        }
        let event = OperatorEvent {
            who: attribution.who.into(),
            at: now,
            why: attribution.why.into(),
            change,
        };
        registry.audit_log.record(event, digest);
        Ok(())
    }

    fn erase(&self, generation: &Generation, limit: &str, values: &[&str]) -> bool {
        let mut was_used = false;
        for state in generation.key_states(limit, values) {
            if let Ok(key) = StoreKey::new(&state.key) {
                was_used |= self.engine.store().erase(&key, &state.limit);
            }
        }
        self.engine.clear_cached_denials();
        was_used
    }
}

impl<S> std::fmt::Debug for Control<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

/// A change and the key it concerns.
struct AppliedChange {
    change: OperatorChange,
    key: Option<KeyIdentity>,
}

impl From<OperatorChange> for AppliedChange {
    fn from(change: OperatorChange) -> Self {
        Self { change, key: None }
    }
}

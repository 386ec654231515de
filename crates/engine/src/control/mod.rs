//! What operators can do while requests are decided: halt limits, enforce them for a share of keys, give a key another quota,
//! block keys and addresses, and forget what a key has used.
//!
//! Everything holds for the next decision; no store has to answer, except for a reset. Everything is signed, logged and
//! bounded, and holds over reloads for the limit of the same name. A switch takes force away and never adds any: what the
//! policy shadows stays in shadow. Must not know: transports, who may do what.

mod compile;
mod controls;
mod entry;
mod fleet;
#[cfg(test)]
mod fleet_tests;
mod item;
mod log;
mod naming;
mod quota;
mod refused;
mod sharing;
#[cfg(test)]
mod tests;

pub use controls::{
    Block, Controls, Halt, KeyOverride, MOST_BLOCKS, MOST_OVERRIDES, NamedKey, Switch,
};
pub use fleet::Adopted;
pub use log::{Event, MOST_EVENTS, OperatorChange, Utc};
pub use refused::OperatorError;
pub use sharing::{ToPut, Wake};

pub(crate) use compile::snapshot;
pub(crate) use log::Log;
pub(crate) use sharing::Sharing;

use tollgate_core::{Nanos, Timestamp};
use tollgate_store::StoreKey;

use crate::engine::Engine;
use crate::generation::Generation;
use crate::store::StateStore;
use entry::Signature;
use naming::{known, named, network};

/// Who does something, and why. Both are kept with what was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct By<'a> {
    /// A name, at most 128 bytes.
    pub who: &'a str,
    /// A reason, at most 512 bytes.
    pub why: &'a str,
}

/// The operators' side of an engine.
///
/// ```
/// use tollgate_engine::Engine;
/// use tollgate_engine::control::{By, Halt, Switch};
/// use tollgate_policy::rules::Rules;
/// use tollgate_policy::source::SourceFormat;
/// use tollgate_store::Memory;
///
/// let text = "limits: [{ name: logins, key: ip, rate: 10/min }]";
/// let policy = tollgate_policy::load(text, "policy.yaml", SourceFormat::Yaml)?;
/// let rules = Rules::compile(&policy, [7; 16]).map_err(|problems| format!("{problems:?}"))?;
/// let engine = Engine::new(rules, Memory::for_keys(1_000)?)?;
///
/// let by = By { who: "ada", why: "logins fail since 14:02" };
/// engine.control().switch(Some("logins"), Switch::halted(Halt::Shadow), by)?;
/// let mistake = engine.control().switch(Some("login"), Switch::default(), by).unwrap_err();
/// assert_eq!(mistake.to_string(), "there is no limit `login`; did you mean `logins`?");
/// assert_eq!(engine.control().events()[0].to_string(), "ada: limit `logins` switched to shadow (logins fail since 14:02)");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Control<'a, S> {
    engine: &'a Engine<S>,
}

impl<'a, S: StateStore> Control<'a, S> {
    pub(crate) const fn of(engine: &'a Engine<S>) -> Self {
        Self { engine }
    }

    /// Makes denials void that a fleet's driver has cached.
    pub fn forget_denials(&self) {
        self.engine.forget_denials();
    }

    /// Halts a limit or, without a name, everything; or enforces it for another share of keys. The switch as it was
    /// before makes it undone.
    ///
    /// In a group that applies the narrowest, a limit that is switched off still stands for the wider ones: who falls under
    /// it is not limited by those either.
    ///
    /// With everything `off` nothing is refused at all, whatever lists and blocks say; in shadow those hold and only
    /// limits do not.
    ///
    /// # Errors
    /// There is no such limit, or it is not signed.
    pub fn switch(&self, limit: Option<&str>, to: Switch, by: By<'_>) -> Result<(), OperatorError> {
        self.change(by, |generation, controls, _| {
            match limit {
                None => controls.everything = to,
                Some(name) => {
                    known(generation, name)?;
                    controls.limits.insert(name.into(), to);
                    controls
                        .limits
                        .retain(|_, switch| *switch != Switch::default());
                }
            }
            let limit = limit.map(Box::from);
            Ok(OperatorChange::Switched { limit, to }.into())
        })
    }

    /// Gives one key of a limit another quota, for a while or until it is taken back. It is said as in a policy, with the
    /// limit's own algorithm: `9000/min`, `9000/min burst 500`, `10/s, 1000/h` for several windows, `unlimited`, and
    /// for places their number. What the key owes it still owes.
    ///
    /// # Errors
    /// There is no such limit or key, the quota cannot be honoured, there are too many, or it is not signed.
    pub fn override_key(
        &self,
        limit: &str,
        key: &[&str],
        quota: &str,
        lasts: Option<Nanos>,
        by: By<'_>,
    ) -> Result<(), OperatorError> {
        self.change(by, |generation, controls, now| {
            let index = known(generation, limit)?;
            let named = named(generation, index, limit, key)?;
            controls::check_len("quota", quota, controls::MOST_QUOTA)?;
            // Whether it can be honoured is found out now and not when the snapshot is made of it.
            quota::chosen(generation, index, quota)?;
            let entry = KeyOverride {
                key: named.clone(),
                quota: quota.trim().into(),
                until: lasts.map(|lasts| now.after(lasts).as_nanos()),
            };
            let change = OperatorChange::Overridden {
                limit: limit.into(),
                key: entry.key.shown.clone(),
                quota: entry.quota.clone(),
                until: entry.until.map(Timestamp::from_nanos),
            };
            controls.overrides.retain(|other| !other.key.is(&entry.key));
            if controls.overrides.len() >= MOST_OVERRIDES {
                return Err(OperatorError::TooMany {
                    what: "overrides",
                    most: MOST_OVERRIDES,
                });
            }
            controls.overrides.push(entry);
            Ok(Changed {
                change,
                key: Some(named),
            })
        })
    }

    /// Takes an override back.
    ///
    /// # Errors
    /// There is no such override, or it is not signed.
    pub fn lift_override(
        &self,
        limit: &str,
        key: &[&str],
        by: By<'_>,
    ) -> Result<(), OperatorError> {
        self.change(by, |generation, controls, _| {
            let index = known(generation, limit)?;
            let key = named(generation, index, limit, key)?;
            let before = controls.overrides.len();
            controls.overrides.retain(|other| !other.key.is(&key));
            if controls.overrides.len() == before {
                return Err(OperatorError::NotThere { what: "override" });
            }
            let change = OperatorChange::OverrideLifted {
                limit: limit.into(),
                key: key.shown.clone(),
            };
            Ok(Changed {
                change,
                key: Some(key),
            })
        })
    }

    /// Refuses every request that falls under a limit with this key; of a hierarchy the key of any level.
    ///
    /// # Errors
    /// There is no such limit or key, there are too many blocks, or it is not signed.
    pub fn block_key(
        &self,
        limit: &str,
        key: &[&str],
        lasts: Option<Nanos>,
        by: By<'_>,
    ) -> Result<(), OperatorError> {
        self.change(by, |generation, controls, now| {
            let index = known(generation, limit)?;
            let key = named(generation, index, limit, key)?;
            let until = lasts.map(|lasts| now.after(lasts));
            controls.block(Block::Key {
                key: key.clone(),
                until: until.map(Timestamp::as_nanos),
            })?;
            let change = OperatorChange::Blocked {
                limit: Some(limit.into()),
                what: key.shown.clone(),
                until,
            };
            Ok(Changed {
                change,
                key: Some(key),
            })
        })
    }

    /// Refuses every request from an address or a network (`192.0.2.7`, `10.0.0.0/8`), whatever the policy says.
    ///
    /// # Errors
    /// It is no address, there are too many blocks, or it is not signed.
    pub fn block_address(
        &self,
        address: &str,
        lasts: Option<Nanos>,
        by: By<'_>,
    ) -> Result<(), OperatorError> {
        self.change(by, |_, controls, now| {
            let network = network(address)?;
            let until = lasts.map(|lasts| now.after(lasts));
            controls.block(Block::Address {
                address: network.clone(),
                until: until.map(Timestamp::as_nanos),
            })?;
            let what = network.into();
            let limit = None;
            Ok(OperatorChange::Blocked { limit, what, until }.into())
        })
    }

    /// Lets a blocked key through again. Blocks that a `penalty` has put up end with [`reset`](Self::reset).
    ///
    /// # Errors
    /// It is not blocked, or this is not signed.
    pub fn unblock_key(&self, limit: &str, key: &[&str], by: By<'_>) -> Result<(), OperatorError> {
        self.change(by, |generation, controls, _| {
            let index = known(generation, limit)?;
            let key = named(generation, index, limit, key)?;
            let is_it =
                |block: &Block| matches!(block, Block::Key { key: other, .. } if other.is(&key));
            controls.unblock(is_it)?;
            let change = OperatorChange::Unblocked {
                limit: Some(limit.into()),
                what: key.shown.clone(),
            };
            Ok(Changed {
                change,
                key: Some(key),
            })
        })
    }

    /// Lets a blocked address or network through again.
    ///
    /// # Errors
    /// It is not blocked, or this is not signed.
    pub fn unblock_address(&self, address: &str, by: By<'_>) -> Result<(), OperatorError> {
        self.change(by, |_, controls, _| {
            let network = network(address)?;
            let is_it = |block: &Block| {
                matches!(block, Block::Address { address, .. } if *address == network)
            };
            controls.unblock(is_it)?;
            let what = network.into();
            Ok(OperatorChange::Unblocked { limit: None, what }.into())
        })
    }

    /// Forgets what a key has used of a limit, its candidate's part and a block by `penalty` included; of a hierarchy at
    /// the level that the key is for. Answers whether there was anything. Which values a `distinct` limit has seen
    /// lately stays known.
    ///
    /// # Errors
    /// There is no such limit or key, or it is not signed.
    pub fn reset(&self, limit: &str, key: &[&str], by: By<'_>) -> Result<bool, OperatorError> {
        let mut found = false;
        self.change(by, |generation, _, _| {
            let index = known(generation, limit)?;
            let named = named(generation, index, limit, key)?;
            found = self.erase(generation, limit, key);
            let change = OperatorChange::Reset {
                limit: limit.into(),
                key: named.shown.clone(),
                found,
            };
            Ok(Changed {
                change,
                key: Some(named),
            })
        })?;
        Ok(found)
    }

    /// Everything that holds now, to be kept or handed to other nodes.
    #[must_use]
    pub fn controls(&self) -> Controls {
        let mut controls = self.engine.registry().controls.clone();
        controls.expire(self.engine.store().now());
        controls
    }

    /// Puts everything in force that another node or an earlier process has [kept](Self::controls), in the place of what
    /// holds now. What is said about limits that the policy does not have is kept in case they return.
    ///
    /// # Errors
    /// There is more than may be kept, or it is not signed. Then nothing changes.
    pub fn restore(&self, kept: Controls, by: By<'_>) -> Result<(), OperatorError> {
        self.change(by, |_, controls, _| {
            kept.check()?;
            *controls = kept;
            Ok(OperatorChange::Restored.into())
        })
    }

    /// What was done lately, the oldest first; at most [`MOST_EVENTS`].
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.engine.registry().log.read()
    }

    /// Changes what holds, or nothing, and logs it.
    fn change(
        &self,
        by: By<'_>,
        what: impl FnOnce(&Generation, &mut Controls, Timestamp) -> Result<Changed, OperatorError>,
    ) -> Result<(), OperatorError> {
        refused::check_signature(by)?;
        let mut registry = self.engine.registry();
        let registry = &mut *registry;
        let generation = self.engine.generation();
        let now = self.engine.store().now();
        let mut next = registry.controls.clone();
        next.expire(now);
        let before = next.clone();
        let Changed { change, key } = what(&generation, &mut next, now)?;
        let digest = key.and_then(|key| key.digest());
        if next != registry.controls {
            registry.controls = next;
            self.engine.apply_overrides(&generation, &registry.controls);
            registry.note_changes(&before, &Signature::of(by));
        }
        let event = Event {
            who: by.who.into(),
            when: now,
            why: by.why.into(),
            what: change,
        };
        registry.log.add(event, digest);
        Ok(())
    }

    fn erase(&self, generation: &Generation, limit: &str, values: &[&str]) -> bool {
        let mut found = false;
        for state in generation.key_states(limit, values) {
            if let Ok(key) = StoreKey::of(&state.key) {
                found |= self.engine.store().erase(&key, &state.ruled);
            }
        }
        self.engine.forget_denials();
        found
    }
}

impl<S> std::fmt::Debug for Control<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

/// What was changed, and the key that it was about.
struct Changed {
    change: OperatorChange,
    key: Option<NamedKey>,
}

impl From<OperatorChange> for Changed {
    fn from(change: OperatorChange) -> Self {
        Self { change, key: None }
    }
}

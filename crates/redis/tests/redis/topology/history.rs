//! Records of requests and replies, and checks of the promises. Controls of the checks are below.

use std::collections::BTreeMap;

use tollgate_store::{StoreError, StoreErrorKind};

/// The results of spending single units on one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) admitted: u64,
    pub(super) denied: u64,
    /// May have charged.
    pub(super) ambiguous: u64,
    /// Have not charged.
    pub(super) not_charged: u64,
    /// Error messages and how often each occurred.
    pub(super) errors: BTreeMap<String, u64>,
}

impl Tally {
    pub(super) fn add(&mut self, answered: Result<bool, StoreError>) {
        match answered {
            Ok(true) => self.admitted += 1,
            Ok(false) => self.denied += 1,
            Err(error) => {
                assert_ne!(error.kind(), StoreErrorKind::BadRequest, "{error}");
                *self.errors.entry(error.to_string()).or_default() += 1;
                if error.may_have_charged() {
                    self.ambiguous += 1;
                } else {
                    self.not_charged += 1;
                }
            }
        }
    }

    pub(super) fn failed(&self) -> u64 {
        self.ambiguous + self.not_charged
    }
}

/// The results for every key.
pub(super) type History = BTreeMap<String, Tally>;

/// Checks that no key was admitted more than its burst, plus one burst for each time its state may have been lost, and
/// that no call had keys of two slots.
pub(super) fn check(
    history: &History,
    burst: u64,
    losses: impl Fn(&str) -> u64,
) -> Result<(), String> {
    for (key, tally) in history {
        let bound = burst * (1 + losses(key));
        if tally.admitted > bound {
            return Err(format!("{key}: {} admitted of {bound}", tally.admitted));
        }
        if tally
            .errors
            .keys()
            .any(|errors| errors.contains("CROSSSLOT"))
        {
            return Err(format!("{key}: a call had keys of two slots"));
        }
    }
    Ok(())
}

/// Checks that every denied key was admitted exactly its burst, less the ambiguous calls.
pub(super) fn check_exact(history: &History, burst: u64) -> Result<(), String> {
    check(history, burst, |_| 0)?;
    for (key, tally) in history {
        if tally.denied > 0 && tally.admitted + tally.ambiguous < burst {
            return Err(format!("{key}: denied after {tally:?}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(admitted: u64, denied: u64, ambiguous: u64) -> History {
        let tally = Tally {
            admitted,
            denied,
            ambiguous,
            ..Tally::default()
        };
        BTreeMap::from([("alice".to_owned(), tally)])
    }

    #[test]
    fn control_a_limiter_that_admits_too_much_is_noticed() {
        assert!(check(&history(11, 0, 0), 10, |_| 0).is_err());
        assert!(check(&history(11, 0, 0), 10, |_| 1).is_ok());
        assert!(check(&history(21, 0, 0), 10, |_| 1).is_err());
    }

    #[test]
    fn control_a_limiter_that_denies_too_early_is_noticed() {
        assert!(check_exact(&history(9, 1, 0), 10).is_err());
        assert!(check_exact(&history(9, 1, 1), 10).is_ok());
        assert!(check_exact(&history(10, 5, 0), 10).is_ok());
    }

    #[test]
    fn control_a_call_with_keys_of_two_slots_is_noticed() {
        let mut history = history(1, 0, 0);
        let errors = "the store refused: error code CROSSSLOT".to_owned();
        history.get_mut("alice").unwrap().errors.insert(errors, 1);
        assert!(check(&history, 10, |_| 0).is_err());
    }
}

//! What operators have done: a bounded list to read, and a line of the log for each.
//!
//! Must not know: how any of it is carried out.

use std::collections::VecDeque;
use std::fmt;

use tollgate_core::Timestamp;

use super::operator_state::Switch;

/// So many events are kept; the oldest go first.
pub const MAX_EVENTS: usize = 1_000;

/// One thing that an operator did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorEvent {
    /// Who.
    pub who: Box<str>,
    /// When, by the store's clock.
    pub at: Timestamp,
    /// Why.
    pub why: Box<str>,
    /// What.
    pub change: OperatorChange,
}

/// What was changed. Keys are shown as the policy allows: hashed ones as digests.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperatorChange {
    /// A switch was thrown.
    Switched {
        /// Of which limit; `None`: of all.
        limit: Option<Box<str>>,
        /// How it stands now.
        to: Switch,
    },
    /// A key got another quota.
    Overridden {
        /// Of which limit.
        limit: Box<str>,
        /// Which key.
        key: Box<str>,
        /// Which quota.
        quota: Box<str>,
        /// Until when; `None`: until it is taken back.
        until: Option<Timestamp>,
    },
    /// An override was taken back.
    OverrideLifted {
        /// Of which limit.
        limit: Box<str>,
        /// Of which key.
        key: Box<str>,
    },
    /// A key or an address was blocked.
    Blocked {
        /// The limit whose key it is; `None` for an address.
        limit: Option<Box<str>>,
        /// The key or address.
        what: Box<str>,
        /// Until when; `None`: until it is taken back.
        until: Option<Timestamp>,
    },
    /// A block was taken back.
    Unblocked {
        /// The limit whose key it is; `None` for an address.
        limit: Option<Box<str>>,
        /// The key or address.
        what: Box<str>,
    },
    /// What a key had used was forgotten.
    Reset {
        /// Of which limit.
        limit: Box<str>,
        /// Which key.
        key: Box<str>,
        /// Whether there was anything to forget.
        found: bool,
    },
    /// Everything was replaced by what had been kept.
    Restored,
    /// A lot was taken over from other nodes at once.
    Synced {
        /// How much.
        entries: usize,
    },
}

impl OperatorChange {
    /// Says it, keys as `key` words them.
    fn write(&self, f: &mut fmt::Formatter<'_>, key: &dyn Fn(&str) -> String) -> fmt::Result {
        let until = |f: &mut fmt::Formatter<'_>, until: &Option<Timestamp>| match until {
            Some(until) => write!(f, " until {}", UtcTime(*until)),
            None => f.write_str(" until it is taken back"),
        };
        // An address is nobody's key, and is told as it is.
        let of = |limit: &Option<Box<str>>, what: &str| match limit {
            Some(limit) => format!("{} of limit `{limit}`", key(what)),
            None => format!("`{what}`"),
        };
        match self {
            Self::Switched { limit: None, to } => write!(f, "everything switched to {to}"),
            Self::Switched {
                limit: Some(limit),
                to,
            } => write!(f, "limit `{limit}` switched to {to}"),
            Self::Overridden {
                limit,
                key: of,
                quota,
                until: end,
            } => {
                write!(f, "key {} of limit `{limit}` has {quota}", key(of))?;
                until(f, end)
            }
            Self::OverrideLifted { limit, key: of } => {
                let key = key(of);
                write!(f, "key {key} of limit `{limit}` has its own quota again")
            }
            Self::Blocked {
                limit,
                what,
                until: end,
            } => {
                write!(f, "{} blocked", of(limit, what))?;
                until(f, end)
            }
            Self::Unblocked { limit, what } => write!(f, "{} let through", of(limit, what)),
            Self::Reset {
                limit,
                key: of,
                found,
            } => {
                let found = if *found { "" } else { ", which was full" };
                write!(f, "key {} of limit `{limit}` reset{found}", key(of))
            }
            Self::Restored => f.write_str("switches, overrides and blocks restored"),
            Self::Synced { entries } => {
                write!(f, "{entries} switches, overrides and blocks taken over")
            }
        }
    }
}

impl fmt::Display for OperatorChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &|key| format!("`{key}`"))
    }
}

/// A change as the log tells it: logs are kept and copied, and keys in them are digests.
struct RedactedChange<'a> {
    what: &'a OperatorChange,
    digest: Option<[u8; 16]>,
}

impl fmt::Display for RedactedChange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = self.digest.unwrap_or_default();
        self.what.write(f, &|_| {
            let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("#{digits}")
        })
    }
}

impl fmt::Display for OperatorEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.who, self.change, self.why)
    }
}

/// An instant as people read it: `2026-11-16T00:34:00Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UtcTime(pub Timestamp);

impl fmt::Display for UtcTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_nanos() / 1_000_000_000;
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        // Years begin in March here, so that the leap day is the last; after Hinnant's `civil_from_days`.
        let day = days + 719_468;
        let (era, day) = (day / 146_097, day % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let date = day - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = year + era * 400 + u64::from(month <= 2);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        write!(
            f,
            "{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}Z"
        )
    }
}

/// The events that are kept.
#[derive(Debug, Default)]
pub(crate) struct AuditLog {
    events: VecDeque<OperatorEvent>,
}

impl AuditLog {
    /// Keeps an event, and logs it with the digest of its key.
    pub(super) fn record(&mut self, event: OperatorEvent, digest: Option<[u8; 16]>) {
        let what = RedactedChange {
            what: &event.change,
            digest,
        };
        tracing::info!(who = %event.who, why = %event.why, "{what}");
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    pub(super) fn read(&self) -> Vec<OperatorEvent> {
        self.events.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_logged_of_a_key_is_its_digest() {
        let key = "sk_live_secret";
        let limit = || Box::from("api");
        let changes = [
            OperatorChange::Overridden {
                limit: limit(),
                key: key.into(),
                quota: "1/s".into(),
                until: None,
            },
            OperatorChange::OverrideLifted {
                limit: limit(),
                key: key.into(),
            },
            OperatorChange::Blocked {
                limit: Some(limit()),
                what: key.into(),
                until: None,
            },
            OperatorChange::Unblocked {
                limit: Some(limit()),
                what: key.into(),
            },
            OperatorChange::Reset {
                limit: limit(),
                key: key.into(),
                found: true,
            },
        ];
        for what in &changes {
            let digest = Some([0xab; 16]);
            let logged = RedactedChange { what, digest }.to_string();
            assert!(!logged.contains(key), "{logged}");
            assert!(
                logged.contains(&format!("#{}", "ab".repeat(16))),
                "{logged}"
            );
            assert!(
                what.to_string().contains(key),
                "who may read the list may read keys"
            );
        }
        let address = OperatorChange::Blocked {
            limit: None,
            what: "192.0.2.7".into(),
            until: None,
        };
        let (what, digest) = (&address, None);
        let logged = RedactedChange { what, digest }.to_string();
        assert_eq!(logged, "`192.0.2.7` blocked until it is taken back");
    }

    #[test]
    fn instants_are_told_by_the_calendar() {
        let told = |seconds| UtcTime(Timestamp::from_secs(seconds)).to_string();
        assert_eq!(told(0), "1970-01-01T00:00:00Z");
        assert_eq!(told(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(told(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(told(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(told(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}

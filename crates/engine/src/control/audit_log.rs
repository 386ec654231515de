//! The audit log of operator changes: a bounded list for reading, and one log line for each.
//!
//! Must not know: how changes are applied.

use std::collections::VecDeque;
use std::fmt;

use tollgate_core::Timestamp;

use super::adjustment::UnitAdjustment;
use super::operator_state::Switch;

/// The most events that are kept; the oldest are dropped first.
pub const MAX_EVENTS: usize = 1_000;

/// One change by an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorEvent {
    /// The operator.
    pub who: Box<str>,
    /// The time by the store's clock.
    pub at: Timestamp,
    /// The operator's reason.
    pub why: Box<str>,
    /// The change.
    pub change: OperatorChange,
}

/// A change by an operator. Keys are shown as the policy allows: hashed ones as digests.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperatorChange {
    /// A switch was set.
    Switched {
        /// The limit; `None`: all limits.
        limit: Option<Box<str>>,
        /// The new setting.
        to: Switch,
    },
    /// A key got another quota.
    Overridden {
        /// The limit.
        limit: Box<str>,
        /// The key.
        key: Box<str>,
        /// The quota.
        quota: Box<str>,
        /// The expiry; `None`: until it is removed.
        until: Option<Timestamp>,
    },
    /// An override was removed.
    OverrideLifted {
        /// The limit.
        limit: Box<str>,
        /// The key.
        key: Box<str>,
    },
    /// A key or an address was blocked.
    Blocked {
        /// The limit of the key; `None` for an address.
        limit: Option<Box<str>>,
        /// The key or address.
        target: Box<str>,
        /// The expiry; `None`: until it is removed.
        until: Option<Timestamp>,
    },
    /// A block was removed.
    Unblocked {
        /// The limit of the key; `None` for an address.
        limit: Option<Box<str>>,
        /// The key or address.
        target: Box<str>,
    },
    /// A key's usage was reset.
    Reset {
        /// The limit.
        limit: Box<str>,
        /// The key.
        key: Box<str>,
        /// Whether the key had any usage.
        was_used: bool,
    },
    /// Units were charged or refunded to a key.
    Adjusted {
        /// The limit.
        limit: Box<str>,
        /// The key.
        key: Box<str>,
        /// The units.
        adjustment: UnitAdjustment,
    },
    /// The whole state was replaced by a saved one.
    Restored,
    /// Many changes of other nodes were applied at once.
    Synced {
        /// The number of changed items.
        entries: usize,
    },
}

impl OperatorChange {
    /// Writes the change; `key` renders keys.
    fn write(&self, f: &mut fmt::Formatter<'_>, key: &dyn Fn(&str) -> String) -> fmt::Result {
        let until = |f: &mut fmt::Formatter<'_>, until: &Option<Timestamp>| match until {
            Some(until) => write!(f, " until {}", UtcTime(*until)),
            None => f.write_str(" until it is removed"),
        };
        // An address is not a key and is shown as it is.
        let describe = |limit: &Option<Box<str>>, target: &str| match limit {
            Some(limit) => format!("key {} of limit `{limit}`", key(target)),
            None => format!("address `{target}`"),
        };
        match self {
            Self::Switched { limit: None, to } => write!(f, "all limits switched to {to}"),
            Self::Switched {
                limit: Some(limit),
                to,
            } => match limit.split_once(':') {
                // Names of limits have no colon.
                Some(_) => write!(f, "`{limit}` switched to {to}"),
                None => write!(f, "limit `{limit}` switched to {to}"),
            },
            Self::Overridden {
                limit,
                key: target,
                quota,
                until: end,
            } => {
                write!(
                    f,
                    "key {} of limit `{limit}` overridden with {quota}",
                    key(target)
                )?;
                until(f, end)
            }
            Self::OverrideLifted { limit, key: target } => {
                let key = key(target);
                write!(f, "override of key {key} of limit `{limit}` removed")
            }
            Self::Blocked {
                limit,
                target,
                until: end,
            } => {
                write!(f, "{} blocked", describe(limit, target))?;
                until(f, end)
            }
            Self::Unblocked { limit, target } => write!(f, "{} unblocked", describe(limit, target)),
            Self::Reset {
                limit,
                key: target,
                was_used,
            } => {
                let unused = if *was_used {
                    ""
                } else {
                    ", which had no usage"
                };
                write!(f, "key {} of limit `{limit}` reset{unused}", key(target))
            }
            Self::Adjusted {
                limit,
                key: target,
                adjustment,
            } => write!(f, "{adjustment} key {} of limit `{limit}`", key(target)),
            Self::Restored => f.write_str("switches, overrides and blocks restored"),
            Self::Synced { entries } => {
                write!(f, "{entries} switches, overrides and blocks synchronised")
            }
        }
    }
}

impl fmt::Display for OperatorChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &|key| format!("`{key}`"))
    }
}

/// A change for the log file: log files are copied around, so keys appear as digests.
struct RedactedChange<'a> {
    change: &'a OperatorChange,
    digest: Option<[u8; 16]>,
}

impl fmt::Display for RedactedChange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = self.digest.unwrap_or_default();
        self.change.write(f, &|_| {
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

/// A point in time as ISO 8601: `2026-11-16T00:34:00Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UtcTime(pub Timestamp);

impl fmt::Display for UtcTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_nanos() / 1_000_000_000;
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        // Years start in March, so that the leap day comes last; see Hinnant's `civil_from_days`.
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

/// The most recent events.
#[derive(Debug, Default)]
pub(crate) struct AuditLog {
    events: VecDeque<OperatorEvent>,
}

impl AuditLog {
    /// Adds an event, and logs it with the digest of its key.
    pub(super) fn record(&mut self, event: OperatorEvent, digest: Option<[u8; 16]>) {
        let change = RedactedChange {
            change: &event.change,
            digest,
        };
        tracing::info!(who = %event.who, why = %event.why, "{change}");
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
    fn keys_are_logged_as_digests() {
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
                target: key.into(),
                until: None,
            },
            OperatorChange::Unblocked {
                limit: Some(limit()),
                target: key.into(),
            },
            OperatorChange::Reset {
                limit: limit(),
                key: key.into(),
                was_used: true,
            },
        ];
        for change in &changes {
            let digest = Some([0xab; 16]);
            let logged = RedactedChange { change, digest }.to_string();
            assert!(!logged.contains(key), "{logged}");
            assert!(
                logged.contains(&format!("#{}", "ab".repeat(16))),
                "{logged}"
            );
            assert!(
                change.to_string().contains(key),
                "the list itself shows keys"
            );
        }
        let address = OperatorChange::Blocked {
            limit: None,
            target: "192.0.2.7".into(),
            until: None,
        };
        let (change, digest) = (&address, None);
        let logged = RedactedChange { change, digest }.to_string();
        assert_eq!(logged, "address `192.0.2.7` blocked until it is removed");
    }

    #[test]
    fn timestamps_are_formatted_as_iso_8601() {
        let format = |seconds| UtcTime(Timestamp::from_secs(seconds)).to_string();
        assert_eq!(format(0), "1970-01-01T00:00:00Z");
        assert_eq!(format(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(format(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(format(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(format(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}

//! The settings of a pacer, and their bounds.
//!
//! Must not know: how they are used.

use std::fmt;

use tollgate_core::{Nanos, Timestamp};

use crate::error::PaceError;
use crate::pacer::hidden_quota::HiddenQuotaSettings;

/// The settings of a [`Pacer`](crate::Pacer). The defaults suit most clients.
///
/// ```
/// use tollgate_client::PacerSettings;
/// use tollgate_core::Nanos;
///
/// let settings = PacerSettings::default()
///     .with_max_wait(Nanos::from_secs(10))
///     .with_initial_rate(5.0)?;
/// let error = PacerSettings::default().with_initial_rate(0.0).unwrap_err();
/// assert_eq!(error.to_string(), "initial_rate: 0 is not valid: it must be from 0.01 to 1000000 requests per second");
/// # Ok::<(), tollgate_client::InvalidPacerSettings>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct PacerSettings {
    pub(crate) max_partitions: usize,
    pub(crate) max_waiters: usize,
    pub(crate) max_wait: Nanos,
    pub(crate) max_block: Nanos,
    pub(crate) max_attempts: u32,
    pub(crate) has_retry_budget: bool,
    initial_rate: f64,
    probe_interval: Nanos,
    probe_growth: f64,
}

impl Default for PacerSettings {
    fn default() -> Self {
        Self {
            max_partitions: 1_024,
            max_waiters: 65_536,
            max_wait: Nanos::from_secs(60),
            max_block: Nanos::from_secs(600),
            max_attempts: 4,
            has_retry_budget: true,
            initial_rate: 2.0,
            probe_interval: Nanos::from_secs(7),
            probe_growth: 1.05,
        }
    }
}

impl PacerSettings {
    /// The most partitions that are remembered; the one that was unused longest is forgotten first. Default 1,024.
    #[must_use]
    pub const fn with_max_partitions(mut self, max: usize) -> Self {
        self.max_partitions = max;
        self
    }

    /// The most requests that wait; more fail at once. Default 65,536.
    #[must_use]
    pub const fn with_max_waiters(mut self, max: usize) -> Self {
        self.max_waiters = max;
        self
    }

    /// The longest wait of a request. One that would wait longer fails at once, whatever the server asks for. Default
    /// 60 s.
    #[must_use]
    pub const fn with_max_wait(mut self, max: Nanos) -> Self {
        self.max_wait = max;
        self
    }

    /// The longest time for which a server can stop all requests to it. Default 10 minutes.
    #[must_use]
    pub const fn with_max_block(mut self, max: Nanos) -> Self {
        self.max_block = max;
        self
    }

    /// The most attempts of a request, the first included. Default 4.
    #[must_use]
    pub const fn with_max_attempts(mut self, max: u32) -> Self {
        self.max_attempts = max;
        self
    }

    /// Permits as many retries as `max_attempts` says, whatever their share: for a program that sends single requests, such as a
    /// command of a shell. By default there is at most one retry for every five requests, with a reserve of ten.
    #[must_use]
    pub const fn without_retry_budget(mut self) -> Self {
        self.has_retry_budget = false;
        self
    }

    /// Sets the requests per second with which a client begins that knows nothing about the server. The rate grows
    /// by 3.5 % with each request, at most twofold in a second, until the first refusal. Default 2. Choose less for a large fleet that starts at the same time.
    ///
    /// # Errors
    /// It must be from 0.01 to 1,000,000.
    pub fn with_initial_rate(mut self, rate: f64) -> Result<Self, InvalidPacerSettings> {
        if !(0.01..=1_000_000.0).contains(&rate) {
            return Err(InvalidPacerSettings {
                field: "initial_rate",
                value: rate.to_string(),
                reason: "it must be from 0.01 to 1000000 requests per second",
            });
        }
        self.initial_rate = rate;
        Ok(self)
    }

    /// Sets how often, and with which growth of the interval, a client looks for a reduced quota to come back. Every look
    /// that finds nothing costs at least one refusal. The interval grows after the first minute. Default: every 7 s, then a
    /// twentieth longer each time.
    ///
    /// # Errors
    /// The interval must be at least 100 ms, and the growth from 1 to 10.
    pub fn with_probes(
        mut self,
        interval: Nanos,
        growth: f64,
    ) -> Result<Self, InvalidPacerSettings> {
        if interval < Nanos::from_millis(100) || !(1.0..=10.0).contains(&growth) {
            return Err(InvalidPacerSettings {
                field: "probes",
                value: format!("{} ms, {growth}", interval.as_millis_ceil()),
                reason: "the interval must be at least 100 ms and the growth from 1 to 10",
            });
        }
        self.probe_interval = interval;
        self.probe_growth = growth;
        Ok(self)
    }

    pub(crate) const fn hidden_quota(&self) -> HiddenQuotaSettings {
        HiddenQuotaSettings {
            initial_rate: self.initial_rate,
            probe_interval: self.probe_interval,
            probe_growth: self.probe_growth,
        }
    }

    /// Whether a wait is acceptable, after one of `waited`.
    pub(crate) fn check_wait(
        &self,
        wait: Nanos,
        waited: Nanos,
        deadline: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<(), PaceError> {
        if deadline.is_some_and(|deadline| now.after(wait) > deadline) {
            return Err(PaceError::DeadlineTooClose { wait });
        }
        let wait = wait.saturating_add(waited);
        if wait > self.max_wait {
            return Err(PaceError::WaitTooLong {
                wait,
                max: self.max_wait,
            });
        }
        Ok(())
    }
}

/// A setting is out of its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidPacerSettings {
    field: &'static str,
    value: String,
    reason: &'static str,
}

impl fmt::Display for InvalidPacerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field,
            value,
            reason,
        } = self;
        write!(f, "{field}: {value} is not valid: {reason}")
    }
}

impl std::error::Error for InvalidPacerSettings {}

//! The access log: one line for each request, when its response has ended.
//!
//! `record` collects what is known of a request, `format` says what a line shows, `render` writes it. Lines go to an output
//! that never waits (ADR 0035). Must not know: files, how requests are forwarded.

mod format;
mod logged_body;
mod record;
mod render;
mod variable;

pub use format::{AccessLogFormat, InvalidAccessLogFormat};
pub(super) use logged_body::LoggedBody;
pub(super) use record::{ExchangeRecord, RequestRecord};

use std::fmt;
use std::sync::Arc;

use tollgate_core::Timestamp;

/// Where lines go.
pub trait AccessLogOutput: Send + Sync {
    /// Takes one line with its line end. It must not wait: if there is no room, it drops the line and counts it.
    fn write_line(&self, line: &[u8]);
}

/// Where and how requests are logged.
#[derive(Clone)]
pub struct AccessLog {
    format: AccessLogFormat,
    output: Arc<dyn AccessLogOutput>,
}

/// An access log with the clock of its gateway.
pub(super) struct TimedAccessLog {
    log: AccessLog,
    now: Box<dyn Fn() -> Timestamp + Send + Sync>,
}

impl AccessLog {
    /// A log with this format.
    #[must_use]
    pub fn new(format: AccessLogFormat, output: Arc<dyn AccessLogOutput>) -> Self {
        Self { format, output }
    }
}

impl TimedAccessLog {
    pub(super) fn new(log: AccessLog, now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self {
            log,
            now: Box::new(now),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        (self.now)()
    }
}

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessLog").finish_non_exhaustive()
    }
}

impl fmt::Debug for TimedAccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.log.fmt(f)
    }
}

//! The session of one RLQS client: its messages in, its messages out, and its end.
//!
//! Must not know: sockets, how a stream is read or written.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tollgate_core::Timestamp;
use tollgate_service::metrics::QuotaCounts;
use tollgate_store::Clock;

use super::bounds::QuotaBounds;
use super::client::BucketReport;
use super::message::{BucketUsage, read_reports, write_response};
use super::table::QuotaTable;
use crate::EnvoyService;

/// The most buckets in one message. With the longest ids it fits into the default HTTP/2 window.
const MAX_BUCKETS_PER_MESSAGE: usize = 32;
/// The longest domain in bytes.
const MAX_DOMAIN_LEN: usize = 1_024;

/// The quota table of a service, shared by all its clients.
#[derive(Debug)]
pub(crate) struct SharedQuotaTable(Mutex<QuotaTable>);

impl SharedQuotaTable {
    pub(crate) fn new(bounds: QuotaBounds, now: Timestamp) -> Self {
        Self(Mutex::new(QuotaTable::new(bounds, now)))
    }

    /// The counters.
    pub(crate) fn counts(&self) -> QuotaCounts {
        self.table().counts()
    }

    /// Locks the table. Claims are changed one at a time and each is consistent, so the table is usable after a panic.
    fn table(&self) -> MutexGuard<'_, QuotaTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The session of one RLQS client.
pub struct RlqsSession<C: Clock> {
    envoy: Arc<EnvoyService<C>>,
    stream: u64,
    domain: Option<Box<str>>,
    wake: Arc<Notify>,
}

impl<C: Clock> RlqsSession<C> {
    /// Opens a session. `None` if there are too many clients.
    #[must_use]
    pub fn open(envoy: Arc<EnvoyService<C>>) -> Option<Self> {
        let wake = Arc::new(Notify::new());
        let stream = envoy.quotas.table().join(Arc::clone(&wake))?;
        Some(Self {
            envoy,
            stream,
            domain: None,
            wake,
        })
    }

    /// Notified when a message may be due.
    #[must_use]
    pub const fn wake(&self) -> &Arc<Notify> {
        &self.wake
    }

    /// Handles a message of the client.
    ///
    /// # Errors
    /// Why the message is invalid.
    pub fn handle_message(&mut self, message: &[u8]) -> Result<(), String> {
        let mut reports = read_reports(message).map_err(|malformed| malformed.to_string())?;
        if self.domain.is_none() {
            match reports.domain.len() {
                0 => return Err("domain: the first message must have one".to_owned()),
                1..=MAX_DOMAIN_LEN => self.domain = Some(reports.domain.into()),
                length => {
                    return Err(format!(
                        "domain: it has {length} bytes, there may be {MAX_DOMAIN_LEN}"
                    ));
                }
            }
        }
        let domain = self.domain.as_deref().unwrap_or_default();
        if !reports.domain.is_empty() && reports.domain != domain {
            return Err("domain: it cannot change; open another stream".to_owned());
        }
        let most = self.max_buckets(&mut reports.usages);
        // The engine is called while the table is not locked, so that other sessions can continue.
        let excess = reports.usages.len().saturating_sub(most) as u64;
        let reported = reports
            .usages
            .into_iter()
            .take(most)
            .map(|usage| BucketReport {
                limits: self.envoy.limits_of_bucket(domain, &usage.pairs),
                id: usage.id,
                elapsed: usage.elapsed,
                requests: usage.requests,
            });
        let reported: Vec<BucketReport> = reported.collect();
        let now = self.now();
        let mut table = self.envoy.quotas.table();
        table.refuse(reports.unusable.saturating_add(excess));
        table.tick(now);
        table.record_reports(self.stream, reported, now);
        Ok(())
    }

    /// Appends the next message to `out` and returns whether there is one. The caller must send it, or drop the session.
    pub fn next_message(&mut self, out: &mut Vec<u8>) -> bool {
        let now = self.now();
        let mut table = self.envoy.quotas.table();
        table.tick(now);
        let actions = table.take_due_actions(self.stream, now, MAX_BUCKETS_PER_MESSAGE);
        let life = table.bounds().assignment_ttl_seconds;
        drop(table);
        write_response(&actions, life, out);
        !actions.is_empty()
    }

    /// The most buckets of a message that are processed. If there are more, known buckets come first.
    fn max_buckets(&self, usages: &mut [BucketUsage<'_>]) -> usize {
        let table = self.envoy.quotas.table();
        let most = table.bounds().buckets_per_client;
        if usages.len() > most {
            usages.sort_by_cached_key(|usage| !table.has_bucket(self.stream, &usage.id));
        }
        most
    }

    fn now(&self) -> Timestamp {
        self.envoy.service().now()
    }
}

impl<C: Clock> Drop for RlqsSession<C> {
    fn drop(&mut self) {
        let now = self.now();
        self.envoy.quotas.table().leave(self.stream, now);
    }
}

impl<C: Clock> fmt::Debug for RlqsSession<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}

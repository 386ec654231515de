//! Pushes operators' changes to the register and pulls the changes of other nodes, until all nodes have the same.
//!
//! Local changes are pushed first, so that everything that is pulled is newer. A push without a reply is repeated under the
//! same number, which the register recognises; nothing is pulled until it is confirmed. Must not know: when to
//! synchronise, heartbeats.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_engine::control::RegisterChanges;
use tollgate_store::StoreError;
use tollgate_store::register::{NodeId, Register, RegisterCursor};

use super::local_node::LocalNode;

/// The state of one node's synchronisation with the register.
#[derive(Debug)]
pub(super) struct RegisterSync<'a> {
    id: NodeId,
    /// The number of the last push.
    put_counter: &'a AtomicU64,
    /// The register's cursor up to which all entries were applied.
    applied_cursor: Option<RegisterCursor>,
    /// A push without a reply, and its number.
    unconfirmed: Option<(u64, RegisterChanges)>,
    /// The number of entries that this version does not understand.
    pub(super) unsupported_entries: usize,
}

impl<'a> RegisterSync<'a> {
    pub(super) const fn new(id: NodeId, puts: &'a AtomicU64) -> Self {
        Self {
            id,
            put_counter: puts,
            applied_cursor: None,
            unconfirmed: None,
            unsupported_entries: 0,
        }
    }

    /// The register's cursor up to which all entries were applied.
    pub(super) const fn applied_cursor(&self) -> Option<RegisterCursor> {
        self.applied_cursor
    }

    /// Pushes all local changes. The future may be dropped at any time.
    pub(super) async fn push_changes(
        &mut self,
        register: &dyn Register,
        node: &dyn LocalNode,
    ) -> Result<(), StoreError> {
        loop {
            let (number, put) = match self.unconfirmed.take() {
                Some(again) => again,
                None => {
                    let put = node.pending_changes();
                    if put.changes().is_empty() {
                        return Ok(());
                    }
                    (
                        self.put_counter
                            .fetch_add(1, Ordering::Relaxed)
                            .saturating_add(1),
                        put,
                    )
                }
            };
            let (number, put) = &*self.unconfirmed.insert((number, put));
            match register.put(self.id, *number, put.changes()).await {
                Ok(_mark) => node.confirm_changes(put),
                Err(error) if error.is_callers_fault() => {
                    tracing::error!(%error, "operator changes rejected by the register, they apply to this node only");
                    node.discard_changes(put);
                    // Changes of other nodes to the same entries may have been skipped: pull everything again.
                    self.applied_cursor = None;
                }
                Err(error) => {
                    if !error.may_have_charged() {
                        self.unconfirmed = None;
                    }
                    return Err(error);
                }
            }
            self.unconfirmed = None;
        }
    }

    /// Pulls all entries up to this cursor and applies them.
    pub(super) async fn pull_changes(
        &mut self,
        register: &dyn Register,
        node: &dyn LocalNode,
        cursor: RegisterCursor,
    ) -> Result<(), StoreError> {
        if self.applied_cursor == Some(cursor) || self.unconfirmed.is_some() {
            return Ok(());
        }
        let since = self
            .applied_cursor
            .filter(|applied| applied.epoch == cursor.epoch);
        let is_reset = since.is_none()
            && self
                .applied_cursor
                .is_some_and(|applied| applied.epoch != 0);
        if is_reset {
            tracing::warn!("fleet register lost all operator changes, pushing them again");
            self.resend_changes(register, node, None).await?;
        }
        let mut snapshot = register.entries(since).await?;
        if snapshot.lost_after.is_some() {
            tracing::warn!("fleet register lost the latest operator changes, pushing them again");
            self.resend_changes(register, node, snapshot.lost_after)
                .await?;
            snapshot = register.entries(None).await?;
        }
        let outcome = node.apply_snapshot(&snapshot);
        self.unsupported_entries = outcome.unsupported;
        if outcome.dropped > 0 {
            let dropped = outcome.dropped;
            tracing::warn!(
                dropped,
                "operator changes of other nodes dropped, this node has too many"
            );
        }
        self.applied_cursor = Some(snapshot.cursor);
        Ok(())
    }

    /// Pushes the lost changes again. Until that succeeds, every round pulls all entries.
    async fn resend_changes(
        &mut self,
        register: &dyn Register,
        node: &dyn LocalNode,
        lost_after: Option<u64>,
    ) -> Result<(), StoreError> {
        self.applied_cursor = None;
        node.resend_changes(lost_after);
        match self.push_changes(register, node).await {
            // The register's entries can be pulled even if it takes no more.
            Err(_) if self.unconfirmed.is_none() => Ok(()),
            pushed => pushed,
        }
    }
}

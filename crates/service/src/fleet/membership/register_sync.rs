//! What operators have said, told to the register and heard from it, so that all nodes come to hold the same.
//!
//! What was said here is told first: then everything that is heard is newer than it, and none of it is heard of in the past.
//! What may have been told without an answer is told again under the same number, which the register knows; until that is
//! settled nothing is heard. Must not know: when to talk, beats.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_engine::control::RegisterChanges;
use tollgate_store::StoreError;
use tollgate_store::register::{NodeId, Register, RegisterCursor};

use super::local_node::LocalNode;

/// One node's side of the conversation.
#[derive(Debug)]
pub(super) struct RegisterSync<'a> {
    id: NodeId,
    /// The number of what was put last.
    put_counter: &'a AtomicU64,
    /// Up to where everything was heard.
    applied_mark: Option<RegisterCursor>,
    /// What may have been put, under which number.
    unconfirmed: Option<(u64, RegisterChanges)>,
    /// Entries that were heard and not understood.
    pub(super) unsupported_entries: usize,
}

impl<'a> RegisterSync<'a> {
    pub(super) const fn new(id: NodeId, puts: &'a AtomicU64) -> Self {
        Self {
            id,
            put_counter: puts,
            applied_mark: None,
            unconfirmed: None,
            unsupported_entries: 0,
        }
    }

    /// Up to where everything was heard.
    pub(super) const fn applied_mark(&self) -> Option<RegisterCursor> {
        self.applied_mark
    }

    /// Tells everything that was said here. The future may be dropped at any time.
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
                    tracing::error!(%error, "what operators said here holds on this node only");
                    node.discard_changes(put);
                    // What others said of the same may have been passed over.
                    self.applied_mark = None;
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

    /// Hears what there is to be heard up to this mark, and takes it over.
    pub(super) async fn pull_changes(
        &mut self,
        register: &dyn Register,
        node: &dyn LocalNode,
        mark: RegisterCursor,
    ) -> Result<(), StoreError> {
        if self.applied_mark == Some(mark) || self.unconfirmed.is_some() {
            return Ok(());
        }
        let since = self.applied_mark.filter(|heard| heard.epoch == mark.epoch);
        let has_lost_all =
            since.is_none() && self.applied_mark.is_some_and(|heard| heard.epoch != 0);
        if has_lost_all {
            tracing::warn!("the register has lost what operators said; it is told again");
            self.resend_changes(register, node, None).await?;
        }
        let mut said = register.entries(since).await?;
        if said.lost_after.is_some() {
            tracing::warn!("the register has lost what operators said last; it is told again");
            self.resend_changes(register, node, said.lost_after).await?;
            said = register.entries(None).await?;
        }
        let adopted = node.apply_snapshot(&said);
        self.unsupported_entries = adopted.unsupported;
        if adopted.dropped > 0 {
            let left_out = adopted.dropped;
            tracing::warn!(
                left_out,
                "there is no room for all that operators said elsewhere"
            );
        }
        self.applied_mark = Some(said.cursor);
        Ok(())
    }

    /// Tells what was lost. Until that is done, the next round hears everything.
    async fn resend_changes(
        &mut self,
        register: &dyn Register,
        node: &dyn LocalNode,
        lost_after: Option<u64>,
    ) -> Result<(), StoreError> {
        self.applied_mark = None;
        node.resend_changes(lost_after);
        match self.push_changes(register, node).await {
            // What is there can be heard, whether or not there is room for more.
            Err(_) if self.unconfirmed.is_none() => Ok(()),
            told => told,
        }
    }
}

//! What operators have said, told to the register and heard from it, so that all nodes come to hold the same.
//!
//! What was said here is told first: then everything that is heard is newer than it, and none of it is heard of in the past.
//! What may have been told without an answer is told again under the same number, which the register knows; until that is
//! settled nothing is heard. Must not know: when to talk, beats.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_engine::control::ToPut;
use tollgate_store::StoreError;
use tollgate_store::register::{Mark, NodeId, Register};

use super::node::LocalNode;

/// One node's side of the conversation.
#[derive(Debug)]
pub(super) struct Exchange<'a> {
    id: NodeId,
    /// The number of what was put last.
    puts: &'a AtomicU64,
    /// Up to where everything was heard.
    heard: Option<Mark>,
    /// What may have been put, under which number.
    in_doubt: Option<(u64, ToPut)>,
    /// Entries that were heard and not understood.
    pub(super) not_understood: usize,
}

impl<'a> Exchange<'a> {
    pub(super) const fn new(id: NodeId, puts: &'a AtomicU64) -> Self {
        Self {
            id,
            puts,
            heard: None,
            in_doubt: None,
            not_understood: 0,
        }
    }

    /// Up to where everything was heard.
    pub(super) const fn heard(&self) -> Option<Mark> {
        self.heard
    }

    /// Tells everything that was said here. The future may be dropped at any time.
    pub(super) async fn tell(
        &mut self,
        register: &dyn Register,
        node: &dyn LocalNode,
    ) -> Result<(), StoreError> {
        loop {
            let (number, put) = match self.in_doubt.take() {
                Some(again) => again,
                None => {
                    let put = node.to_put();
                    if put.changes().is_empty() {
                        return Ok(());
                    }
                    (
                        self.puts.fetch_add(1, Ordering::Relaxed).saturating_add(1),
                        put,
                    )
                }
            };
            let (number, put) = &*self.in_doubt.insert((number, put));
            match register.put(self.id, *number, put.changes()).await {
                Ok(_mark) => node.was_put(put),
                Err(error) if error.is_callers_fault() => {
                    tracing::error!(%error, "what operators said here holds on this node only");
                    node.give_up(put);
                    // What others said of the same may have been passed over.
                    self.heard = None;
                }
                Err(error) => {
                    if !error.may_have_charged() {
                        self.in_doubt = None;
                    }
                    return Err(error);
                }
            }
            self.in_doubt = None;
        }
    }

    /// Hears what there is to be heard up to this mark, and takes it over.
    pub(super) async fn hear(
        &mut self,
        register: &dyn Register,
        node: &dyn LocalNode,
        mark: Mark,
    ) -> Result<(), StoreError> {
        if self.heard == Some(mark) || self.in_doubt.is_some() {
            return Ok(());
        }
        let since = self.heard.filter(|heard| heard.epoch == mark.epoch);
        let has_lost_all = since.is_none() && self.heard.is_some_and(|heard| heard.epoch != 0);
        if has_lost_all {
            tracing::warn!("the register has lost what operators said; it is told again");
            self.tell_again(register, node, None).await?;
        }
        let mut said = register.entries(since).await?;
        if said.lost_after.is_some() {
            tracing::warn!("the register has lost what operators said last; it is told again");
            self.tell_again(register, node, said.lost_after).await?;
            said = register.entries(None).await?;
        }
        let adopted = node.adopt(&said);
        self.not_understood = adopted.not_understood;
        if adopted.left_out > 0 {
            let left_out = adopted.left_out;
            tracing::warn!(
                left_out,
                "there is no room for all that operators said elsewhere"
            );
        }
        self.heard = Some(said.mark);
        Ok(())
    }

    /// Tells what was lost. Until that is done, the next round hears everything.
    async fn tell_again(
        &mut self,
        register: &dyn Register,
        node: &dyn LocalNode,
        lost_after: Option<u64>,
    ) -> Result<(), StoreError> {
        self.heard = None;
        node.tell_again(lost_after);
        match self.tell(register, node).await {
            // What is there can be heard, whether or not there is room for more.
            Err(_) if self.in_doubt.is_none() => Ok(()),
            told => told,
        }
    }
}

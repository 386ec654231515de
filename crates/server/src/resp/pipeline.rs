//! Decisions of one connection that a fleet has to make: awaited together, answered in order.
//!
//! Up to [`MAX_PENDING`] decisions are awaited at the same time, so that pipelined commands share round trips to the store.
//! Immediate replies queue behind awaited ones, so replies stay in order. Without a fleet only ticket commands come here, one
//! at a time, and they complete at the first poll. Must not know: sockets, what commands mean.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use tollgate_core::Timestamp;

use super::batch_counts::{BatchCounts, CommandOutcome};

/// Decisions of one connection that are awaited at the same time.
pub(super) const MAX_PENDING: usize = 64;

/// The awaited decisions of one connection, in the order of their replies.
///
/// [`RespServer::feed`](super::RespServer::feed) adds decisions, [`RespServer::drain`](super::RespServer::drain) awaits them.
#[derive(Default)]
pub struct Pipeline<'s> {
    slots: VecDeque<PipelineSlot<'s>>,
    /// When the first of them was read.
    started_at: Option<Timestamp>,
}

/// A rendered reply and how it is counted.
#[derive(Debug)]
pub(super) struct RenderedReply {
    pub(super) bytes: Vec<u8>,
    pub(super) outcome: CommandOutcome,
}

enum PipelineSlot<'s> {
    Pending(Pin<Box<dyn Future<Output = RenderedReply> + Send + 's>>),
    Rendered(RenderedReply),
}

impl<'s> Pipeline<'s> {
    /// An empty pipeline.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            slots: VecDeque::new(),
            started_at: None,
        }
    }

    /// Whether no reply is awaited or queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The number of awaited and queued replies.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Adds a decision. It starts when the pipeline is drained.
    pub(super) fn push(&mut self, pending: impl Future<Output = RenderedReply> + Send + 's) {
        self.slots
            .push_back(PipelineSlot::Pending(Box::pin(pending)));
    }

    /// Writes an immediate reply: into the queue if replies are awaited, otherwise to `out`.
    pub(super) fn reply(&mut self, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        if self.slots.is_empty() {
            return write(out);
        }
        let mut bytes = Vec::new();
        write(&mut bytes);
        if !bytes.is_empty() {
            let counted = CommandOutcome::Uncounted;
            let rendered = RenderedReply {
                bytes,
                outcome: counted,
            };
            self.slots.push_back(PipelineSlot::Rendered(rendered));
        }
    }

    /// Sets when the first command was read, if it is not set yet.
    pub(super) fn set_started(&mut self, now: Timestamp) {
        self.started_at.get_or_insert(now);
    }

    /// Awaits all decisions and appends their replies in order. Returns when the first command was read.
    pub(super) async fn finish(
        &mut self,
        counts: &mut BatchCounts,
        out: &mut Vec<u8>,
    ) -> Option<Timestamp> {
        poll_fn(|context| {
            // Poll all of them, because a decision may need several calls and must not wait for earlier ones.
            self.slots.iter_mut().for_each(|slot| slot.poll(context));
            let is_rendered =
                |slot: &mut PipelineSlot<'_>| matches!(slot, PipelineSlot::Rendered(_));
            while let Some(PipelineSlot::Rendered(RenderedReply {
                bytes,
                outcome: counted,
            })) = self.slots.pop_front_if(is_rendered)
            {
                out.extend_from_slice(&bytes);
                counts.add(counted);
            }
            match self.slots.is_empty() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        self.started_at.take()
    }
}

impl PipelineSlot<'_> {
    fn poll(&mut self, context: &mut Context<'_>) {
        if let Self::Pending(pending) = self
            && let Poll::Ready(rendered) = pending.as_mut().poll(context)
        {
            *self = Self::Rendered(rendered);
        }
    }
}

impl fmt::Debug for Pipeline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline")
            .field("pending", &self.slots.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::throttle::ThrottleFamily;
    use tokio::sync::oneshot;

    fn rendered(text: &str) -> RenderedReply {
        RenderedReply {
            bytes: text.into(),
            outcome: CommandOutcome::Throttled(ThrottleFamily::RedisCell, false),
        }
    }

    #[tokio::test]
    async fn replies_leave_in_the_order_of_their_commands_whichever_is_known_first() {
        let (slow, decided) = oneshot::channel::<()>();
        let (mut pipeline, mut out) = (Pipeline::new(), Vec::new());
        pipeline.reply(&mut out, |out| out.push(b'0'));
        assert_eq!(out, b"0", "nothing is awaited");
        pipeline.push(async {
            decided.await.unwrap();
            rendered("1")
        });
        pipeline.reply(&mut out, |out| out.push(b'2'));
        pipeline.push(async {
            // The last decision completes before the first.
            slow.send(()).unwrap();
            rendered("3")
        });
        let mut counts = BatchCounts::default();
        pipeline.finish(&mut counts, &mut out).await;
        assert_eq!(out, b"0123");
        assert!(pipeline.is_empty());
    }
}

//! A connection whose commands have to be waited for: the same as beside, with buffers of its own while something is under way.
//!
//! Must not know: listeners, what commands mean.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead as _, AsyncWriteExt as _, ReadBuf};
use tokio::time::sleep;
use tollgate_store::Clock;

use super::{Connection, KEPT_INPUT_LEN, next_input, with_scratch};
use crate::listen::{ShutdownOrTimeout, Stopping};
use crate::resp::serve::RespLimits;
use crate::resp::server::Then;

/// What is read at once at most, beside the beginning of a command: connections keep it while they wait for a store.
const READ_LEN: usize = 16 * 1_024;

impl<C: Clock> Connection<C> {
    pub(super) async fn serve_patiently(
        &mut self,
        limits: RespLimits,
        stopping: &Stopping,
    ) -> io::Result<()> {
        let (stopped, timer) = (pin!(stopping.wait()), pin!(sleep(limits.idle)));
        let mut vigil = ShutdownOrTimeout::new(stopping, stopped, timer);
        loop {
            let (stream, pending) = (&mut self.stream, &mut self.pending);
            let read = |context: &mut Context<'_>| {
                with_scratch(|scratch| {
                    let free = scratch.input.get_mut(..READ_LEN).unwrap_or_default();
                    let mut free = ReadBuf::new(free);
                    ready!(Pin::new(&mut *stream).poll_read(context, &mut free))?;
                    pending.extend_from_slice(free.filled());
                    Poll::Ready(Ok(free.filled().len()))
                })
            };
            let read = next_input(&mut vigil, limits.idle, &mut self.is_busy, read).await?;
            if read.unwrap_or(0) == 0 {
                return Ok(());
            }
            if !self.answer_all(limits).await? {
                return Ok(());
            }
            if !self.is_held_within(limits.held) {
                self.refuse_to_hold();
                return Ok(());
            }
            if stopping.is_said() {
                // What had arrived is answered. Busy connections have to end too.
                return Ok(());
            }
        }
    }

    /// Answers the whole commands that have arrived. Whether there may be more.
    async fn answer_all(&mut self, limits: RespLimits) -> io::Result<bool> {
        let mut at = 0_usize;
        loop {
            let rest = self.pending.get_mut(at..).unwrap_or_default();
            // In a box that lasts as long as the answers take.
            let mut output = Vec::new();
            let (server, session) = (&self.server, &mut self.session);
            let fed = Box::pin(server.feed_together(session, rest, &mut output)).await;
            at = at.saturating_add(fed.consumed);
            self.is_ending = fed.then == Then::Close;
            self.is_busy |= fed.consumed > 0;
            self.unsent = output;
            // Who does not read answers gets no more of them.
            if !self.is_held_within(limits.held) {
                return Ok(false);
            }
            self.stream.write_all(&self.unsent).await?;
            self.stream.flush().await?;
            self.unsent = Vec::new();
            match fed.then {
                Then::GoOn => {}
                Then::Read => break,
                Then::Close => return Ok(false),
            }
        }
        self.pending.drain(..at.min(self.pending.len()));
        if self.pending.is_empty() && self.pending.capacity() > KEPT_INPUT_LEN {
            self.pending = Vec::new();
        }
        Ok(true)
    }
}

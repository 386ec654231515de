//! Serving plain requests whose answers have to be waited for: one after another, all that has arrived sent in one write.
//!
//! What `fast_path.rs` does in one breath with the thread's buffers is done here with the connection's own, which it has while
//! something is under way; one that waits for a request holds none. An answer that is there at once is taken at once. Must
//! not know: what is asked or answered, what makes a request plain, sockets.

use std::io;
use std::pin::pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;

use super::fast_path::{Round, Unsent, after, answer_all, poll_read};
use super::idle::Idle;
use crate::http::{HttpHandler, Limits};
use crate::listen::{Peer, ShutdownOrTimeout, Stopping};

/// Serves plain requests until the connection is over, or something else has arrived: then the bytes of that.
pub(crate) async fn serve<A: HttpHandler, S: AsyncRead + AsyncWrite + Unpin>(
    limits: Limits,
    handler: &A,
    stream: &mut S,
    peer: &Peer,
    stopping: &Stopping,
) -> io::Result<Option<Vec<u8>>> {
    let (stopped, timer) = (pin!(stopping.wait()), pin!(sleep(limits.head)));
    let mut idle = Idle::new(
        ShutdownOrTimeout::new(stopping, stopped, timer),
        limits.head,
    );
    loop {
        let arrived = idle.until(|context| poll_read(context, stream, <[u8]>::to_vec));
        let Some(input) = arrived.await?.filter(|input| !input.is_empty()) else {
            return Ok(None);
        };
        let mut output = Vec::new();
        let (consumed, late) = answer_all(handler, &input, peer, &mut output).await;
        let rest = input.get(consumed..).unwrap_or_default().to_vec();
        drop(input);
        let round = Round::then(rest, Some(Unsent::all(output, late)));
        if let Some(ended) = after(round, stream, handler.counters(), stopping).await? {
            return Ok(ended);
        }
        idle.again();
    }
}

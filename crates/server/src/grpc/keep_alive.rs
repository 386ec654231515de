//! HTTP/2 keepalive: pings an idle connection and closes it if no pong arrives.
//!
//! Must not know: calls.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use h2::{Ping, PingPong};
use tokio::time::{Sleep, sleep};

use super::limits::GrpcLimits;

/// The keepalive of one connection.
#[derive(Debug)]
pub(super) struct KeepAlive {
    pings: PingPong,
    timer: Pin<Box<Sleep>>,
    was_asked: bool,
}

impl KeepAlive {
    pub(super) fn new(pings: PingPong, limits: &GrpcLimits) -> Self {
        Self {
            pings,
            timer: Box::pin(sleep(limits.keepalive_interval)),
            was_asked: false,
        }
    }

    /// Ready when the connection has to be closed.
    pub(super) fn poll(&mut self, context: &mut Context<'_>, limits: &GrpcLimits) -> Poll<()> {
        loop {
            if self.was_asked && self.pings.poll_pong(context).is_ready() {
                self.was_asked = false;
                self.timer.set(sleep(limits.keepalive_interval));
            }
            if self.timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            if self.was_asked || self.pings.send_ping(Ping::opaque()).is_err() {
                return Poll::Ready(());
            }
            self.was_asked = true;
            self.timer.set(sleep(limits.keepalive_timeout));
        }
    }
}

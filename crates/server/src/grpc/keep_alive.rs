//! HTTP/2 keepalive: pings an idle connection and closes it if no pong arrives.
//!
//! Must not know: calls.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use h2::{Ping, PingPong};
use tokio::time::{Sleep, sleep};

use super::limits::GrpcLimits;
use crate::listen::CONFIRMATION;

/// The keepalive of one connection.
#[derive(Debug)]
pub(super) struct KeepAlive {
    ping_pong: PingPong,
    timer: Pin<Box<Sleep>>,
    is_ping_pending: bool,
    /// Whether the time for the pong is over. It counts only a moment later: after the process was frozen, timers expire before
    /// the system reports input.
    is_pong_late: bool,
}

impl KeepAlive {
    pub(super) fn new(ping_pong: PingPong, limits: &GrpcLimits) -> Self {
        Self {
            ping_pong,
            timer: Box::pin(sleep(limits.keepalive_interval)),
            is_ping_pending: false,
            is_pong_late: false,
        }
    }

    /// Ready when the connection has to be closed.
    pub(super) fn poll(&mut self, context: &mut Context<'_>, limits: &GrpcLimits) -> Poll<()> {
        loop {
            if self.is_ping_pending && self.ping_pong.poll_pong(context).is_ready() {
                (self.is_ping_pending, self.is_pong_late) = (false, false);
                self.timer.set(sleep(limits.keepalive_interval));
            }
            if self.timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            if self.is_ping_pending && !self.is_pong_late {
                self.is_pong_late = true;
                self.timer.set(sleep(CONFIRMATION));
                continue;
            }
            if self.is_pong_late || self.ping_pong.send_ping(Ping::opaque()).is_err() {
                return Poll::Ready(());
            }
            self.is_ping_pending = true;
            self.timer.set(sleep(limits.keepalive_timeout));
        }
    }
}

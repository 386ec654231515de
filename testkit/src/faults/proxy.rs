//! The proxy as a test holds it: every call blocks until it is so.
//!
//! Must not know: how bytes are passed on.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use super::counters::Counters;
use super::listener;
use super::proxy_state::ProxyState;
use super::reply_rewriter::{AfterRewrite, ReplyFate};
use super::toxics::{AcceptMode, Direction, Toxics};
use crate::process::failed;

/// A listener on a free loopback port that passes everything on to one server, as well or as badly as the test says. It ends,
/// with every connection, when this is dropped.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<ProxyState>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// A proxy to this server with which nothing is wrong yet.
    ///
    /// # Panics
    /// There is no free port or no thread to be had.
    #[must_use]
    pub fn to(upstream: SocketAddr) -> Self {
        Self::seeded(upstream, 0)
    }

    /// The same with another seed for what is random.
    ///
    /// # Panics
    /// There is no free port or no thread to be had.
    #[must_use]
    pub fn seeded(upstream: SocketAddr, seed: u64) -> Self {
        let shared = Arc::new(ProxyState::new(upstream, seed));
        match listener::start(&shared) {
            Ok((address, thread)) => Self {
                shared,
                address,
                thread: Some(thread),
            },
            Err(error) => failed(&format!("a proxy to {upstream} cannot be started: {error}")),
        }
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens, as a client of Redis wants it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Changes what is wrong. It concerns open connections too, from the next bytes on.
    ///
    /// # Panics
    /// The door cannot be opened again because somebody took the port.
    pub fn change(&self, change: impl FnOnce(&mut Toxics)) {
        self.shared
            .settings
            .send_modify(|settings| change(&mut settings.toxics));
        let wanted = self.shared.settings.borrow().toxics.door;
        if !self.shared.wait(|happened| happened.door == wanted) {
            failed(&format!(
                "the proxy at {} does not become {wanted:?}",
                self.address
            ));
        }
    }

    /// Nothing is wrong any more, and no reply is meddled with. Connections that lost bytes stay lost.
    ///
    /// # Panics
    /// The door cannot be opened again because somebody took the port.
    pub fn heal(&self) {
        self.shared.meddling().end();
        self.change(|toxics| *toxics = Toxics::default());
    }

    /// As if the server's process had died: nobody listens, and all connections are reset.
    ///
    /// # Panics
    /// Connections do not end.
    pub fn go_down(&self) {
        self.change(|toxics| toxics.door = AcceptMode::Closed);
        self.reset();
    }

    /// Lets clients in again.
    ///
    /// # Panics
    /// Somebody took the port.
    pub fn come_up(&self) {
        self.change(|toxics| toxics.door = AcceptMode::Open);
    }

    /// Resets every connection that is open now.
    ///
    /// # Panics
    /// They do not end.
    pub fn reset(&self) {
        self.end(|resets, _closes| *resets += 1);
    }

    /// Closes every connection that is open now, politely.
    ///
    /// # Panics
    /// They do not end.
    pub fn close(&self) {
        self.end(|_resets, closes| *closes += 1);
    }

    /// Half-closes every open connection in one direction: the receiver reads the end of the stream and may still send.
    pub fn half_close(&self, way: Direction) {
        self.shared
            .settings
            .send_modify(|settings| settings.half_close(way));
    }

    /// Leads new connections to another server. Open ones stay, as after a failover by address.
    pub fn lead_to(&self, upstream: SocketAddr) {
        self.shared
            .settings
            .send_modify(|settings| settings.upstream = upstream);
    }

    /// Loses the next `times` replies to a command, or to [`ANY`](super::ANY): the server has carried it out and the client
    /// never hears of it.
    pub fn lose_replies(&self, command: &str, times: u64, then: AfterRewrite) {
        let mut meddling = self.shared.meddling();
        meddling.add(command, times, ReplyFate::Lost(then));
    }

    /// Replaces the next `times` replies to a command, or to [`ANY`](super::ANY), by these bytes. The server has carried it out.
    pub fn replace_replies(&self, command: &str, times: u64, bytes: &[u8]) {
        let mut meddling = self.shared.meddling();
        meddling.add(command, times, ReplyFate::Replaced(bytes.to_vec()));
    }

    /// Replaces the next `times` replies to a command by an error line, such as `LOADING Redis is loading`.
    pub fn answer_with_error(&self, command: &str, times: u64, line: &str) {
        self.replace_replies(command, times, format!("-{line}\r\n").as_bytes());
    }

    /// All replies pass from now on.
    pub fn stop_meddling(&self) {
        self.shared.meddling().end();
    }

    /// What has passed so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.look(|happened| happened.counters.clone())
    }

    /// How many connections are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.shared.look(|happened| happened.open.len())
    }

    #[cfg(test)]
    pub(super) fn shared(&self) -> &ProxyState {
        &self.shared
    }

    fn end(&self, order: impl FnOnce(&mut u64, &mut u64)) {
        let open = self.shared.look(|happened| happened.open.clone());
        self.shared
            .settings
            .send_modify(|settings| order(&mut settings.resets, &mut settings.closes));
        if !self
            .shared
            .wait(|happened| happened.open.is_disjoint(&open))
        {
            failed(&format!(
                "connections through the proxy at {} do not end",
                self.address
            ));
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared
            .settings
            .send_modify(|settings| settings.is_over = true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            eprintln!("the proxy at {} had panicked", self.address);
        }
    }
}

//! What the test and the proxy's thread share: what is wrong, what is to be done, and what has happened.
//!
//! Must not know: sockets.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::counters::Counters;
use super::reply_rewriter::ReplyRewriter;
use super::toxics::{AcceptMode, Direction, Toxics};

/// How long the proxy's thread may take on a busy machine. Only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(30);

/// What the test says. Orders are numbers that grow: a connection obeys those that were given after it was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) toxics: Toxics,
    pub(super) upstream: SocketAddr,
    pub(super) resets: u64,
    pub(super) closes: u64,
    half_closes_there: u64,
    half_closes_back: u64,
    pub(super) is_over: bool,
}

impl Settings {
    pub(super) const fn half_closes(&self, way: Direction) -> u64 {
        match way {
            Direction::There => self.half_closes_there,
            Direction::Back => self.half_closes_back,
        }
    }

    pub(super) const fn half_close(&mut self, way: Direction) {
        match way {
            Direction::There => self.half_closes_there += 1,
            Direction::Back => self.half_closes_back += 1,
        }
    }
}

/// What has happened.
#[derive(Debug, Default)]
pub(super) struct ProxyEvents {
    pub(super) counters: Counters,
    /// The connections that are open, by their numbers.
    pub(super) open: BTreeSet<u64>,
    /// How the door is, which may not yet be as the test says.
    pub(super) door: AcceptMode,
}

#[derive(Debug)]
pub(super) struct ProxyState {
    pub(super) settings: watch::Sender<Settings>,
    pub(super) seed: u64,
    happened: Mutex<ProxyEvents>,
    something: Condvar,
    meddling: Mutex<ReplyRewriter>,
}

impl ProxyState {
    pub(super) fn new(upstream: SocketAddr, seed: u64) -> Self {
        let settings = Settings {
            toxics: Toxics::default(),
            upstream,
            resets: 0,
            closes: 0,
            half_closes_there: 0,
            half_closes_back: 0,
            is_over: false,
        };
        Self {
            settings: watch::Sender::new(settings),
            seed,
            happened: Mutex::default(),
            something: Condvar::new(),
            meddling: Mutex::default(),
        }
    }

    /// Notes what happens.
    pub(super) fn note<T>(&self, what: impl FnOnce(&mut ProxyEvents) -> T) -> T {
        let noted = what(&mut self.lock());
        self.something.notify_all();
        noted
    }

    /// Looks at what has happened.
    pub(super) fn look<T>(&self, what: impl FnOnce(&ProxyEvents) -> T) -> T {
        what(&self.lock())
    }

    /// Waits until it has happened. Whether it has.
    pub(super) fn wait(&self, until: impl Fn(&ProxyEvents) -> bool) -> bool {
        let waited = self
            .something
            .wait_timeout_while(self.lock(), DEADLINE, |happened| !until(happened));
        let (happened, _) = waited.unwrap_or_else(PoisonError::into_inner);
        until(&happened)
    }

    pub(super) fn meddling(&self) -> MutexGuard<'_, ReplyRewriter> {
        self.meddling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, ProxyEvents> {
        self.happened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

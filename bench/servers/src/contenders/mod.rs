//! Who is measured: a server that runs, where it listens, and how it is asked.
//!
//! Everyone is asked for the same: one unit of a key that may have ten an hour and ten million at once, so that nothing is
//! denied and every state is alive. Must not know: how anything is measured.

mod article;
mod envoy;
mod envoyproxy_ratelimit;
mod floor;
pub(crate) mod gateway;
mod limitador;
mod nginx;
mod ours;
mod redis_cell;
mod store;
mod throttlecrab;

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use crate::load::Talk;
use crate::load::open::Waiting;
use crate::measurements::Role;
use crate::process::Server;

pub(crate) use article::Article;
pub(crate) use envoy::Envoy;
pub(crate) use envoyproxy_ratelimit::EnvoyproxyRatelimit;
pub(crate) use floor::{grpc as bare_tonic, http as bare_hyper, resp as bare_echo, tonic_and_call};
pub(crate) use limitador::{Counters, Limitador};
pub(crate) use nginx::Nginx;
pub(crate) use ours::{Consistency, Ours, Setup};
pub(crate) use redis_cell::RedisCell;
pub(crate) use store::Store;
pub(crate) use throttlecrab::Throttlecrab;

/// What a key may have at once, how much more in each period, and the period in seconds.
pub(crate) const BURST: u32 = 10_000_000;
pub(crate) const COUNT: u32 = 10;
pub(crate) const PERIOD: u32 = 3_600;

/// Makes what one connection talks with.
pub(crate) type Ask = Rc<dyn Fn() -> Box<dyn Talk>>;

/// A way to ask a server.
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    pub(crate) talk: Ask,
    /// Another way to ask the same server about the same keys that is faster, to fill it.
    pub(crate) fill: Option<(SocketAddr, Ask)>,
    /// Whether it keeps anything that could be filled.
    pub(crate) has_states: bool,
    /// Whether many requests that are sent together are all answered, and without a pause.
    pub(crate) pipelines: bool,
    pub(crate) server: Rc<Server>,
    /// Whether the server runs on the core of the load too. A load that spins would keep it from running there.
    pub(crate) is_on_load_core: bool,
    /// The store that the server calls, on the core of the load.
    pub(crate) store: Option<Rc<Server>>,
    /// What the store is.
    pub(crate) store_kind: StoreKind,
    pub(crate) role: Role,
}

/// What a server calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    Redis,
    /// The server behind a proxy.
    Upstream,
}

impl StoreKind {
    /// Its name in tables, and that of its processor time in measurements.
    pub(crate) const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Redis => ("Redis CPU s per million", "store cpu"),
            Self::Upstream => ("upstream CPU s per million", "upstream cpu"),
        }
    }
}

/// Processor time that a server and its store have used so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProcessorTimes {
    pub(crate) server: Duration,
    pub(crate) store: Duration,
}

impl ProcessorTimes {
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            server: self.server.saturating_sub(before.server),
            store: self.store.saturating_sub(before.store),
        }
    }
}

impl Contender {
    /// A peer.
    fn new<T: Talk + 'static>(
        name: &'static str,
        server: &Rc<Server>,
        address: SocketAddr,
        talk: impl Fn() -> T + 'static,
    ) -> Self {
        Self {
            name,
            address,
            talk: Rc::new(move || Box::new(talk())),
            fill: None,
            has_states: true,
            pipelines: true,
            server: Rc::clone(server),
            is_on_load_core: false,
            store: None,
            store_kind: StoreKind::Redis,
            role: Role::Peer,
        }
    }

    fn ours(mut self) -> Self {
        self.role = Role::Ours;
        self
    }

    fn calling(mut self, store: Option<&Rc<Server>>) -> Self {
        self.store = store.map(Rc::clone);
        self
    }

    /// The same, which forwards to this upstream.
    fn forwarding_to(mut self, upstream: &Rc<Server>) -> Self {
        self.store = Some(Rc::clone(upstream));
        self.store_kind = StoreKind::Upstream;
        self
    }

    fn filled_by<T: Talk + 'static>(
        mut self,
        address: SocketAddr,
        talk: impl Fn() -> T + 'static,
    ) -> Self {
        self.fill = Some((address, Rc::new(move || Box::new(talk()))));
        self
    }

    /// The same, which does not answer well when many requests are sent together.
    fn stalling(mut self) -> Self {
        self.pipelines = false;
        self
    }

    /// How the load waits for the next request that is due: it spins only if it has its core for itself.
    pub(crate) fn waiting(&self) -> Waiting {
        match self.is_on_load_core || self.store.is_some() {
            true => Waiting::Sleep,
            false => Waiting::Spin,
        }
    }

    /// The same under another name.
    pub(crate) fn called(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    pub(crate) fn processor_times(&self) -> Result<ProcessorTimes, String> {
        let store = self.store.as_ref().map(|store| store.processor_time());
        Ok(ProcessorTimes {
            server: self.server.processor_time()?,
            store: store.transpose()?.unwrap_or_default(),
        })
    }
}

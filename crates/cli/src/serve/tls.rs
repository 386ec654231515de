//! Sets up TLS: its files, the watch over them, and the listeners that use it.
//!
//! Must not know: what the files contain, how TLS works.

use std::error::Error;
use std::sync::Arc;

use tollgate_core::Nanos;
use tollgate_server::listen::{ApplicationProtocol, Listener, ServerTls, TlsReload};
use tollgate_service::reload::{FileWatcher, WatchTiming};
use tollgate_store::{Clock as _, SystemClock};

use super::settings::{TlsListener, TlsOptions};

/// The TLS configuration, if TLS is enabled.
#[derive(Debug)]
pub(super) struct TlsSetup {
    tls: Option<Arc<ServerTls>>,
    listeners: Vec<TlsListener>,
    /// Watches the files until it is dropped.
    _watch: Option<FileWatcher>,
}

impl TlsSetup {
    /// Reads the files and starts to watch them.
    pub(super) fn open(options: &TlsOptions) -> Result<Self, Box<dyn Error>> {
        let tls = options
            .files()
            .map(|files| ServerTls::open(files, SystemClock::new().now()));
        let tls = tls
            .transpose()
            .map_err(|error| format!("cannot enable TLS: {error}"))?
            .map(Arc::new);
        let watch = tls.as_ref().map(|tls| {
            let looking = Arc::clone(tls);
            let timing = WatchTiming::default();
            let settle = u64::try_from(timing.settle.as_nanos()).unwrap_or(u64::MAX);
            let look = move || {
                let now = SystemClock::new().now();
                let outcome = looking.reload_if_settled(now, Nanos::from_nanos(settle));
                outcome == TlsReload::Settling
            };
            FileWatcher::watch_paths(tls.paths(), timing, look)
        });
        Ok(Self {
            listeners: options.tls_listeners.clone(),
            _watch: watch.transpose()?,
            tls,
        })
    }

    /// The current certificates, if TLS is enabled.
    pub(super) const fn tls(&self) -> Option<&Arc<ServerTls>> {
        self.tls.as_ref()
    }

    /// Whether this listener uses TLS.
    pub(super) fn is_enabled_for(&self, which: TlsListener) -> bool {
        self.tls.is_some() && self.listeners.contains(&which)
    }

    /// Wraps the listener in TLS if `--tls-listeners` names it.
    pub(super) fn wrap(&self, listener: Listener, which: TlsListener) -> Listener {
        match &self.tls {
            Some(tls) if self.is_enabled_for(which) => {
                listener.with_tls(tls.for_protocol(alpn_protocol(which)))
            }
            _ => listener,
        }
    }
}

const fn alpn_protocol(which: TlsListener) -> ApplicationProtocol {
    match which {
        TlsListener::Api | TlsListener::Admin => ApplicationProtocol::Http1,
        TlsListener::Grpc => ApplicationProtocol::Http2,
        TlsListener::Gateway => ApplicationProtocol::AnyHttp,
        TlsListener::Resp => ApplicationProtocol::Redis,
    }
}

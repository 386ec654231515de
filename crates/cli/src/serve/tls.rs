//! TLS put together: the files that were named, a watch over them, and the listeners that speak it.
//!
//! Must not know: what files say, how TLS is spoken.

use std::error::Error;
use std::sync::Arc;

use tollgate_server::listen::{Listener, ServerTls, Spoken};
use tollgate_service::reload::{Timing, Watch};
use tollgate_store::{Clock as _, SystemClock};

use super::settings::{Secured, TlsOptions};

/// TLS, if it is to be spoken.
#[derive(Debug)]
pub(super) struct Securing {
    tls: Option<Arc<ServerTls>>,
    listeners: Vec<Secured>,
    /// The files are looked at for as long as this is there.
    _watch: Option<Watch>,
}

impl Securing {
    /// Reads the files and begins to watch them.
    pub(super) fn open(options: &TlsOptions) -> Result<Self, Box<dyn Error>> {
        let tls = options
            .files()
            .map(|files| ServerTls::open(files, SystemClock::new().now()));
        let tls = tls
            .transpose()
            .map_err(|error| format!("cannot speak TLS: {error}"))?
            .map(Arc::new);
        let watch = tls.as_ref().map(|tls| {
            let looking = Arc::clone(tls);
            let look = move || _ = looking.look(SystemClock::new().now());
            Watch::over(tls.paths(), Timing::default(), look)
        });
        Ok(Self {
            listeners: options.tls_listeners.clone(),
            _watch: watch.transpose()?,
            tls,
        })
    }

    /// What is in force, if TLS is spoken.
    pub(super) const fn tls(&self) -> Option<&Arc<ServerTls>> {
        self.tls.as_ref()
    }

    /// The listener as it is to be: inside TLS, unless it is one that stays plain.
    pub(super) fn secure(&self, listener: Listener, which: Secured) -> Listener {
        match &self.tls {
            Some(tls) if self.listeners.contains(&which) => {
                listener.secured(tls.speaking(spoken(which)))
            }
            _ => listener,
        }
    }
}

const fn spoken(which: Secured) -> Spoken {
    match which {
        Secured::Api | Secured::Admin => Spoken::Http1,
        Secured::Grpc => Spoken::Http2,
        Secured::Resp => Spoken::Redis,
    }
}

//! Every place that was named, listened on: all of them, or none if one cannot be.
//!
//! Must not know: what is spoken there.

use std::error::Error;
use std::io;

use tokio::runtime::Handle;
use tollgate_server::listen::{ListenAddress, Listener};

use super::errors::BindError;
use super::settings::{Options, TlsListener};
use super::startup_message::ListenerAddresses;
use super::tls::TlsSetup;

/// Listeners, inside TLS where they are to be; those that are off are not there.
#[derive(Debug)]
pub(super) struct BoundListeners {
    pub(super) api: Option<Listener>,
    pub(super) grpc: Option<Listener>,
    pub(super) resp: Option<Listener>,
    pub(super) admin: Option<Listener>,
}

impl BoundListeners {
    /// Listens. The admin listener belongs to the runtime `aside`.
    pub(super) async fn bind_all(
        options: &Options,
        securing: &TlsSetup,
        aside: &Handle,
    ) -> Result<Self, Box<dyn Error>> {
        let secure = |listener: Option<Listener>, which| {
            listener.map(|listener| securing.wrap(listener, which))
        };
        let api = bind(&options.listen, "--listen").await?;
        let grpc = bind(&options.listen_grpc, "--listen-grpc").await?;
        let resp = bind(&options.listen_resp, "--listen-resp").await?;
        let place = options.listen_admin.clone();
        let admin = aside.spawn(async move { bind(&place, "--listen-admin").await });
        Ok(Self {
            api: secure(api, TlsListener::Api),
            grpc: secure(grpc, TlsListener::Grpc),
            resp: secure(resp, TlsListener::Resp),
            admin: secure(admin.await??, TlsListener::Admin),
        })
    }

    /// Where each is reached.
    pub(super) fn addresses(&self) -> io::Result<ListenerAddresses> {
        let reached = |listener: &Option<Listener>| {
            let listener = listener.as_ref();
            listener.map(Listener::local_endpoint).transpose()
        };
        Ok(ListenerAddresses {
            api: reached(&self.api)?,
            grpc: reached(&self.grpc)?,
            resp: reached(&self.resp)?,
            admin: reached(&self.admin)?,
        })
    }
}

async fn bind(place: &ListenAddress, option: &'static str) -> Result<Option<Listener>, BindError> {
    Listener::bind(place).await.map_err(|error| BindError {
        place: place.clone(),
        option,
        error,
    })
}

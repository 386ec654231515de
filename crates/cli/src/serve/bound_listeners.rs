//! Binds all listeners, or none if one cannot be bound.
//!
//! Must not know: the protocols of the listeners.

use std::error::Error;
use std::io;

use tokio::runtime::Handle;
use tollgate_server::listen::{ListenAddress, Listener};

use super::errors::BindError;
use super::settings::{Options, TlsListener};
use super::startup_message::ListenerAddresses;
use super::tls::TlsSetup;

/// The bound listeners, with TLS where it is enabled. A listener that is `off` is `None`.
#[derive(Debug)]
pub(super) struct BoundListeners {
    pub(super) api: Option<Listener>,
    pub(super) grpc: Option<Listener>,
    pub(super) resp: Option<Listener>,
    pub(super) admin: Option<Listener>,
    /// Also `None` without an upstream.
    pub(super) gateway: Option<Listener>,
}

impl BoundListeners {
    /// Binds all listeners. The admin listener belongs to the runtime `admin_runtime`.
    pub(super) async fn bind_all(
        options: &Options,
        tls: &TlsSetup,
        has_gateway: bool,
        admin_runtime: &Handle,
    ) -> Result<Self, Box<dyn Error>> {
        let wrap = |listener: Option<Listener>, which| {
            let listener = listener.map(|listener| tls.wrap(listener, which))?;
            Some(match options.proxy_protocol.contains(&which) {
                true => {
                    let trusted = options.trusted_proxies.clone();
                    listener.with_proxy_protocol(trusted.unwrap_or_default())
                }
                false => listener,
            })
        };
        let api = bind(&options.listen, "--listen").await?;
        let grpc = bind(&options.listen_grpc, "--listen-grpc").await?;
        let resp = bind(&options.listen_resp, "--listen-resp").await?;
        let gateway = match has_gateway {
            true => bind(&options.gateway.listen_gateway, "--listen-gateway").await?,
            false => None,
        };
        let address = options.listen_admin.clone();
        let admin = admin_runtime.spawn(async move { bind(&address, "--listen-admin").await });
        Ok(Self {
            api: wrap(api, TlsListener::Api),
            grpc: wrap(grpc, TlsListener::Grpc),
            resp: wrap(resp, TlsListener::Resp),
            admin: wrap(admin.await??, TlsListener::Admin),
            gateway: wrap(gateway, TlsListener::Gateway),
        })
    }

    /// The address of each listener.
    pub(super) fn addresses(&self) -> io::Result<ListenerAddresses> {
        let address_of = |listener: &Option<Listener>| {
            let listener = listener.as_ref();
            listener.map(Listener::local_endpoint).transpose()
        };
        Ok(ListenerAddresses {
            api: address_of(&self.api)?,
            grpc: address_of(&self.grpc)?,
            resp: address_of(&self.resp)?,
            admin: address_of(&self.admin)?,
            gateway: address_of(&self.gateway)?,
        })
    }
}

async fn bind(
    address: &ListenAddress,
    option: &'static str,
) -> Result<Option<Listener>, BindError> {
    Listener::bind(address).await.map_err(|error| BindError {
        address: address.clone(),
        option,
        error,
    })
}

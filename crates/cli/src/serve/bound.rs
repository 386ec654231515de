//! Every place that was named, listened on: all of them, or none if one cannot be.
//!
//! Must not know: what is spoken there.

use std::error::Error;
use std::io;

use tokio::runtime::Handle;
use tollgate_server::listen::{ListenAddress, Listener};

use super::announce::Places;
use super::failures::CannotListen;
use super::settings::{Options, Secured};
use super::tls::Securing;

/// Listeners, inside TLS where they are to be; those that are off are not there.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) api: Option<Listener>,
    pub(super) grpc: Option<Listener>,
    pub(super) resp: Option<Listener>,
    pub(super) admin: Option<Listener>,
}

impl Bound {
    /// Listens. The admin listener belongs to the runtime `aside`.
    pub(super) async fn everywhere(
        options: &Options,
        securing: &Securing,
        aside: &Handle,
    ) -> Result<Self, Box<dyn Error>> {
        let secure = |listener: Option<Listener>, which| {
            listener.map(|listener| securing.secure(listener, which))
        };
        let api = listen(&options.listen, "--listen").await?;
        let grpc = listen(&options.listen_grpc, "--listen-grpc").await?;
        let resp = listen(&options.listen_resp, "--listen-resp").await?;
        let place = options.listen_admin.clone();
        let admin = aside.spawn(async move { listen(&place, "--listen-admin").await });
        Ok(Self {
            api: secure(api, Secured::Api),
            grpc: secure(grpc, Secured::Grpc),
            resp: secure(resp, Secured::Resp),
            admin: secure(admin.await??, Secured::Admin),
        })
    }

    /// Where each is reached.
    pub(super) fn places(&self) -> io::Result<Places> {
        let reached = |listener: &Option<Listener>| {
            let listener = listener.as_ref();
            listener.map(Listener::reached).transpose()
        };
        Ok(Places {
            api: reached(&self.api)?,
            grpc: reached(&self.grpc)?,
            resp: reached(&self.resp)?,
            admin: reached(&self.admin)?,
        })
    }
}

async fn listen(
    place: &ListenAddress,
    option: &'static str,
) -> Result<Option<Listener>, CannotListen> {
    Listener::bind(place).await.map_err(|error| CannotListen {
        place: place.clone(),
        option,
        error,
    })
}

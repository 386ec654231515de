//! The HTTP client of commands that call servers: `call` and `load`.
//!
//! Must not know: why requests are sent.

mod request_template;
mod resolver;
mod target;
mod tls;

pub(crate) use request_template::RequestTemplate;
pub(crate) use target::Target;
pub(crate) use tls::TlsOptions;

use std::error::Error;
use std::io;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use resolver::HostResolver;

use crate::output::CommandError;

/// Bodies are small and sent whole.
pub(crate) type RequestBody = Full<Bytes>;

/// Why a request has no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestFailure {
    /// No connection.
    Connect,
    /// No response in time.
    Timeout,
    /// The connection ended first.
    Closed,
    /// What came back is not HTTP, or has a head that is too large.
    InvalidResponse,
    /// No connection, because TLS failed.
    Tls,
    /// The request cannot be built, for example because a log has an invalid path.
    Invalid,
}

impl RequestFailure {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Connect => "no connection",
            Self::Timeout => "timeout",
            Self::Closed => "connection closed",
            Self::InvalidResponse => "invalid response",
            Self::Tls => "no TLS connection (is the certificate trusted?)",
            Self::Invalid => "invalid request",
        }
    }
}

fn failure(error: &hyper_util::client::legacy::Error) -> RequestFailure {
    let first: &(dyn Error + 'static) = error;
    let mut causes = std::iter::successors(Some(first), |error| (*error).source());
    if error.is_connect() {
        return match causes.any(is_tls) {
            true => RequestFailure::Tls,
            false => RequestFailure::Connect,
        };
    }
    let is_invalid = |error: &(dyn Error + 'static)| {
        let error = error.downcast_ref::<hyper::Error>();
        error.is_some_and(|error| error.is_parse() || error.is_parse_too_large())
    };
    match causes.any(is_invalid) {
        true => RequestFailure::InvalidResponse,
        false => RequestFailure::Closed,
    }
}

/// Whether TLS failed. Its error is wrapped in errors of input and output, which do not name it as their source.
fn is_tls(error: &(dyn Error + 'static)) -> bool {
    let wrapped = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    error.is::<rustls::Error>() || wrapped.is_some_and(|error| is_tls(error))
}

/// A client with a pool of connections. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct HttpClient(Client<HttpsConnector<HttpConnector<HostResolver>>, RequestBody>);

impl HttpClient {
    /// A client for one target.
    pub(crate) fn new(
        target: &Target,
        is_http2: bool,
        max_idle: u32,
        tls: &TlsOptions,
    ) -> Result<Self, CommandError> {
        let mut tcp = HttpConnector::new_with_resolver(HostResolver {
            is_loopback_only: target.is_loopback_only(),
        });
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        let builder = HttpsConnectorBuilder::new()
            .with_tls_config(tls.client_config()?)
            .https_or_http();
        let connector = match is_http2 {
            true => builder.enable_http2().wrap_connector(tcp),
            false => builder.enable_http1().wrap_connector(tcp),
        };
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(usize::try_from(max_idle).unwrap_or(usize::MAX))
            .http2_only(is_http2)
            .build(connector);
        Ok(Self(client))
    }

    /// Sends a request.
    pub(crate) async fn request(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, RequestFailure> {
        let sent = self.0.request(request).await;
        sent.map_err(|error| failure(&error))
    }

    /// Sends a request and reads the response to its end. Returns the status.
    pub(crate) async fn send(&self, request: Request<RequestBody>) -> Result<u16, RequestFailure> {
        let response = self.request(request).await?;
        let status = response.status().as_u16();
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            // The bytes are dropped as they come, so a large body takes no memory.
            frame.map_err(|_broken| RequestFailure::Closed)?;
        }
        Ok(status)
    }
}

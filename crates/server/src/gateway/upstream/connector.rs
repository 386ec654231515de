//! Connects to one address of an upstream: TCP or a Unix socket, then TLS for `https`.
//!
//! Must not know: HTTP, pools.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tollgate_policy::model::{
    UpstreamAddress, UpstreamEndpoint, UpstreamProtocol, UpstreamTlsSpec,
};

use super::stream::UpstreamStream;
use crate::listen::{InvalidTls, load_certificates, load_private_key};

/// Connects to one address.
pub(super) struct Connector {
    address: UpstreamAddress,
    tls: Option<ConnectorTls>,
    timeout: Duration,
}

/// The TLS settings of an `https` address.
struct ConnectorTls {
    /// Offers HTTP/2 and HTTP/1.1.
    any: TlsConnector,
    /// Offers HTTP/1.1 only, for upgrades.
    http1: TlsConnector,
    name: ServerName<'static>,
}

/// Which versions of HTTP the connection may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum HttpVersions {
    Any,
    Http1Only,
}

/// A connection, and whether it speaks HTTP/2.
pub(super) struct Connected {
    pub(super) stream: UpstreamStream,
    pub(super) is_http2: bool,
}

impl Connector {
    pub(super) fn new(
        address: UpstreamAddress,
        tls: Option<&Arc<ClientConfig>>,
        server_name: Option<&str>,
        timeout: Duration,
    ) -> Result<Self, InvalidTls> {
        let tls = match (&address.endpoint, address.protocol, tls) {
            (UpstreamEndpoint::Tcp(host, _), UpstreamProtocol::Https, Some(config)) => {
                Some(ConnectorTls::new(config, server_name.unwrap_or(host))?)
            }
            _ => None,
        };
        Ok(Self {
            address,
            tls,
            timeout,
        })
    }

    pub(super) const fn address(&self) -> &UpstreamAddress {
        &self.address
    }

    /// Connects within the timeout, which includes the TLS handshake.
    pub(super) async fn connect(&self, versions: HttpVersions) -> io::Result<Connected> {
        // Boxed, because the handshake is large and rare.
        match timeout(self.timeout, Box::pin(self.connect_now(versions))).await {
            Ok(connected) => connected,
            Err(_elapsed) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    async fn connect_now(&self, versions: HttpVersions) -> io::Result<Connected> {
        let is_h2c = self.address.protocol == UpstreamProtocol::H2c;
        let (host, port) = match &self.address.endpoint {
            #[cfg(unix)]
            UpstreamEndpoint::Unix(path) => {
                let stream = tokio::net::UnixStream::connect(&**path).await?;
                return Ok(Connected {
                    stream: UpstreamStream::Unix(stream),
                    is_http2: false,
                });
            }
            #[cfg(not(unix))]
            UpstreamEndpoint::Unix(_) => return Err(io::ErrorKind::Unsupported.into()),
            UpstreamEndpoint::Tcp(host, port) => (host, *port),
        };
        if is_h2c && versions == HttpVersions::Http1Only {
            let reason = "an h2c upstream has no upgrades";
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        let stream = TcpStream::connect((&**host, port)).await?;
        // Heads and frames are written whole, so Nagle's algorithm would only delay them.
        stream.set_nodelay(true)?;
        let Some(tls) = &self.tls else {
            return Ok(Connected {
                stream: UpstreamStream::Tcp(stream),
                is_http2: is_h2c,
            });
        };
        let connector = match versions {
            HttpVersions::Any => &tls.any,
            HttpVersions::Http1Only => &tls.http1,
        };
        let stream = connector.connect(tls.name.clone(), stream).await?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok(Connected {
            stream: UpstreamStream::Tls(Box::new(stream)),
            is_http2,
        })
    }
}

impl ConnectorTls {
    fn new(config: &Arc<ClientConfig>, name: &str) -> Result<Self, InvalidTls> {
        let server_name = ServerName::try_from(name.to_owned()).map_err(|error| {
            InvalidTls::new(
                Path::new(name),
                format!("it is not the name of a server: {error}"),
            )
        })?;
        let offering = |protocols: &[&[u8]]| {
            let mut config = ClientConfig::clone(config);
            config.alpn_protocols = protocols.iter().map(|id| id.to_vec()).collect();
            TlsConnector::from(Arc::new(config))
        };
        Ok(Self {
            any: offering(&[b"h2", b"http/1.1"]),
            http1: offering(&[b"http/1.1"]),
            name: server_name,
        })
    }
}

/// The TLS configuration of an upstream, from its files.
pub(super) fn client_config(spec: &UpstreamTlsSpec) -> Result<Arc<ClientConfig>, InvalidTls> {
    let about = |file: &Option<Box<str>>, error: rustls::Error| {
        let path = Path::new(file.as_deref().unwrap_or("tls"));
        InvalidTls::new(path, error.to_string())
    };
    let mut roots = RootCertStore::empty();
    match &spec.ca {
        Some(file) => {
            for authority in load_certificates(Path::new(&**file))? {
                roots
                    .add(authority)
                    .map_err(|error| about(&spec.ca, error))?;
            }
        }
        None => {
            // What cannot be read is left out; without any authority every handshake fails and says so.
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| about(&spec.ca, error))?
        .with_root_certificates(roots);
    let config = match (&spec.certificate, &spec.key) {
        (Some(certificate), Some(key)) => {
            let chain = load_certificates(Path::new(&**certificate))?;
            let key_der = load_private_key(Path::new(&**key))?;
            builder
                .with_client_auth_cert(chain, key_der)
                .map_err(|error| about(&spec.certificate, error))?
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(Arc::new(config))
}

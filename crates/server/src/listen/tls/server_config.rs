//! The protocols that run inside TLS, and one `ServerConfig` for each.
//!
//! Must not know: files, time.

use std::fmt;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use tokio_rustls::TlsAcceptor;

use super::ServerTls;
use super::files::TlsMaterial;

/// The protocol of a listener, as ALPN negotiates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplicationProtocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 only, for gRPC.
    Http2,
    /// HTTP/2 or HTTP/1.1, for the gateway.
    AnyHttp,
    /// The Redis protocol, which has no ALPN id.
    Redis,
}

impl ApplicationProtocol {
    /// The ALPN ids, the preferred one first.
    const fn alpn_ids(self) -> &'static [&'static [u8]] {
        match self {
            Self::Http1 => &[b"http/1.1"],
            Self::Http2 => &[b"h2"],
            Self::AnyHttp => &[b"h2", b"http/1.1"],
            Self::Redis => &[],
        }
    }
}

/// One `ServerConfig` for each protocol, from the same files.
pub(super) struct ServerConfigs {
    http1: Arc<ServerConfig>,
    http2: Arc<ServerConfig>,
    any_http: Arc<ServerConfig>,
    redis: Arc<ServerConfig>,
}

impl ServerConfigs {
    pub(super) fn new(material: TlsMaterial) -> Result<Self, rustls::Error> {
        let base = base_config(material)?;
        let config_for = |protocol: ApplicationProtocol| {
            let mut config = base.clone();
            config.alpn_protocols = protocol.alpn_ids().iter().map(|id| id.to_vec()).collect();
            Arc::new(config)
        };
        Ok(Self {
            http1: config_for(ApplicationProtocol::Http1),
            http2: config_for(ApplicationProtocol::Http2),
            any_http: config_for(ApplicationProtocol::AnyHttp),
            redis: config_for(ApplicationProtocol::Redis),
        })
    }

    pub(super) const fn for_protocol(&self, protocol: ApplicationProtocol) -> &Arc<ServerConfig> {
        match protocol {
            ApplicationProtocol::Http1 => &self.http1,
            ApplicationProtocol::Http2 => &self.http2,
            ApplicationProtocol::AnyHttp => &self.any_http,
            ApplicationProtocol::Redis => &self.redis,
        }
    }
}

/// The settings that all protocols share: TLS 1.2 and 1.3.
fn base_config(material: TlsMaterial) -> Result<ServerConfig, rustls::Error> {
    let TlsMaterial {
        provider,
        identity,
        clients,
        ..
    } = material;
    let is_mutual = clients.is_some();
    let verifier = clients.unwrap_or_else(WebPkiClientVerifier::no_client_auth);
    let resolver: Arc<dyn ResolvesServerCert> = Arc::new(SingleCertAndKey::from(identity));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(resolver);
    if is_mutual {
        // A resumed session presents no certificate, so an expired or replaced one could still connect.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}

/// The TLS settings of one listener. Every handshake uses the configuration that is current when it begins.
#[derive(Clone)]
pub struct ListenerTls {
    tls: Arc<ServerTls>,
    protocol: ApplicationProtocol,
}

impl ListenerTls {
    pub(super) const fn new(tls: Arc<ServerTls>, protocol: ApplicationProtocol) -> Self {
        Self { tls, protocol }
    }

    pub(in crate::listen) fn acceptor(&self) -> TlsAcceptor {
        let current = self.tls.current.load();
        TlsAcceptor::from(Arc::clone(current.configs.for_protocol(self.protocol)))
    }
}

impl fmt::Debug for ListenerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Secured").field(&self.protocol).finish()
    }
}

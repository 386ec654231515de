//! TLS settings for Redis: trusted roots and the client certificate.
//!
//! Must not know: connections.

use std::fmt;

use tollgate_store::{StoreError, StoreErrorKind};

/// Certificates for `rediss` addresses. Without roots the system's roots are trusted.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct RedisTls {
    /// The trusted authorities as PEM, instead of the system's.
    pub roots: Option<Vec<u8>>,
    /// The client certificate and its key as PEM, for servers that ask for one.
    pub identity: Option<ClientIdentity>,
}

/// A client certificate and its key, as PEM.
#[derive(Clone)]
pub struct ClientIdentity {
    /// The certificate chain.
    pub certificate: Vec<u8>,
    /// The private key. It is never shown.
    pub key: Vec<u8>,
}

impl fmt::Debug for RedisTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisTls")
            .field("has_roots", &self.roots.is_some())
            .field("has_identity", &self.identity.is_some())
            .finish()
    }
}

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIdentity").finish_non_exhaustive()
    }
}

/// Makes TLS connections with the certificates of [`RedisTls`].
#[cfg(feature = "tls")]
#[derive(Clone)]
pub(crate) struct TlsClient(std::sync::Arc<rustls::ClientConfig>);

#[cfg(not(feature = "tls"))]
#[derive(Clone, Debug)]
pub(crate) enum TlsClient {}

#[cfg(feature = "tls")]
impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsClient").finish_non_exhaustive()
    }
}

#[cfg(feature = "tls")]
impl TlsClient {
    /// A client that trusts the given roots, or those of the system.
    ///
    /// # Errors
    ///
    /// The PEM data contains no certificate, or key and certificate do not fit.
    pub(crate) fn new(tls: &RedisTls) -> Result<Self, StoreError> {
        use rustls::pki_types::PrivateKeyDer;
        use rustls::pki_types::pem::PemObject as _;

        let unreadable = || wrong("the certificates for TLS cannot be read");
        let mut roots = rustls::RootCertStore::empty();
        let trusted = match &tls.roots {
            Some(pem) => certificates(pem)?,
            None => rustls_native_certs::load_native_certs().certs,
        };
        // A system's list may have entries that rustls does not read; one of the operator's must be readable.
        let (_added, ignored) = roots.add_parsable_certificates(trusted);
        if ignored > 0 && tls.roots.is_some() {
            return Err(unreadable());
        }
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|_unsupported| unreadable())?
            .with_root_certificates(roots);
        let config = match &tls.identity {
            None => config.with_no_client_auth(),
            Some(identity) => {
                let chain = certificates(&identity.certificate)?;
                let key = PrivateKeyDer::from_pem_slice(&identity.key);
                let key = key.map_err(|_may_quote| unreadable())?;
                let config = config.with_client_auth_cert(chain, key);
                config.map_err(|_do_not_fit| unreadable())?
            }
        };
        Ok(Self(std::sync::Arc::new(config)))
    }

    /// Shakes hands with a server that must have a certificate for this host.
    pub(crate) async fn connect(
        &self,
        host: &str,
        stream: tokio::net::TcpStream,
    ) -> std::io::Result<tokio_rustls::client::TlsStream<tokio::net::TcpStream>> {
        let name = rustls::pki_types::ServerName::try_from(host.to_owned());
        let name = name.map_err(std::io::Error::other)?;
        let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::clone(&self.0));
        connector.connect(name, stream).await
    }
}

/// The certificates in PEM data. Data without any would mean a client that trusts no server.
#[cfg(feature = "tls")]
fn certificates(pem: &[u8]) -> Result<Vec<rustls::pki_types::CertificateDer<'static>>, StoreError> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err(wrong("the PEM data for TLS contains no certificate")),
    }
}

#[cfg(not(feature = "tls"))]
impl TlsClient {
    pub(crate) fn new(_tls: &RedisTls) -> Result<Self, StoreError> {
        Err(wrong("this build has no TLS; enable the feature `tls`"))
    }
}

fn wrong(detail: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::BadRequest, detail)
}

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

#[cfg(feature = "tls")]
impl RedisTls {
    pub(crate) const fn is_given(&self) -> bool {
        self.roots.is_some() || self.identity.is_some()
    }

    pub(crate) fn certificates(&self) -> redis::TlsCertificates {
        redis::TlsCertificates {
            client_tls: self
                .identity
                .as_ref()
                .map(|identity| redis::ClientTlsConfig {
                    client_cert: identity.certificate.clone(),
                    client_key: identity.key.clone(),
                }),
            root_cert: self.roots.clone(),
        }
    }
}

/// Installs the cryptography provider for the process unless there is one, and checks the certificates.
///
/// # Errors
///
/// This build has no TLS, or the PEM data contains no certificate.
#[cfg(feature = "tls")]
pub(crate) fn prepare_tls(tls: &RedisTls) -> Result<(), StoreError> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    // An error means that a provider is installed already.
    let _is_first = rustls::crypto::ring::default_provider().install_default();
    let given = [
        tls.roots.as_ref(),
        tls.identity.as_ref().map(|identity| &identity.certificate),
    ];
    for pem in given.into_iter().flatten() {
        // The client would treat a file without certificates as one that trusts no server.
        if !matches!(CertificateDer::pem_slice_iter(pem).next(), Some(Ok(_))) {
            return Err(wrong("the PEM data for TLS contains no certificate"));
        }
    }
    Ok(())
}

#[cfg(not(feature = "tls"))]
pub(crate) fn ready(_tls: &RedisTls) -> Result<(), StoreError> {
    Err(wrong("this build has no TLS; enable the feature `tls`"))
}

fn wrong(detail: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::BadRequest, detail)
}

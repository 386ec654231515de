//! Which servers a command trusts over TLS.
//!
//! Must not know: HTTP.

use std::path::PathBuf;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use crate::output::CommandError;

#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct TlsOptions {
    /// Trust the certificates of this file (PEM) instead of those of the system
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
}

impl TlsOptions {
    pub(super) fn client_config(&self) -> Result<ClientConfig, CommandError> {
        let other = |error: String| CommandError::Other(error.into());
        let mut roots = RootCertStore::empty();
        match &self.cacert {
            Some(path) => {
                let failed = |error: String| other(format!("--cacert {}: {error}", path.display()));
                let certificates = CertificateDer::pem_file_iter(path)
                    .map_err(|error| failed(error.to_string()))?;
                for certificate in certificates {
                    let certificate = certificate.map_err(|error| failed(error.to_string()))?;
                    roots
                        .add(certificate)
                        .map_err(|error| failed(error.to_string()))?;
                }
                if roots.is_empty() {
                    return Err(failed("the file has no certificate".to_owned()));
                }
            }
            // A system without authorities can still call http.
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let provider = rustls::crypto::ring::default_provider();
        let config = ClientConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .map_err(|error| other(error.to_string()))?;
        Ok(config.with_root_certificates(roots).with_no_client_auth())
    }
}

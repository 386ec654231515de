//! Reads the TLS files within size bounds, parses them and checks that they fit together.
//!
//! Must not know: when they are reloaded, how the result is used.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use tollgate_core::Timestamp;
use tollgate_files::{FileWorker, read_regular};

use super::invalid_tls::InvalidTls;
use super::validity::{Validity, format_utc};

/// Five times the size of a bundle with all certificate authorities that browsers trust.
const MAX_FILE_LEN: u64 = 1 << 20;

/// The files of a TLS configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate in PEM, followed by its intermediate certificates.
    pub certificate: PathBuf,
    /// Its private key in PEM, not encrypted.
    pub key: PathBuf,
    /// The certificate authorities of client certificates, in PEM. With this file, clients without a certificate of theirs are
    /// refused.
    pub client_authorities: Option<PathBuf>,
}

/// The bytes of the files.
#[derive(Hash)]
pub(super) struct TlsFileContents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_authorities: Option<Vec<u8>>,
}

/// The parsed files.
pub(super) struct TlsMaterial {
    pub(super) provider: Arc<CryptoProvider>,
    pub(super) identity: Arc<CertifiedKey>,
    pub(super) clients: Option<Arc<dyn ClientCertVerifier>>,
    pub(super) expires: Timestamp,
}

impl TlsFiles {
    /// The paths of all files.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let Self {
            certificate,
            key,
            client_authorities,
        } = self;
        let always = [certificate.as_path(), key.as_path()].into_iter();
        always.chain(client_authorities.as_deref())
    }

    /// Reads the files on the worker's thread.
    pub(super) fn read_on(&self, worker: &FileWorker) -> Result<TlsFileContents, InvalidTls> {
        let files = self.clone();
        let contents = worker.run(move || files.read());
        contents.unwrap_or_else(|error| Err(InvalidTls::new(&self.certificate, error.to_string())))
    }

    fn read(&self) -> Result<TlsFileContents, InvalidTls> {
        Ok(TlsFileContents {
            certificate: read(&self.certificate)?,
            key: read(&self.key)?,
            client_authorities: self.client_authorities.as_deref().map(read).transpose()?,
        })
    }

    pub(super) fn parse(
        &self,
        contents: &TlsFileContents,
        now: Timestamp,
    ) -> Result<TlsMaterial, InvalidTls> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = certificates(&self.certificate, &contents.certificate)?;
        let expires = self.check_validity(&chain, now)?;
        let key = private_key(&self.key, &contents.key)?;
        let identity = CertifiedKey::from_der(chain, key, &provider)
            .map_err(|error| self.key_pair_error(&error))?;
        let clients = match (&self.client_authorities, &contents.client_authorities) {
            (Some(file), Some(bytes)) => Some(verifier(file, bytes, &provider)?),
            _ => None,
        };
        Ok(TlsMaterial {
            provider,
            identity: Arc::new(identity),
            clients,
            expires,
        })
    }

    /// The expiry of the certificate. Fails if the certificate is not valid now.
    fn check_validity(
        &self,
        chain: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> Result<Timestamp, InvalidTls> {
        let invalid = |reason: String| Err(InvalidTls::new(&self.certificate, reason));
        let Some(validity) = chain.first().and_then(|first| Validity::parse(first)) else {
            return invalid("the certificate is not valid X.509".to_owned());
        };
        if validity.until <= now {
            return invalid(format!(
                "the certificate expired on {}",
                format_utc(validity.until)
            ));
        }
        if validity.from > now {
            let from = format_utc(validity.from);
            return invalid(format!("the certificate is not valid before {from}"));
        }
        Ok(validity.until)
    }

    fn key_pair_error(&self, error: &rustls::Error) -> InvalidTls {
        match error {
            rustls::Error::InconsistentKeys(_) => {
                let certificate = self.certificate.display();
                let reason = format!("the key does not belong to the certificate in {certificate}");
                InvalidTls::new(&self.key, reason)
            }
            rustls::Error::InvalidCertificate(error) => {
                let reason = format!("the certificate is invalid: {error}");
                InvalidTls::new(&self.certificate, reason)
            }
            other => InvalidTls::new(&self.key, format!("the key cannot be used: {other}")),
        }
    }
}

/// Reads a PEM file of certificates.
pub(crate) fn load_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, InvalidTls> {
    certificates(path, &read(path)?)
}

/// Reads a PEM file of a private key.
pub(crate) fn load_private_key(path: &Path) -> Result<PrivateKeyDer<'static>, InvalidTls> {
    private_key(path, &read(path)?)
}

fn read(path: &Path) -> Result<Vec<u8>, InvalidTls> {
    let unreadable =
        |error: io::Error| InvalidTls::new(path, format!("it cannot be read: {error}"));
    read_regular(path, MAX_FILE_LEN).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => InvalidTls::new(path, "it is longer than 1 MiB"),
        _ => unreadable(error),
    })
}

fn certificates(path: &Path, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, InvalidTls> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    match chain {
        Ok(chain) if chain.is_empty() => Err(InvalidTls::new(
            path,
            "there is no certificate in it; it must be PEM, with a line `-----BEGIN CERTIFICATE-----`",
        )),
        Ok(chain) => Ok(chain),
        Err(error) => Err(InvalidTls::new(path, format!("it is not PEM: {error}"))),
    }
}

fn private_key(path: &Path, bytes: &[u8]) -> Result<PrivateKeyDer<'static>, InvalidTls> {
    let invalid = |reason: String| InvalidTls::new(path, reason);
    PrivateKeyDer::from_pem_slice(bytes).map_err(|error| match error {
        rustls::pki_types::pem::Error::NoItemsFound if is_encrypted(bytes) => {
            invalid("the key is encrypted; it must be unencrypted PEM, readable only by this program".to_owned())
        }
        rustls::pki_types::pem::Error::NoItemsFound => {
            invalid("there is no private key in it; it must be PEM, with a line `-----BEGIN PRIVATE KEY-----`".to_owned())
        }
        other => invalid(format!("it is not PEM: {other}")),
    })
}

fn is_encrypted(bytes: &[u8]) -> bool {
    let mark = b"BEGIN ENCRYPTED PRIVATE KEY";
    bytes.windows(mark.len()).any(|found| found == mark)
}

fn verifier(
    path: &Path,
    bytes: &[u8],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, InvalidTls> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(path, bytes)? {
        roots.add(authority).map_err(|error| {
            let reason = format!("it contains a certificate that cannot be an authority: {error}");
            InvalidTls::new(path, reason)
        })?;
    }
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build();
    verifier.map_err(|error| InvalidTls::new(path, error.to_string()))
}

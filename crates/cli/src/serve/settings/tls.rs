//! What can be set about TLS.
//!
//! Must not know: how it is spoken.

use std::path::PathBuf;

use clap::ValueEnum;
use tollgate_server::listen::TlsFiles;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct TlsOptions {
    /// The certificate to show, followed by those between it and its authority, in PEM. Changed files are put in force at once if they are right; SIGHUP looks at them too. Unix sockets stay plain
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_key",
        env = "TOLLGATE_TLS_CERT"
    )]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The certificate's private key, in PEM and not encrypted
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_cert",
        env = "TOLLGATE_TLS_KEY"
    )]
    pub(crate) tls_key: Option<PathBuf>,
    /// Authorities of clients' certificates, in PEM: whoever shows none of theirs is turned away
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_cert",
        env = "TOLLGATE_TLS_CLIENT_CA"
    )]
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// The listeners that speak TLS, separated by commas; the others stay plain
    #[arg(
        long,
        value_name = "LISTENERS",
        value_delimiter = ',',
        default_value = "api,grpc,resp,admin",
        env = "TOLLGATE_TLS_LISTENERS"
    )]
    pub(crate) tls_listeners: Vec<TlsListener>,
}

/// A listener that can speak TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TlsListener {
    Api,
    Grpc,
    Resp,
    Admin,
}

impl TlsOptions {
    /// The files, if TLS is to be spoken at all.
    pub(crate) fn files(&self) -> Option<TlsFiles> {
        // One is not accepted without the other.
        let (certificate, key) = (self.tls_cert.clone()?, self.tls_key.clone()?);
        Some(TlsFiles {
            certificate,
            key,
            client_authorities: self.tls_client_ca.clone(),
        })
    }
}

//! Settings of TLS.
//!
//! Must not know: how TLS works.

use std::path::PathBuf;

use clap::ValueEnum;
use tollgate_server::listen::TlsFiles;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct TlsOptions {
    /// Server certificate with its intermediate certificates, in PEM. Tollgate reloads the files when they change and on SIGHUP, and
    /// keeps the old ones if the new ones are invalid. Unix sockets never use TLS
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_key",
        env = "TOLLGATE_TLS_CERT"
    )]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM and not encrypted
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_cert",
        env = "TOLLGATE_TLS_KEY"
    )]
    pub(crate) tls_key: Option<PathBuf>,
    /// CA certificates for client certificates, in PEM. If set, clients without a certificate of these CAs are refused
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_cert",
        env = "TOLLGATE_TLS_CLIENT_CA"
    )]
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// Listeners that use TLS, separated by commas
    #[arg(
        long,
        value_name = "LISTENERS",
        value_delimiter = ',',
        default_value = "api,grpc,resp,admin,gateway",
        env = "TOLLGATE_TLS_LISTENERS"
    )]
    pub(crate) tls_listeners: Vec<TlsListener>,
}

/// A listener that can use TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TlsListener {
    Api,
    Grpc,
    Resp,
    Admin,
    Gateway,
}

impl TlsOptions {
    /// The files, if TLS is enabled.
    pub(crate) fn files(&self) -> Option<TlsFiles> {
        // clap requires both or none.
        let (certificate, key) = (self.tls_cert.clone()?, self.tls_key.clone()?);
        Some(TlsFiles {
            certificate,
            key,
            client_authorities: self.tls_client_ca.clone(),
        })
    }
}

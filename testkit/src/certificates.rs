//! Certificates for tests of TLS: an authority, and what it signs. Made anew for every test; none is kept anywhere.
//!
//! Must not know: who shows them, or looks at them.
#![allow(
    clippy::expect_used,
    reason = "names are the test's own, and without randomness no test can go on"
)]

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};

/// A certificate and its key, in PEM.
#[derive(Debug)]
pub struct CertificateAndKey {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

/// Who signs certificates.
#[derive(Debug)]
pub struct CertificateAuthority(CertifiedIssuer<'static, KeyPair>);

impl CertificateAuthority {
    /// An authority of this name.
    ///
    /// # Panics
    /// Where there is no randomness to be had.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let mut params = named(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Self(CertifiedIssuer::self_signed(params, fresh_key()).expect("a name can be signed"))
    }

    /// Its own certificate, in PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// What a server at 127.0.0.1 and `localhost` shows.
    #[must_use]
    pub fn server(&self, name: &str) -> CertificateAndKey {
        self.signed(&served(name))
    }

    /// The same, valid from one year's first day to another's.
    #[must_use]
    pub fn server_between(&self, name: &str, from: i32, until: i32) -> CertificateAndKey {
        let mut params = served(name);
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        self.signed(&params)
    }

    /// What a client shows.
    #[must_use]
    pub fn client(&self, name: &str) -> CertificateAndKey {
        let mut params = named(name, &[]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.signed(&params)
    }

    fn signed(&self, params: &CertificateParams) -> CertificateAndKey {
        let key = fresh_key();
        let certificate = params
            .signed_by(&key, &self.0)
            .expect("an authority can sign");
        CertificateAndKey {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}

fn served(name: &str) -> CertificateParams {
    let mut params = named(name, &["localhost", "127.0.0.1"]);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

fn named(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut params = CertificateParams::new(hosts).expect("host names that can be written");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn fresh_key() -> KeyPair {
    KeyPair::generate().expect("the operating system has randomness")
}

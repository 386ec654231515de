//! Valid and invalid TLS files, at the start and after a change.

use std::path::PathBuf;

use tollgate_core::{Nanos, Timestamp};
use tollgate_testkit::certificates::CertificateAuthority;

use super::{DAY, EXPIRY_WARNING, ServerTls, TlsFiles, TlsReload};

/// A time at which the certificates of these tests are valid.
const NOW: Timestamp = Timestamp::from_secs(1_790_000_000); // 2026-09-21

/// A directory that is removed at the end of the test.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tollgate-tls-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).unwrap();
    }

    fn files(&self) -> TlsFiles {
        TlsFiles {
            certificate: self.0.join("cert.pem"),
            key: self.0.join("key.pem"),
            client_authorities: None,
        }
    }

    /// Writes a certificate and key that are valid in these years.
    fn pair(&self, authority: &CertificateAuthority, from: i32, until: i32) {
        let pair = authority.server_between("server", from, until);
        self.write("cert.pem", &pair.certificate);
        self.write("key.pem", &pair.key);
    }

    /// The error without the path of the directory.
    fn load_error(&self) -> String {
        let error = ServerTls::open(self.files(), NOW).unwrap_err().to_string();
        error.replace(&format!("{}/", self.0.display()), "")
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn load_errors_name_the_file() {
    let (dir, authority) = (Dir::new("start"), CertificateAuthority::new("ours"));
    let gone = "it cannot be read: No such file or directory (os error 2)";
    assert_eq!(dir.load_error(), format!("cert.pem: {gone}"));
    dir.write("cert.pem", "");
    assert_eq!(dir.load_error(), format!("key.pem: {gone}"));
    dir.write("key.pem", "");
    let empty = "cert.pem: there is no certificate in it; it must be PEM, with a line `-----BEGIN CERTIFICATE-----`";
    assert_eq!(dir.load_error(), empty);
    dir.write(
        "cert.pem",
        "-----BEGIN CERTIFICATE-----\n%%%\n-----END CERTIFICATE-----\n",
    );
    assert!(
        dir.load_error().starts_with("cert.pem: it is not PEM: "),
        "{}",
        dir.load_error()
    );
    dir.write(
        "cert.pem",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    );
    assert_eq!(
        dir.load_error(),
        "cert.pem: the certificate is not valid X.509"
    );
    dir.pair(&authority, 2020, 2040);
    dir.write("key.pem", "nothing");
    assert!(
        dir.load_error()
            .starts_with("key.pem: there is no private key in it; ")
    );
    dir.write(
        "key.pem",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    assert!(
        dir.load_error()
            .starts_with("key.pem: the key is encrypted; ")
    );
    dir.write(
        "key.pem",
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
    );
    assert!(
        dir.load_error()
            .starts_with("key.pem: the key cannot be used: "),
        "{}",
        dir.load_error()
    );
    dir.write("key.pem", &authority.server("another").key);
    assert_eq!(
        dir.load_error(),
        "key.pem: the key does not belong to the certificate in cert.pem"
    );
}

#[test]
fn a_certificate_out_of_its_time_and_files_too_long_are_refused() {
    let (dir, authority) = (Dir::new("time"), CertificateAuthority::new("ours"));
    dir.pair(&authority, 2019, 2020);
    assert_eq!(
        dir.load_error(),
        "cert.pem: the certificate expired on 2020-01-01 00:00:00 UTC"
    );
    dir.pair(&authority, 2030, 2040);
    assert_eq!(
        dir.load_error(),
        "cert.pem: the certificate is not valid before 2030-01-01 00:00:00 UTC"
    );
    dir.write("cert.pem", &"x".repeat((1 << 20) + 1));
    assert_eq!(dir.load_error(), "cert.pem: it is longer than 1 MiB");
    dir.pair(&authority, 2020, 2040);
    let mut files = dir.files();
    files.client_authorities = Some(dir.0.join("ca.pem"));
    dir.write("ca.pem", "no authority");
    let error = ServerTls::open(files.clone(), NOW).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("ca.pem: there is no certificate in it"),
        "{error}"
    );
    dir.write("ca.pem", &authority.pem());
    let tls = ServerTls::open(files, NOW).unwrap();
    assert_eq!(tls.paths().count(), 3);
    assert_eq!(tls.expires(), 2_208_988_800, "2040-01-01");
    assert!(!format!("{tls:?}").contains("PRIVATE"));
}

#[test]
fn changed_files_are_loaded_and_invalid_ones_change_nothing() {
    let (dir, authority) = (Dir::new("change"), CertificateAuthority::new("ours"));
    dir.pair(&authority, 2020, 2040);
    let tls = ServerTls::open(dir.files(), NOW).unwrap();
    let first = std::fs::read_to_string(dir.0.join("key.pem")).unwrap();
    assert_eq!(tls.reload_if_changed(NOW), TlsReload::Unchanged);
    dir.pair(&authority, 2020, 2041);
    assert_eq!(tls.reload_if_changed(NOW), TlsReload::Reloaded);
    assert_eq!(tls.expires(), 2_240_611_200, "2041-01-01");
    let second = std::fs::read_to_string(dir.0.join("key.pem")).unwrap();
    // The first key with the second certificate.
    dir.write("key.pem", &first);
    assert_eq!(tls.reload_if_changed(NOW), TlsReload::Rejected);
    assert_eq!(
        tls.reload_if_changed(NOW),
        TlsReload::Unchanged,
        "once is enough"
    );
    dir.write("key.pem", &second);
    assert_eq!(
        tls.reload_if_changed(NOW),
        TlsReload::Unchanged,
        "the mistake is taken back"
    );
    dir.pair(&authority, 2019, 2020);
    assert_eq!(tls.reload_if_changed(NOW), TlsReload::Rejected, "expired");
    std::fs::remove_file(dir.0.join("cert.pem")).unwrap();
    assert_eq!(tls.reload_if_changed(NOW), TlsReload::Rejected);
    assert_eq!(
        tls.reload_if_changed(NOW),
        TlsReload::Rejected,
        "it is tried again each time"
    );
    assert_eq!((tls.loads(), tls.failed_reloads()), (2, 3), "logged once");
    assert_eq!(tls.expires(), 2_240_611_200);
    dir.pair(&authority, 2020, 2042);
    assert_eq!(tls.reload_if_changed(NOW), TlsReload::Reloaded);
}

#[test]
fn expiry_warnings_start_two_weeks_before_and_come_once_a_day() {
    let (dir, authority) = (Dir::new("expiry"), CertificateAuthority::new("ours"));
    dir.pair(&authority, 2020, 2040);
    let tls = ServerTls::open(dir.files(), NOW).unwrap();
    let end = Timestamp::from_secs(tls.expires());
    let warns_at = |now: Timestamp| {
        tls.reload_if_changed(now);
        tls.lock_state().warned_at == Some(now)
    };
    let before = |span: Nanos| Timestamp::from_nanos(end.as_nanos() - span.as_nanos());
    assert!(!warns_at(before(
        EXPIRY_WARNING.saturating_add(Nanos::from_secs(1))
    )));
    let first = before(EXPIRY_WARNING);
    assert!(warns_at(first));
    assert!(!warns_at(first.after(Nanos::from_secs(5))));
    assert!(warns_at(first.after(DAY)));
    assert!(warns_at(end.after(DAY)), "and afterwards");
}

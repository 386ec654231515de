//! Warnings at startup: listeners that other machines can reach without protection, and a password that can be guessed.
//!
//! Must not know: how listeners protect themselves.

use tollgate_server::listen::ListenAddress;

use super::settings::{Options, TlsListener};
use super::tls::TlsSetup;

/// Shorter passwords can be guessed.
const MIN_PASSWORD_LEN: usize = 16;

/// Warns about everything that is more open than it should be.
pub(super) fn warn_about_exposure(options: &Options, tls: &TlsSetup, resp_password: Option<&str>) {
    if resp_password.is_some_and(is_short) {
        tracing::warn!(
            "password of Redis clients is shorter than {MIN_PASSWORD_LEN} characters and can be guessed; \
             make one with `openssl rand -hex 32`"
        );
    }
    let has_client_ca = options.tls.tls_client_ca.is_some();
    // The admin listener does not start without tokens where other machines can connect.
    for (name, which, address, has_credentials) in [
        ("api", TlsListener::Api, &options.listen, false),
        ("grpc", TlsListener::Grpc, &options.listen_grpc, false),
        (
            "resp",
            TlsListener::Resp,
            &options.listen_resp,
            resp_password.is_some(),
        ),
        ("admin", TlsListener::Admin, &options.listen_admin, true),
    ] {
        let has_tls = tls.is_enabled_for(which);
        let authenticates = has_credentials || has_tls && has_client_ca;
        if let Some(missing) = missing_protection(address, has_tls, authenticates) {
            tracing::warn!(listener = name, %address, missing, "listener is open to other machines");
        }
    }
}

fn is_short(password: &str) -> bool {
    password.chars().count() < MIN_PASSWORD_LEN
}

/// The protection that a listener at this address lacks.
const fn missing_protection(
    address: &ListenAddress,
    has_tls: bool,
    authenticates: bool,
) -> Option<&'static str> {
    match (address.is_local_only(), has_tls, authenticates) {
        (true, ..) | (false, true, true) => None,
        (false, false, true) => Some("TLS"),
        (false, true, false) => Some("client authentication"),
        (false, false, false) => Some("TLS and client authentication"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listeners_beyond_this_machine_need_protection() {
        let missing = |address: &str, has_tls, authenticates| {
            missing_protection(&address.parse().unwrap(), has_tls, authenticates)
        };
        for local in ["127.0.0.1:1", "[::1]:1", "unix:/run/a.sock", "off"] {
            assert_eq!(missing(local, false, false), None, "{local}");
        }
        for open in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1"] {
            let both = Some("TLS and client authentication");
            assert_eq!(missing(open, false, false), both, "{open}");
            assert_eq!(missing(open, false, true), Some("TLS"), "{open}");
            let authentication = Some("client authentication");
            assert_eq!(missing(open, true, false), authentication, "{open}");
            assert_eq!(missing(open, true, true), None, "{open}");
        }
    }

    #[test]
    fn a_password_has_at_least_16_characters() {
        assert!(is_short("fifteen letters") && !is_short("sixteen letters."));
        // Eight characters, 16 bytes.
        assert!(is_short(&"ö".repeat(8)));
    }
}

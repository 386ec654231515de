//! Refuses gateways that are not trusted, and logs and counts them: otherwise their clients only see that everyone is refused.
//!
//! Must not know: which networks are trusted.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::StatusCode;
use tollgate_core::{Nanos, Timestamp};

use super::{Gateway, REASON};
use crate::http::response::HttpResponse;

/// At most one line in this time, for all addresses together: anybody can send such requests.
const LOG_INTERVAL: Nanos = Nanos::MINUTE;
/// The value of `X-RateLimit-Reason`.
const UNTRUSTED: &str = "untrusted_gateway";

/// What was refused since the last line of the log.
#[derive(Debug, Default)]
pub(crate) struct UntrustedGateways {
    /// When the last line was logged, in nanoseconds; 0 if there was none.
    logged_at: AtomicU64,
    not_logged: AtomicU64,
}

impl UntrustedGateways {
    /// Logs a refused gateway, at most once a minute. Returns whether it was logged.
    pub(crate) fn record(&self, gateway: Gateway, peer: IpAddr, now: Timestamp) -> bool {
        let last = self.logged_at.load(Ordering::Relaxed);
        let is_due = last == 0 || now.since(Timestamp::from_nanos(last)) >= LOG_INTERVAL;
        // Of several threads one logs.
        let is_ours = || {
            let now = now.as_nanos().max(1);
            let swapped =
                self.logged_at
                    .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed);
            swapped.is_ok()
        };
        if !(is_due && is_ours()) {
            self.not_logged.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        tracing::warn!(
            address = %peer,
            gateway = gateway.name(),
            not_logged = self.not_logged.swap(0, Ordering::Relaxed),
            "refused a gateway that is not trusted; its clients are refused too; add its network to --trusted-proxies"
        );
        true
    }
}

impl Gateway {
    const fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Traefik => "traefik",
            Self::Caddy => "caddy",
            Self::Haproxy => "haproxy",
        }
    }

    /// The response to a gateway that is not trusted.
    ///
    /// nginx takes 403 for a denial, which configurations turn into 429. So it gets a status that it cannot take for one: it answers
    /// 500 and logs `auth request unexpected status: 421`.
    pub(crate) fn respond_untrusted(self, peer: IpAddr) -> HttpResponse {
        let detail = format!("{peer} is not a trusted gateway; see --trusted-proxies");
        let status = match self {
            Self::Nginx => StatusCode::MISDIRECTED_REQUEST,
            Self::Traefik | Self::Caddy | Self::Haproxy => StatusCode::FORBIDDEN,
        };
        HttpResponse::status_problem(status, detail).with_header(REASON, UNTRUSTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_a_minute_is_logged_for_all_addresses_together() {
        let untrusted = UntrustedGateways::default();
        let start = Timestamp::from_secs(1_700_000_000);
        let record = |last: u8, now| {
            let peer = IpAddr::from([10, 0, 0, last]);
            untrusted.record(Gateway::Nginx, peer, now)
        };
        assert!(record(1, start));
        assert!(!record(1, start) && !record(2, start.after(Nanos::from_secs(59))));
        assert!(record(3, start.after(Nanos::MINUTE)));
        assert!(!record(3, start.after(Nanos::MINUTE)));
        // A clock that goes back logs nothing for ever only if it goes back for ever.
        assert!(!record(4, start) && record(4, start.after(Nanos::from_secs(121))));
    }
}

//! Forward-auth: checks for nginx `auth_request`, Traefik `forwardAuth`, Caddy `forward_auth` and HAProxy.
//!
//! Each gateway describes the request in its own header fields and interprets the response in its own way. This module knows
//! both. Must not know: how requests are decided, sockets.

mod forwarded_request;
mod untrusted;

pub(crate) use forwarded_request::parse_forwarded;
use untrusted::UntrustedGateways;

use std::net::IpAddr;

use hyper::StatusCode;
use hyper::header::HeaderName;
use tollgate_core::Outcome;
use tollgate_engine::{DenialReason, Verdict};
use tollgate_http::{ClientAddressResolver, ForwardedHeader, RateLimitStatus, TrustedProxies};
use tollgate_service::Refusal;

use crate::http::response::HttpResponse;
use crate::http::verdict_body::VerdictBody;

const DECISION: HeaderName = HeaderName::from_static("x-ratelimit-decision");
const REASON: HeaderName = HeaderName::from_static("x-ratelimit-reason");
const STATUS: HeaderName = HeaderName::from_static("x-ratelimit-status");
const TICKET: HeaderName = HeaderName::from_static("x-ratelimit-ticket");

/// The gateway that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gateway {
    Nginx,
    Traefik,
    Caddy,
    Haproxy,
}

/// The trusted gateways, and the field in which each one names its client.
#[derive(Debug)]
pub(crate) struct Gateways {
    trusted: TrustedProxies,
    by_real_ip: ClientAddressResolver,
    by_forwarded_for: ClientAddressResolver,
    pub(crate) untrusted: UntrustedGateways,
}

impl Gateways {
    pub(crate) fn new(trusted: TrustedProxies) -> Self {
        let by = |source| ClientAddressResolver::behind_proxies(source, trusted.clone());
        Self {
            by_real_ip: by(ForwardedHeader::Single("x-real-ip".into())),
            by_forwarded_for: by(ForwardedHeader::XForwardedFor),
            trusted,
            untrusted: UntrustedGateways::default(),
        }
    }

    /// Whether requests from this address are accepted.
    pub(crate) fn is_trusted(&self, peer: IpAddr) -> bool {
        self.trusted.contains(peer)
    }

    /// Where this gateway states the client's address.
    pub(crate) const fn client_source(&self, gateway: Gateway) -> &ClientAddressResolver {
        match gateway {
            Gateway::Nginx => &self.by_real_ip,
            Gateway::Traefik | Gateway::Caddy | Gateway::Haproxy => &self.by_forwarded_for,
        }
    }
}

impl Gateway {
    /// The refusal of a request that would have to wait while the wait queue is full.
    pub(crate) fn respond_queue_full(self, refusal: Refusal) -> HttpResponse {
        let detail = "the request would have to wait, and the wait queue is full";
        let sent = Refusal {
            status: self.denial_status(refusal.status),
            ..refusal
        };
        HttpResponse::refusal(sent, detail)
            .with_header(DECISION, "deny")
            .with_header(STATUS, &refusal.status.to_string())
            .with_header(REASON, refusal.reason.map_or("", DenialReason::as_str))
    }

    /// The status with which this gateway is refused.
    fn denial_status(self, status: u16) -> u16 {
        match self {
            Self::Nginx => 403,
            Self::Traefik | Self::Caddy | Self::Haproxy => status,
        }
    }

    /// The response for this gateway, without the rate limit fields.
    ///
    /// nginx treats 2xx as allowed, 401 and 403 as denied, and everything else as an error of its own. So it gets 403, and the
    /// status for the client is in a header field. The other gateways pass the refusal on unchanged.
    pub(crate) fn respond(
        self,
        verdict: &Verdict,
        ticket: Option<u128>,
        answer: &RateLimitStatus<'_>,
    ) -> HttpResponse {
        let refused = verdict.status();
        let is_nginx = self == Self::Nginx;
        let mut reply = match refused {
            None if is_nginx => HttpResponse::empty(StatusCode::NO_CONTENT),
            None => HttpResponse::text("ok\n"),
            Some(status) => HttpResponse::problem_body(
                self.denial_status(status),
                VerdictBody::new(verdict, ticket).to_json(answer),
            ),
        };
        let decision = if refused.is_some() { "deny" } else { "allow" };
        reply = reply.with_header(DECISION, decision);
        if let Some(status) = refused {
            reply = reply.with_header(STATUS, &status.to_string());
        }
        if let Some(reason) = verdict.reason() {
            reply = reply.with_header(REASON, reason.as_str());
        }
        if let Some(ticket) = ticket {
            reply = reply.with_header(TICKET, &format!("{ticket:032x}"));
        }
        match verdict.outcome() {
            // A gateway cannot delay a request, so the response to the gateway is delayed.
            Outcome::Wait(wait) => reply.with_delay(wait),
            _ => reply,
        }
    }
}

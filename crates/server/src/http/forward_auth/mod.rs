//! Questions that gateways ask about requests they hold: nginx `auth_request`, Traefik `forwardAuth`, Caddy `forward_auth`
//! and HAProxy.
//!
//! Each says what it holds in header fields of its own, and each makes something else of the answer; this is where that
//! is known. Must not know: how requests are decided, sockets.

mod forwarded_request;

pub(crate) use forwarded_request::ForwardedRequest;

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

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gateway {
    Nginx,
    Traefik,
    Caddy,
    Haproxy,
}

/// Which gateways are believed, and where each of them says whom it serves.
#[derive(Debug)]
pub(crate) struct Gateways {
    trusted: TrustedProxies,
    by_real_ip: ClientAddressResolver,
    by_list: ClientAddressResolver,
}

impl Gateways {
    pub(crate) fn new(trusted: TrustedProxies) -> Self {
        let by = |source| ClientAddressResolver::behind_proxies(source, trusted.clone());
        Self {
            by_real_ip: by(ForwardedHeader::Single("x-real-ip".into())),
            by_list: by(ForwardedHeader::XForwardedFor),
            trusted,
        }
    }

    /// Whether the word of whoever is connected is taken.
    pub(crate) fn is_trusted(&self, peer: IpAddr) -> bool {
        self.trusted.contains(peer)
    }

    /// How this gateway says whose request it holds.
    pub(crate) const fn client_source(&self, gateway: Gateway) -> &ClientAddressResolver {
        match gateway {
            Gateway::Nginx => &self.by_real_ip,
            Gateway::Traefik | Gateway::Caddy | Gateway::Haproxy => &self.by_list,
        }
    }
}

impl Gateway {
    /// The refusal of a request that would have to wait while the wait queue is full.
    pub(crate) fn respond_queue_full(self, refusal: Refusal) -> HttpResponse {
        let detail = "the request would have to wait, and too many do already";
        let sent = Refusal {
            status: self.refuses_with(refusal.status),
            ..refusal
        };
        HttpResponse::refusal(sent, detail)
            .with_header(DECISION, "deny")
            .with_header(STATUS, &refusal.status.to_string())
            .with_header(REASON, refusal.reason.map_or("", DenialReason::as_str))
    }

    /// The status that this gateway takes for a refusal.
    fn refuses_with(self, status: u16) -> u16 {
        match self {
            Self::Nginx => 403,
            Self::Traefik | Self::Caddy | Self::Haproxy => status,
        }
    }

    /// The answer that this gateway understands, but for the fields of the limits.
    ///
    /// nginx takes 2xx for yes and 401 or 403 for no, and makes 500 of everything else; so a refusal is 403 and the status
    /// that the client should see is in a field. The others pass a refusal on as it is.
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
                self.refuses_with(status),
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
            // A gateway cannot make a request wait, but it waits for us.
            Outcome::Wait(wait) => reply.with_delay(wait),
            _ => reply,
        }
    }
}

//! Access control: tokens, slow answers to wrong ones, and protection against cross-site requests.
//!
//! Any web page can make a browser send requests to this machine. Three checks prevent misuse. A write has to be JSON, which a
//! page of another site cannot send without a CORS preflight, and no preflight is ever allowed. A write must not come from
//! another origin, which browsers state in header fields. Without tokens, `Host` has to be an address or `localhost`, which
//! stops DNS rebinding. Must not know: endpoints, responses.

use std::net::IpAddr;

use hyper::header::{AUTHORIZATION, HOST, WWW_AUTHENTICATE};
use hyper::{HeaderMap, StatusCode};
use tollgate_core::{InvalidQuota, Timestamp};

use super::routes::{Permission, is_write};
use super::tokens::AdminTokens;
use crate::http::HttpRequest;
use crate::http::cross_site::{BodyType, is_cross_site};
use crate::http::response::HttpResponse;
use crate::listen::counters::ListenerCounters;
use crate::listen::{AuthFailureThrottle, FAILURE_DELAY, FailureAnswer};
use tollgate_service::Refusal;
use tollgate_service::metrics::AdminRejection;
use tollgate_service::without_port;

/// The access control of the admin listener.
#[derive(Debug)]
pub(super) struct AdminAuth {
    tokens: AdminTokens,
    failures: AuthFailureThrottle,
}

/// Why a request is rejected, and the response.
pub(super) type Rejection = Box<(AdminRejection, HttpResponse)>;

impl AdminAuth {
    pub(super) fn new(tokens: AdminTokens) -> Result<Self, InvalidQuota> {
        Ok(Self {
            tokens,
            failures: AuthFailureThrottle::new("admin")?,
        })
    }

    /// Checks whether a request with this permission may be answered.
    pub(super) fn authorize(
        &self,
        request: &HttpRequest<'_>,
        required: Permission,
        now: Timestamp,
        counters: &ListenerCounters,
    ) -> Result<(), Rejection> {
        if required == Permission::Public {
            return Ok(());
        }
        if is_write(request.method) {
            require_same_origin(request.headers)?;
            require_json(request.headers)?;
        }
        if !self.tokens.is_any_set() {
            return require_local_host(request.headers);
        }
        self.check_token(request, required, now, counters)
    }

    fn check_token(
        &self,
        request: &HttpRequest<'_>,
        required: Permission,
        now: Timestamp,
        counters: &ListenerCounters,
    ) -> Result<(), Rejection> {
        let token = bearer_token(request.headers);
        // Compared whatever failed before: failures must not keep an operator out.
        match token.and_then(|token| self.tokens.permission_of(token)) {
            Some(right) if right >= required => Ok(()),
            Some(_) => {
                let detail = if self.tokens.can_operate() {
                    "this token may only read; use the operate token"
                } else {
                    "no operate token is set, so operating is disabled; start with --admin-operate-token-file"
                };
                let reply = HttpResponse::status_problem(StatusCode::FORBIDDEN, detail);
                reject(AdminRejection::Forbidden, reply)
            }
            // A request without a token is not a guess.
            None if token.is_none() => {
                let reply = unauthorized("a token is required: Authorization: Bearer …", "");
                reject(AdminRejection::Token, reply)
            }
            None => {
                let answer = self.failures.record(request.peer.ip(), now, counters);
                reject_token(answer)
            }
        }
    }
}

/// Answers a wrong token, slowly after several of them.
fn reject_token(answer: FailureAnswer) -> Result<(), Rejection> {
    let reply = || unauthorized("unknown token", ", error=\"invalid_token\"");
    match answer {
        FailureAnswer::Prompt => reject(AdminRejection::Token, reply()),
        FailureAnswer::Delayed(permit) => {
            let reply = reply().with_delay(FAILURE_DELAY).with_wait_permit(permit);
            reject(AdminRejection::Token, reply)
        }
        FailureAnswer::Refused => {
            let detail = "unknown token; too many wrong tokens came in the last second";
            let refusal = Refusal::over_limit(Some(FAILURE_DELAY));
            let reply = HttpResponse::refusal(refusal, detail).closing();
            reject(AdminRejection::Flood, reply)
        }
    }
}

/// The response to a request without a known token.
fn unauthorized(detail: &str, error: &str) -> HttpResponse {
    let challenge = format!("Bearer realm=\"tollgate admin\"{error}");
    HttpResponse::status_problem(StatusCode::UNAUTHORIZED, detail)
        .with_header(WWW_AUTHENTICATE, &challenge)
}

fn reject(why: AdminRejection, reply: HttpResponse) -> Result<(), Rejection> {
    Err(Box::new((why, reply)))
}

/// The bearer token, if there is exactly one `Authorization` field.
fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let field = fields.next().filter(|_| fields.next().is_none())?;
    let (scheme, token) = field.as_bytes().split_at_checked(7)?;
    let is_bearer = scheme.eq_ignore_ascii_case(b"bearer ");
    Some(token.trim_ascii()).filter(|token| is_bearer && !token.is_empty())
}

/// Rejects requests of other origins. Only browsers send these fields.
fn require_same_origin(headers: &HeaderMap) -> Result<(), Rejection> {
    if !is_cross_site(headers) {
        return Ok(());
    }
    let detail = "origin: pages of other sites may not operate this server";
    reject(
        AdminRejection::Origin,
        HttpResponse::status_problem(StatusCode::FORBIDDEN, detail),
    )
}

/// Requires JSON. A page of another site can send forms without a preflight, but not JSON.
fn require_json(headers: &HeaderMap) -> Result<(), Rejection> {
    if BodyType::of_headers(headers) == BodyType::Json {
        return Ok(());
    }
    let detail = "content-type: it must be application/json";
    let reply = HttpResponse::status_problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail);
    reject(AdminRejection::Origin, reply)
}

/// Requires a `Host` that DNS rebinding cannot produce: an address or `localhost`.
fn require_local_host(headers: &HeaderMap) -> Result<(), Rejection> {
    let host = headers.get(HOST).map_or(&b""[..], |host| host.as_bytes());
    let name = without_port(host).to_ascii_lowercase();
    let name = std::str::from_utf8(&name).unwrap_or("?");
    let bare = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    let is_address = bare.unwrap_or(name).parse::<IpAddr>().is_ok();
    if is_address || name == "localhost" || name.ends_with(".localhost") {
        return Ok(());
    }
    let detail = "host: without tokens this server accepts only an address or localhost; set tokens to use a name";
    let reply = HttpResponse::status_problem(StatusCode::MISDIRECTED_REQUEST, detail);
    reject(AdminRejection::Origin, reply)
}

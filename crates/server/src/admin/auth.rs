//! Access control: tokens, a limit on wrong tokens, and protection against cross-site requests.
//!
//! Any web page can make a browser send requests to this machine. Three checks prevent misuse. A write has to be JSON, which a
//! page of another site cannot send without a CORS preflight, and no preflight is ever allowed. A write must not come from
//! another origin, which browsers state in header fields. Without tokens, `Host` has to be an address or `localhost`, which
//! stops DNS rebinding. Must not know: endpoints, responses.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use hyper::header::{AUTHORIZATION, HOST, WWW_AUTHENTICATE};
use hyper::{HeaderMap, StatusCode};
use tollgate_core::{InvalidQuota, Nanos, Outcome, Rate, Timestamp, TokenBucket};

use super::routes::{Permission, is_write};
use super::tokens::AdminTokens;
use crate::http::HttpRequest;
use crate::http::cross_site::{BodyType, is_cross_site};
use crate::http::request_attributes::without_port;
use crate::http::response::HttpResponse;
use tollgate_service::Refusal;
use tollgate_service::metrics::AdminRejection;

/// How many wrong tokens an address may send at once, and how often one more.
const MAX_WRONG_TOKENS: u64 = 10;
const WRONG_TOKEN_INTERVAL: Nanos = Nanos::from_secs(6);
/// The wrong tokens of addresses are counted in this many slots. Two addresses in one slot share its count, which only refuses
/// more.
const ADDRESS_SLOTS: usize = 1_024;

/// The access control of the admin listener.
#[derive(Debug)]
pub(super) struct AdminAuth {
    tokens: AdminTokens,
    wrong_token_bucket: TokenBucket,
    token: Mutex<Box<[u64]>>,
    hasher: RandomState,
}

/// Why a request is rejected, and the response.
pub(super) type Rejection = Box<(AdminRejection, HttpResponse)>;

impl AdminAuth {
    pub(super) fn new(tokens: AdminTokens) -> Result<Self, InvalidQuota> {
        Ok(Self {
            tokens,
            wrong_token_bucket: TokenBucket::builder(Rate::new(1, WRONG_TOKEN_INTERVAL))
                .burst(MAX_WRONG_TOKENS)
                .build()?,
            token: Mutex::new(vec![0; ADDRESS_SLOTS].into()),
            hasher: RandomState::new(),
        })
    }

    /// Checks whether a request with this permission may be answered.
    pub(super) fn authorize(
        &self,
        request: &HttpRequest<'_>,
        required: Permission,
        now: Timestamp,
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
        self.check_token(request, required, now)
    }

    fn check_token(
        &self,
        request: &HttpRequest<'_>,
        required: Permission,
        now: Timestamp,
    ) -> Result<(), Rejection> {
        let peer = request.peer.ip();
        // Checked before the token, so that guessing cannot continue.
        if let Some(wait) = self.wrong_token_wait(peer, now) {
            let detail = "too many wrong tokens came from this address";
            let refusal = Refusal::over_limit(Some(wait));
            return reject(
                AdminRejection::Flood,
                HttpResponse::refusal(refusal, detail),
            );
        }
        let token = bearer_token(request.headers);
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
            None => {
                // A request without a token is not a guess.
                let (detail, error) = match token {
                    None => ("a token is required: Authorization: Bearer …", ""),
                    Some(_) => {
                        self.record_wrong_token(peer, now);
                        ("unknown token", ", error=\"invalid_token\"")
                    }
                };
                let challenge = format!("Bearer realm=\"tollgate admin\"{error}");
                let reply = HttpResponse::status_problem(StatusCode::UNAUTHORIZED, detail);
                reject(
                    AdminRejection::Token,
                    reply.with_header(WWW_AUTHENTICATE, &challenge),
                )
            }
        }
    }

    /// How long requests from this address are refused, if they are.
    fn wrong_token_wait(&self, peer: IpAddr, now: Timestamp) -> Option<Nanos> {
        let state = self.with_address_slot(peer, |state| *state);
        match self.wrong_token_bucket.decide(state, now, 1).outcome {
            Outcome::Deny { retry_after } => Some(retry_after),
            _ => None,
        }
    }

    fn record_wrong_token(&self, peer: IpAddr, now: Timestamp) {
        self.with_address_slot(peer, |state| {
            if let Some(next) = self.wrong_token_bucket.decide(*state, now, 1).next {
                *state = next;
            }
        });
    }

    fn with_address_slot<T: Default>(&self, peer: IpAddr, work: impl FnOnce(&mut u64) -> T) -> T {
        // Count IPv6 by /64 network: a client can use all addresses of its network.
        let network = match peer.to_canonical() {
            IpAddr::V4(v4) => u128::from(v4.to_bits()),
            IpAddr::V6(v6) => v6.to_bits() >> 64 | 1 << 127,
        };
        // The top bits of the hash fit into any `usize`.
        let slot = self.hasher.hash_one(network) >> 48;
        let slot = usize::try_from(slot).unwrap_or(0) % ADDRESS_SLOTS;
        let mut token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        token.get_mut(slot).map(work).unwrap_or_default()
    }
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

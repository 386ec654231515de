//! The check itself: which question was asked, what the limit says, and the answer in words.
//!
//! Synchronous from end to end. Must not know: sockets, connections, timeouts.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;

use hyper::{Method, StatusCode};
use serde::Serialize;
use tollgate_core::{Nanos, Outcome, Status, Timestamp, TokenBucket, Unit};
use tollgate_http::{InvalidPolicyName, Policy, Problem, address_key, retry_after};
use tollgate_store::{Check, Clock, InvalidSize, Key, LimitId, Memory, Op, Ruled};

use crate::counters::Counters;
use crate::input::{BadInput, Input, echo};
use crate::json::parse_json;
use crate::query::parse_query;
use crate::reply::{RATELIMIT, RATELIMIT_POLICY, Reply};
use crate::welcome::introduction;

pub(crate) const CHECK_PATH: &str = "/v1/check";

/// One limit on every key, and the endpoints that ask it.
#[derive(Debug)]
pub struct App<C> {
    policy: Policy,
    quota: TokenBucket,
    ruled: Ruled,
    store: Memory<C>,
    counters: Counters,
}

/// One request, read in full.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    pub(crate) query: &'a str,
    pub(crate) body: &'a [u8],
    /// Who asks.
    pub(crate) peer: IpAddr,
    /// The address that they reached us on.
    pub(crate) local: SocketAddr,
}

impl<C: Clock> App<C> {
    /// An app with one limit called `name`, with room for about `keys` keys in use at the same time.
    ///
    /// # Errors
    /// The name or the number of keys is not valid.
    pub fn new(name: &str, quota: TokenBucket, keys: usize, clock: C) -> Result<Self, InvalidApp> {
        let policy = Policy::new(name, quota.limit(), quota.refill(), Unit::Requests)
            .map_err(InvalidApp::Name)?;
        let store = Memory::with_clock(keys, clock).map_err(InvalidApp::Size)?;
        let ruled = Ruled {
            id: LimitId(NonZeroU16::MIN),
            limit: quota.into(),
        };
        store.learn(&ruled);
        Ok(Self {
            policy,
            quota,
            ruled,
            store,
            counters: Counters::default(),
        })
    }

    /// What went wrong and was survived so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How many keys were forgiven what they owed because there was no room for them.
    #[must_use]
    pub fn forgiven(&self) -> u64 {
        self.store.usage().forgiven
    }

    /// The limit in plain words and three commands to try, for a server reached at `address`.
    #[must_use]
    pub fn introduction(&self, address: SocketAddr) -> String {
        introduction(address, self.policy.name(), &self.quota)
    }

    pub(crate) fn answer(&self, question: &Question<'_>) -> Reply {
        let Question { method, path, .. } = *question;
        match (path, method) {
            (CHECK_PATH, &Method::GET | &Method::POST) => {
                self.check(question).unwrap_or_else(|bad| bad_request(&bad))
            }
            (CHECK_PATH, _) => wrong_method(method, "GET, POST"),
            ("/healthz", &Method::GET | &Method::HEAD) => Reply::text("ok\n"),
            ("/", &Method::GET | &Method::HEAD) => Reply::text(self.introduction(question.local)),
            ("/healthz" | "/", _) => wrong_method(method, "GET, HEAD"),
            _ => {
                let detail = format!("there is nothing at {:?}", echo(path.as_bytes()));
                Reply::plain(StatusCode::NOT_FOUND, detail)
            }
        }
    }

    fn check(&self, question: &Question<'_>) -> Result<Reply, BadInput> {
        let mut input = parse_query(question.query)?;
        if *question.method == Method::POST && !question.body.is_empty() {
            input = input.and(parse_json(question.body)?)?;
        }
        let Input { key, cost, limit } = input;
        let name = self.policy.name();
        if let Some(limit) = limit.filter(|limit| limit != name) {
            let reason = format!("there is no such limit; there is {name:?}");
            return Err(BadInput::new("limit", limit.as_bytes(), reason));
        }
        let key = key.unwrap_or_else(|| address_key(question.peer).into_bytes());
        self.decide(&key, cost.unwrap_or(1))
    }

    /// The name of the limit.
    pub(crate) fn name(&self) -> &str {
        self.policy.name()
    }

    /// Spends from the limit, or looks whether it could.
    pub(crate) fn ask(
        &self,
        key: &[u8],
        cost: u64,
        is_peek: bool,
    ) -> Result<(Outcome, Status), BadInput> {
        let checked = Key::of(key).map_err(|too_long| {
            BadInput::new("key", key, format!("it has {} bytes", too_long.len))
        })?;
        let check = Check {
            key: checked,
            ruled: &self.ruled,
            op: if is_peek {
                Op::Peek(cost)
            } else {
                Op::Spend(cost)
            },
        };
        let (verdict, [answer]) = self
            .store
            .ask([check])
            .map_err(|error| BadInput::new("key", key, error.to_string()))?;
        Ok((verdict.outcome(), answer.status))
    }

    fn decide(&self, key: &[u8], cost: u64) -> Result<Reply, BadInput> {
        let (outcome, status) = self.ask(key, cost, false)?;
        let reply = if outcome.is_admitted() {
            let admitted = Admitted {
                allowed: true,
                limit: self.policy.name(),
                remaining: status.remaining,
                reset_after_ms: status.reset_after.as_millis_ceil(),
            };
            Reply::json(admitted.to_json())
        } else {
            Reply::problem(&Problem::quota_exceeded(
                &self.policy,
                outcome,
                cost,
                status.limit,
            ))
        };
        let more_after = self.more_after(&status);
        let field = self.policy.limit_field(outcome, &status, more_after);
        let reply = reply
            .with(RATELIMIT_POLICY, self.policy.policy_field())
            .with(RATELIMIT, &field);
        Ok(match retry_after(outcome) {
            Some(seconds) => reply.retry_after(seconds),
            None => reply,
        })
    }

    /// Time until one more unit is there. Zero if something remains, or if nothing is ever admitted.
    fn more_after(&self, status: &Status) -> Nanos {
        // What is owed is a duration; seen from the beginning of time it is an instant again.
        let owed = status.reset_after.as_nanos();
        match self.quota.decide(owed, Timestamp::EPOCH, 1).outcome {
            Outcome::Deny { retry_after } => retry_after,
            Outcome::Allow | Outcome::Wait(_) | Outcome::Never => Nanos::ZERO,
        }
    }
}

/// The body of an admission.
#[derive(Serialize)]
struct Admitted<'a> {
    allowed: bool,
    limit: &'a str,
    remaining: u64,
    reset_after_ms: u64,
}

impl Admitted<'_> {
    fn to_json(&self) -> String {
        // Serialising strings and integers into memory cannot fail; the status says it all if it ever did.
        serde_json::to_string(self).unwrap_or_default()
    }
}

fn bad_request(bad: &BadInput) -> Reply {
    Reply::plain(StatusCode::BAD_REQUEST, bad.to_string())
}

fn wrong_method(method: &Method, allowed: &'static str) -> Reply {
    let method = echo(method.as_str().as_bytes());
    let detail = format!("{method} is not possible here; possible are {allowed}");
    Reply::plain(StatusCode::METHOD_NOT_ALLOWED, detail).allow(allowed)
}

/// Why an app cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidApp {
    /// The limit's name cannot be sent.
    Name(InvalidPolicyName),
    /// There cannot be so many keys.
    Size(InvalidSize),
}

impl fmt::Display for InvalidApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(error) => error.fmt(f),
            Self::Size(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for InvalidApp {}

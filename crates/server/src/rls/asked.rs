//! One descriptor as a request to the engine, and what came of it in the words of Envoy's messages.
//!
//! Must not know: protobuf, that there are other descriptors.

use std::net::IpAddr;

use tollgate_core::{Nanos, Outcome};
use tollgate_engine::{LimitState, Purpose, Standing, Terms};
use tollgate_policy::attributes::{Attribute, Attributes};
use tollgate_policy::envoy::{Code, Descriptor, Entry, Request};
use tollgate_policy::rules::Role;
use tollgate_store::Clock;

use super::said::Status;
use super::seconds;
use super::standing::limit_of;
use crate::app::App;
use crate::decided::Decided;
use crate::http::wait_queue_full::WaitQueueFull;

/// One descriptor as a request to the engine.
pub(crate) struct Asked<'a> {
    pub(super) descriptor: &'a Descriptor<'a>,
    domain: &'a str,
    /// What it counts, if the question says so; else the policy does.
    hits: Option<u64>,
}

/// A descriptor and what was decided about it.
pub(super) struct Answered<'a> {
    pub(super) asked: Asked<'a>,
    pub(super) decided: Decided,
    /// What became of it because too many wait, if so.
    pub(super) crowded: Option<WaitQueueFull>,
}

impl<'a> Answered<'a> {
    /// A descriptor that was only looked at.
    pub(super) async fn looked_at<C: Clock>(asked: Asked<'a>, app: &App<C>) -> Self {
        let decided = asked.look(app).await;
        // Who only looks waits for nothing.
        let crowded = asked
            .is_charged()
            .then(|| app.crowded(&decided.verdict))
            .flatten();
        Self {
            asked,
            decided,
            crowded,
        }
    }

    /// Whether it is still to be charged.
    pub(super) fn is_charged(&self) -> bool {
        self.asked.is_charged() && self.crowded.is_none()
    }
}

impl<'a> Asked<'a> {
    pub(crate) fn new(request: &Request<'a>, descriptor: &'a Descriptor<'a>) -> Self {
        let by_request = (request.hits_addend > 0).then(|| request.hits_addend.into());
        Self {
            descriptor,
            domain: request.domain,
            hits: descriptor.hits_addend.or(by_request),
        }
    }

    pub(super) fn is_refund(&self) -> bool {
        self.descriptor.is_negative_hits && self.descriptor.limit.is_none()
    }

    fn is_peek(&self) -> bool {
        self.hits == Some(0)
    }

    /// Whether the engine is to charge it.
    pub(super) fn is_charged(&self) -> bool {
        !self.descriptor.is_negative_hits && !self.is_peek() && self.descriptor.limit.is_none()
    }

    pub(super) async fn decide<C: Clock>(&self, app: &App<C>) -> Decided {
        app.ask_unseen(self, self.terms()).await
    }

    /// What is asked to decide on it.
    pub(super) fn terms(&self) -> Terms {
        let (purpose, cost) = match self.hits {
            hits if self.is_refund() => (Purpose::GiveBack, Some(hits.unwrap_or(1))),
            Some(0) => (Purpose::Look, Some(0)),
            hits => (Purpose::Charge, hits),
        };
        Terms::of(purpose, cost)
    }

    pub(super) async fn reserve<C: Clock>(&self, app: &App<C>) -> Decided {
        let terms = Terms::of(Purpose::Estimate, self.hits);
        app.ask_unseen(self, terms).await
    }

    pub(super) async fn look<C: Clock>(&self, app: &App<C>) -> Decided {
        let cost = if self.is_charged() {
            self.hits
        } else {
            Some(0)
        };
        app.ask_unseen(self, Terms::of(Purpose::Look, cost)).await
    }
}

impl Answered<'_> {
    /// Whether it is admitted. Whoever only looks is not where nothing is left, also by a limit that never refuses: that is
    /// how work that is paid for later is stopped.
    pub(super) fn is_admitted(&self) -> bool {
        if self.crowded == Some(WaitQueueFull::TurnedAway) {
            return false;
        }
        if self.asked.descriptor.limit.is_some() || self.asked.is_refund() {
            return true;
        }
        self.decided.verdict.is_admitted() && !(self.asked.is_peek() && self.exhausted().is_some())
    }

    /// The limit of which nothing is left.
    fn exhausted(&self) -> Option<&LimitState> {
        let mut states = self.decided.verdict.limits().iter();
        states.find(|state| {
            let is_enforced = state.standing == Standing::Enforced && state.role() == Role::Main;
            is_enforced && state.status.remaining == 0
        })
    }

    pub(super) fn status(&self) -> Status<'_> {
        let is_admitted = self.is_admitted();
        let code = if is_admitted {
            Code::Ok
        } else {
            Code::OverLimit
        };
        if self.asked.descriptor.limit.is_some() {
            return Status {
                code,
                ..Status::default()
            };
        }
        let exhausted = self.exhausted().filter(|_| self.asked.is_peek());
        let Some(state) = exhausted.or_else(|| self.decided.verdict.binding()) else {
            let retry_after = match self.decided.verdict.outcome() {
                Outcome::Deny { retry_after } => Some(seconds(retry_after).max(1)),
                _ => None,
            };
            return Status {
                code,
                until_reset: retry_after,
                ..Status::default()
            };
        };
        let until_reset = match (state.retry_after(), state.outcome) {
            (Some(retry_after), _) => Some(seconds(retry_after).max(1)),
            (None, Outcome::Never) => None,
            (None, _) if state.status.remaining == 0 => {
                Some(seconds(self.until_more(state)).max(1))
            }
            (None, _) => Some(seconds(state.status.reset_after)),
        };
        Status {
            code,
            limit: limit_of(&self.decided, state),
            remaining: u32::try_from(state.status.remaining).unwrap_or(u32::MAX),
            until_reset,
        }
    }

    /// Time until there is one more, where nothing is left.
    fn until_more(&self, state: &LimitState) -> Nanos {
        match self.decided.more_after(state) {
            Nanos::ZERO => state.status.reset_after,
            more_after => more_after,
        }
    }

    pub(super) fn wait(&self) -> Nanos {
        match self.decided.verdict.outcome() {
            Outcome::Wait(wait) if self.crowded.is_none() => wait,
            _ => Nanos::ZERO,
        }
    }
}

impl Attributes for Asked<'_> {
    /// The entry that is called so, or the address that Envoy's own action gives.
    fn ip(&self) -> Option<IpAddr> {
        let entry = self.entry("ip").or_else(|| self.entry("remote_address"));
        std::str::from_utf8(entry?).ok()?.parse().ok()
    }

    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        match attribute {
            Attribute::Descriptor(name) => self.entry(name),
            Attribute::Domain => Some(self.domain.as_bytes()),
            Attribute::Method => self.entry("method"),
            Attribute::Host => self.entry("host"),
            Attribute::Route => self.entry("route"),
            Attribute::Path => self.entry("path").filter(|path| path.starts_with(b"/")),
            Attribute::Header(name) => self.of_family("header.", name, str::eq_ignore_ascii_case),
            Attribute::Query(name) => self.of_family("query.", name, str::eq),
            Attribute::Cookie(name) => self.of_family("cookie.", name, str::eq),
            Attribute::Claim(name) => self.of_family("claim.", name, str::eq),
            _ => None,
        }
    }
}

impl Asked<'_> {
    fn entry(&self, key: &str) -> Option<&[u8]> {
        let mut entries = self.descriptor.entries.iter();
        let found = entries.find(|entry| entry.key == key);
        found.map(|entry| entry.value.as_bytes())
    }

    fn of_family(
        &self,
        family: &str,
        name: &str,
        is_same: impl Fn(&str, &str) -> bool,
    ) -> Option<&[u8]> {
        let mut entries = self.descriptor.entries.iter();
        let is_it = |entry: &&Entry<'_>| {
            let rest = entry.key.strip_prefix(family);
            rest.is_some_and(|rest| is_same(rest, name))
        };
        entries.find(is_it).map(|entry| entry.value.as_bytes())
    }
}

//! Credits: how many requests each client may send soon, so that clients do not all return at the same time.
//!
//! The idea is that of Breakwater (OSDI 2020). The pool is the number of requests that the upstream can do in a second.
//!
//! - Classes get credits in their order. Inside a class a client gets what it used before, at most its max-min fair share.
//!   It also gets an equal part of what nobody uses. A client that used all its credits may get a quarter more.
//! - A client that finds no credit left gets one. If there are more clients than the pool has credits, a credit is valid for
//!   more than a second.
//! - Clients round times up and do not use every credit, and the pool is an estimate. So the ledger issues up to twice the
//!   pool, until requests reach the pool and some are refused.
//! - The ledger tells refused clients different times to return: in each second as many clients as the pool has credits.
//!
//! A client that ignores its credits takes at most its fair share from others. Must not know: header fields, who a client is.

mod fair_share;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use tollgate_core::{Nanos, Timestamp};

use crate::priority_class::{MAX_CLASSES, PriorityClass};
use fair_share::max_min_share;

/// The most clients. Further ones get no credits until others are idle.
pub const MAX_CREDIT_CLIENTS: usize = 16_384;
/// How often the fair shares are computed, and the shortest time for which credits are valid.
const PERIOD: Nanos = Nanos::SECOND;
/// The longest time for which credits are valid, and the longest wait that a refused client is told. In seconds.
const LONGEST: f64 = 60.0;
/// A client that sends nothing for this long after its credits expired gives them back.
const IDLE: Nanos = Nanos::from_secs(2);
/// A new client gets the unissued credits divided by this.
const FIRST_PART: f64 = 16.0;
/// A client that used all its credits may get this multiple of them the next time.
const GROWTH: f64 = 1.25;

/// The most credits that are issued, as a multiple of the pool.
const MAX_OVERCOMMIT: f64 = 2.0;
/// The part of a new measurement in the overcommitment.
const SMOOTHING: f64 = 0.25;
/// By how much the pool may be too small, while at most this share of requests is refused.
const UNKNOWN_PART: f64 = 1.25;
const REFUSED_SHARE: f64 = 0.01;

/// Who has credits. A client has other credits for each class of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CreditClient {
    /// The client, by a number that nobody else can choose.
    pub id: u64,
    /// The class of its requests.
    pub class: PriorityClass,
}

/// What a client may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditOffer {
    /// The credits of the whole time.
    pub quota: u32,
    /// That time.
    pub window: Nanos,
    /// What is left of them.
    pub remaining: u32,
    /// How long they are valid. If none are left: when there are new ones.
    pub valid_for: Nanos,
}

/// The credits of the clients of one upstream.
///
/// ```
/// use tollgate_core::Timestamp;
/// use tollgate_overload::{CreditClient, CreditLedger, PriorityClass};
///
/// let now = Timestamp::from_secs(10);
/// let mut ledger = CreditLedger::new(now);
/// let client = CreditClient { id: 1, class: PriorityClass::CRITICAL };
/// // The upstream can do 160 requests/s. The first client gets a part of them.
/// let offer = ledger.record_request(now, client, Some(160.0)).unwrap();
/// assert_eq!((offer.quota, offer.remaining), (10, 9));
/// assert_eq!(ledger.record_request(now, client, None), None, "nobody knows the capacity");
/// ```
#[derive(Debug)]
pub struct CreditLedger {
    accounts: HashMap<CreditClient, Account>,
    /// The accounts that have credits. The others are of clients that were only refused.
    credited: usize,
    /// What the upstream can do in a second.
    pool: f64,
    /// The credits that are issued for each of the pool, because not all are used.
    overcommit: f64,
    /// The requests since the shares were computed, and how many were refused.
    requests: u32,
    refusals: u32,
    /// The credits of all accounts of each class, for each second.
    issued: [f64; MAX_CLASSES],
    computed: Timestamp,
    /// The most that a client of each class gets in a second.
    shares: [f64; MAX_CLASSES],
    /// The equal part of what nobody uses.
    spare: f64,
    /// Clients that were told to return and have not yet had the time, and when that was computed.
    returning: f64,
    returning_at: Timestamp,
}

#[derive(Debug)]
struct Account {
    expires: Timestamp,
    /// When a refused client was told to return.
    returns: Timestamp,
    span: f64,
    credits: u32,
    used: u32,
    /// What it wanted for each second in the time before.
    demand: f64,
}

impl Account {
    /// What the client wants for each second: more if it used everything.
    fn wanted(&self) -> f64 {
        let used = f64::from(self.used);
        match self.used > 0 && self.used >= self.credits {
            true => (GROWTH * used + 1.0) / self.span,
            false => used / self.span,
        }
    }

    fn rate(&self) -> f64 {
        f64::from(self.credits) / self.span
    }

    fn offer(&self, now: Timestamp) -> CreditOffer {
        CreditOffer {
            quota: self.credits.max(1),
            window: from_seconds(self.span),
            remaining: self.credits.saturating_sub(self.used),
            valid_for: self.expires.since(now).min(from_seconds(self.span)),
        }
    }
}

impl CreditLedger {
    /// A ledger without clients.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self {
            accounts: HashMap::new(),
            credited: 0,
            pool: 0.0,
            overcommit: 1.0,
            requests: 0,
            refusals: 0,
            issued: [0.0; MAX_CLASSES],
            computed: now,
            shares: [f64::INFINITY; MAX_CLASSES],
            spare: 0.0,
            returning: 0.0,
            returning_at: now,
        }
    }

    /// A client sends a request. `rate` is the number of requests that the upstream can do in a second. Returns `None` if the
    /// rate is not known, or if there are too many clients.
    pub fn record_request(
        &mut self,
        now: Timestamp,
        client: CreditClient,
        rate: Option<f64>,
    ) -> Option<CreditOffer> {
        self.requests = self.requests.saturating_add(1);
        let account = self.renew(now, client, rate, true)?;
        account.used = account.used.saturating_add(1);
        Some(account.offer(now))
    }

    /// A request is refused: tells its client when to return. Until then the client is told the same time again.
    ///
    /// A refused request is no demand. Otherwise requests that the upstream never sees would take credits from other clients.
    pub fn record_refusal(
        &mut self,
        now: Timestamp,
        client: CreditClient,
        rate: Option<f64>,
    ) -> Option<CreditOffer> {
        self.refusals = self.refusals.saturating_add(1);
        let (pool, returning, returning_at) = (rate?, self.returning, self.returning_at);
        let account = self.renew(now, client, rate, false)?;
        let is_told = account.returns > now;
        let drained = pool * seconds(now.since(returning_at));
        // No client waits longer than `LONGEST`, so no more clients are still to return.
        let most = pool * LONGEST;
        let waiting = ((returning - drained).max(0.0) + 1.0).min(most);
        if !is_told {
            account.returns = now.after(from_seconds((waiting / pool).clamp(1.0, LONGEST)));
            if account.credits == 0 {
                account.expires = account.returns;
            }
        }
        let offer = CreditOffer {
            remaining: 0,
            valid_for: account.returns.since(now).min(from_seconds(LONGEST)),
            ..account.offer(now)
        };
        if !is_told {
            (self.returning, self.returning_at) = (waiting, returning_at.max(now));
        }
        Some(offer)
    }

    /// The clients that have credits.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.credited
    }

    /// The credits of all clients for each second, and what the upstream can do in a second.
    #[must_use]
    pub fn issued_and_pool(&self) -> (f64, f64) {
        (self.issued.iter().sum(), self.pool)
    }

    /// The account of a client, with new credits if the old ones expired. A client that was never admitted gets none while it is
    /// refused: otherwise many addresses could take the credits of others with requests that cost the upstream nothing.
    fn renew(
        &mut self,
        now: Timestamp,
        client: CreditClient,
        rate: Option<f64>,
        is_admitted: bool,
    ) -> Option<&mut Account> {
        self.pool = rate.filter(|rate| rate.is_finite() && *rate > 0.0)?;
        if now.since(self.computed) >= PERIOD || self.accounts.is_empty() {
            self.compute_shares(now);
        }
        let (share, spare) = (self.shares.get(client.class.index())?, self.spare);
        // Less important classes do not hold back this one: they get less when they renew.
        let issued: f64 = self.issued.iter().take(client.class.index() + 1).sum();
        let budget = self.pool * self.overcommit;
        let available = budget - issued;
        // Refused clients will want credits too, so they make each credit last longer, which takes none from others.
        let clients = from_count(self.accounts.len());
        let span = ((clients + 1.0) / budget).clamp(1.0, LONGEST);
        let is_full = self.accounts.len() >= MAX_CREDIT_CLIENTS;
        let account = match self.accounts.entry(client) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(_) if is_full => return None,
            Entry::Vacant(entry) => entry.insert(Account {
                expires: now,
                returns: Timestamp::EPOCH,
                span,
                credits: 0,
                used: 0,
                demand: 0.0,
            }),
        };
        let is_new = account.credits == 0;
        if (is_new && is_admitted) || (!is_new && now >= account.expires) {
            let (before, demand) = (account.rate(), account.wanted());
            let wanted = match is_new {
                true => (available / FIRST_PART).min(share + spare),
                false => demand.min(*share) + spare,
            };
            self.credited = self.credited.saturating_add(usize::from(is_new));
            account.demand = demand;
            account.span = span;
            account.credits = whole(wanted.min(available + before) * span).max(1);
            account.used = 0;
            account.expires = now.after(from_seconds(span));
            if let Some(issued) = self.issued.get_mut(client.class.index()) {
                *issued += account.rate() - before;
            }
        }
        Some(account)
    }

    /// Issues more credits while all are wanted and the pool is not in use.
    fn adjust_overcommit(&mut self, demand: f64, elapsed: f64) {
        let (requests, refusals) = (f64::from(self.requests), f64::from(self.refusals));
        let unused = self.pool * elapsed / requests;
        let factor = if demand <= self.pool * self.overcommit {
            0.0
        } else if refusals > (requests + refusals) * REFUSED_SHARE {
            unused
        } else {
            unused.max(UNKNOWN_PART)
        };
        let overcommit = (self.overcommit * factor).clamp(1.0, MAX_OVERCOMMIT);
        self.overcommit += (overcommit - self.overcommit) * SMOOTHING;
        (self.requests, self.refusals) = (0, 0);
    }

    /// Takes back the credits of idle clients. Computes the fair share of each class from what the classes before it leave.
    fn compute_shares(&mut self, now: Timestamp) {
        let elapsed = seconds(now.since(self.computed)).max(1.0);
        self.computed = now;
        self.accounts
            .retain(|_, account| now.since(account.expires) < IDLE);
        let mut wants: [Vec<f64>; MAX_CLASSES] = Default::default();
        self.issued = [0.0; MAX_CLASSES];
        self.credited = 0;
        for (client, account) in &self.accounts {
            if account.credits == 0 {
                continue;
            }
            self.credited = self.credited.saturating_add(1);
            let class = client.class.index();
            if let (Some(wants), Some(issued)) = (wants.get_mut(class), self.issued.get_mut(class))
            {
                wants.push(account.demand.max(account.wanted()));
                *issued += account.rate();
            }
        }
        self.adjust_overcommit(wants.iter().flatten().sum(), elapsed);
        let mut left = self.pool * self.overcommit;
        for (share, wants) in self.shares.iter_mut().zip(&mut wants) {
            let demand: f64 = wants.iter().sum();
            *share = max_min_share(wants, left);
            left = (left - demand).max(0.0);
        }
        self.spare = left / from_count(self.credited).max(1.0);
    }
}

#[expect(clippy::cast_precision_loss, reason = "a span needs no 53 bits")]
fn seconds(span: Nanos) -> f64 {
    span.as_nanos() as f64 / 1e9
}

#[expect(clippy::cast_precision_loss, reason = "there are at most 16,384")]
const fn from_count(count: usize) -> f64 {
    count as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "spans are positive and at most a minute"
)]
fn from_seconds(seconds: f64) -> Nanos {
    Nanos::from_nanos((seconds * 1e9) as u64)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts from floats saturate"
)]
fn whole(credits: f64) -> u32 {
    credits as u32
}

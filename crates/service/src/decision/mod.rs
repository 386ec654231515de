//! Decides on one request ([`RateLimitService::check`]) and renders the header fields of the verdict.
//!
//! Must not know: how a transport reads requests or sends fields.

mod refusal;

pub use refusal::Refusal;

use tollgate_core::{Nanos, Timestamp};
use tollgate_engine::{CheckMode, CheckOptions, Verdict};
use tollgate_fleet::FleetEngine;
use tollgate_http::{HeaderFields, RateLimitStatus};
use tollgate_policy::attributes::Attributes;
use tollgate_store::Clock;

use crate::claims::{ClaimLookup, KnownClaims};
use crate::header_fields::{AdmittedFields, HeaderSubject};
use crate::metrics::Transport;
use crate::overload::{CreditOffer, Shed};
use crate::service::RateLimitService;

/// How far the clock of a fleet's store may be ahead of ours. The store says how long to wait, and our clock makes a time of
/// it: without this, a reset on a whole second would be reported now as that second and now as the next one. With it, the
/// reported time is the next one, and never too early.
const CLOCK_TOLERANCE: Nanos = Nanos::from_millis(50);

impl<C: Clock> RateLimitService<C> {
    /// Decides on a request by the current policy, counts the verdict for the request's transport, and logs a denial if the
    /// service logs denials.
    ///
    /// ```
    /// use tollgate_engine::CheckOptions;
    /// use tollgate_policy::attributes::{Attribute, Attributes};
    /// use tollgate_policy::source::SourceFormat;
    /// use tollgate_service::{HeaderFields, RateLimitService, Secret, Transport};
    /// use tollgate_store::SystemClock;
    ///
    /// struct Nobody;
    /// impl Attributes for Nobody {
    ///     fn get(&self, _: &Attribute) -> Option<&[u8]> {
    ///         None
    ///     }
    /// }
    ///
    /// let policy = tollgate_policy::load("limits: [{ name: all, rate: 2/m }]", "p.yaml", SourceFormat::Yaml)?;
    /// let service = RateLimitService::new(&policy, 1_000, SystemClock::new(), Secret::random())?;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let verdict = service.check(Transport::Http, &Nobody, CheckOptions::default()).await;
    /// assert!(verdict.is_admitted());
    ///
    /// // Reuse the buffer: once it has grown, rendering allocates nothing.
    /// let mut fields = HeaderFields::new();
    /// service.fields(&verdict, &mut fields);
    /// assert_eq!(fields.get("ratelimit-policy"), Some(&br#""all";q=2;w=60"#[..]));
    /// assert_eq!(fields.get("ratelimit"), Some(&br#""all";r=1;t=30"#[..]));
    /// # });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Without a fleet the future is ready at the first poll.
    pub async fn check(
        &self,
        transport: Transport,
        request: &dyn Attributes,
        options: CheckOptions,
    ) -> Verdict {
        let verdict = self.check_uncounted(request, options).await;
        let is_peek = options.mode == CheckMode::Peek;
        self.observe(transport, &verdict, is_peek);
        verdict
    }

    /// The same for a synchronous transport. `None`, without a decision, if the service has joined a fleet.
    pub fn check_local(
        &self,
        transport: Transport,
        request: &dyn Attributes,
        options: CheckOptions,
    ) -> Option<Verdict> {
        if self.fleet().is_some() {
            return None;
        }
        let verdict = match self.claims().lookup() {
            Some(lookup) => self.check_claims_local(&lookup, request, options),
            None => self.engine().check(request, options),
        };
        let is_peek = options.mode == CheckMode::Peek;
        self.observe(transport, &verdict, is_peek);
        Some(verdict)
    }

    /// Decides without counting or logging, for a transport that checks several times for one request. It passes one of
    /// the verdicts to [`observe`](Self::observe).
    pub async fn check_uncounted(
        &self,
        request: &dyn Attributes,
        options: CheckOptions,
    ) -> Verdict {
        match self.claims().lookup() {
            Some(lookup) => Box::pin(self.check_claims(&lookup, request, options)).await,
            None => self.decide(request, options).await,
        }
    }

    /// Decides on a request as it is.
    async fn decide(&self, request: &dyn Attributes, options: CheckOptions) -> Verdict {
        match self.fleet_engine() {
            // In a box, so that the future over memory stays small.
            Some(engine) => Box::pin(engine.check(request, options)).await,
            None => self.engine().check(request, options),
        }
    }

    /// Decides on a request with the claims of its token: first by the limits that need no claims, unless the token is known.
    async fn check_claims(
        &self,
        lookup: &ClaimLookup<'_>,
        request: &dyn Attributes,
        options: CheckOptions,
    ) -> Verdict {
        let now = self.now();
        let claimed = match lookup.recall(request, now) {
            KnownClaims::Known(claimed) => claimed,
            KnownClaims::Unverified(unclaimed, token) => {
                let first = self.decide(&unclaimed, options.before_claims()).await;
                if !first.is_admitted() {
                    return first;
                }
                lookup.verify((request, &unclaimed), &token, &first, now)
            }
        };
        self.decide(&claimed, options).await
    }

    /// The same without a fleet.
    fn check_claims_local(
        &self,
        lookup: &ClaimLookup<'_>,
        request: &dyn Attributes,
        options: CheckOptions,
    ) -> Verdict {
        let now = self.now();
        let claimed = match lookup.recall(request, now) {
            KnownClaims::Known(claimed) => claimed,
            KnownClaims::Unverified(unclaimed, token) => {
                let first = self.engine().check(&unclaimed, options.before_claims());
                if !first.is_admitted() {
                    return first;
                }
                lookup.verify((request, &unclaimed), &token, &first, now)
            }
        };
        self.engine().check(&claimed, options)
    }

    /// The engine as a node of the fleet, if the service has joined one.
    pub(crate) fn fleet_engine(&self) -> Option<FleetEngine<'_, tollgate_store::MemoryStore<C>>> {
        let fleet = self.fleet()?;
        Some(FleetEngine::new(self.engine(), fleet))
    }

    /// Replaces the contents of `fields` by the header fields of a verdict, in the service's dialects: names in lowercase,
    /// values in printable ASCII, and how to merge them into a response that already has them.
    pub fn fields(&self, verdict: &Verdict, fields: &mut HeaderFields) {
        self.fields_with_credits(verdict, None, fields);
    }

    /// Writes the header fields of a verdict as [`fields`](Self::fields) does, with the credits of the client.
    pub fn fields_with_credits(
        &self,
        verdict: &Verdict,
        credits: Option<CreditOffer>,
        fields: &mut HeaderFields,
    ) {
        let (subject, dialects) = (HeaderSubject::Request, self.headers.dialects());
        let write = |status: &RateLimitStatus<'_>| status.write(dialects, fields);
        let now = || self.field_time();
        self.headers
            .with_rate_limit_status(verdict, subject, credits, now, write);
    }

    /// Replaces the contents of `fields` by those of a request that is shed. Returns false, and leaves `fields`, if the client has
    /// no credits.
    pub fn shed_fields(&self, shed: &Shed, fields: &mut HeaderFields) -> bool {
        let (Some(credits), Some(retry_after)) = (&shed.credits, shed.refusal().retry_after) else {
            return false;
        };
        let now = || self.field_time();
        self.headers
            .with_shed_status(credits, retry_after, now, |status| {
                status.write(self.headers.dialects(), fields);
            });
        true
    }

    /// The header fields of an admission in the default dialect, if this thread has sent such fields for the same keys lately.
    /// They are the same as those of [`fields`](Self::fields), and take less than half the instructions.
    #[must_use]
    pub fn admitted_fields(&self, verdict: &Verdict) -> Option<AdmittedFields> {
        self.headers.admitted_fields(verdict)
    }

    /// Calls `work` with the rate limit status of a verdict, to write header fields or problem details.
    pub fn with_rate_limit_status<R>(
        &self,
        verdict: &Verdict,
        subject: HeaderSubject,
        work: impl FnOnce(&RateLimitStatus<'_>) -> R,
    ) -> R {
        let now = || self.field_time();
        self.headers
            .with_rate_limit_status(verdict, subject, None, now, work)
    }

    fn field_time(&self) -> Timestamp {
        match self.fleet() {
            Some(_) => self.now().after(CLOCK_TOLERANCE),
            None => self.now(),
        }
    }
}

//! A decision on one request: [`RateLimitService::check`] and what comes of it.
//!
//! Must not know: how a transport reads requests or sends fields.

mod limit_details;
mod refusal;

pub use refusal::Refusal;

pub(crate) use limit_details::{LimitDetail, LimitDetails};

use tollgate_core::Nanos;
use tollgate_engine::{LimitState, Purpose, Terms, Verdict};
use tollgate_http::{Answer, Words as HeaderFields};
use tollgate_policy::attributes::Attributes;
use tollgate_store::Clock;

use crate::header_fields::Subject;
use crate::metrics::Transport;
use crate::service::RateLimitService;

/// A request that was decided on: the verdict, and what header fields say of it.
#[derive(Debug)]
pub struct Checked {
    /// What the engine decided.
    pub verdict: Verdict,
    pub(crate) details: LimitDetails,
}

impl Checked {
    /// How to refuse the request. `None` if it is admitted.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        Refusal::of(&self.verdict)
    }

    /// The window of the quota that decided on one of the verdict's states. Zero where there is no one such time.
    #[must_use]
    pub fn window(&self, state: &LimitState) -> Nanos {
        self.detail(state).window
    }

    /// Where nothing remains of a bucket: time until there is one more. Zero for anything else.
    #[must_use]
    pub fn time_to_next_unit(&self, state: &LimitState) -> Nanos {
        self.detail(state).time_to_next_unit
    }

    fn detail(&self, state: &LimitState) -> LimitDetail {
        let mut states = self.verdict.limits().iter();
        let position = states.position(|one| std::ptr::eq(one, state));
        self.details.of(position.unwrap_or(usize::MAX))
    }
}

impl<C: Clock> RateLimitService<C> {
    /// Decides on a request by the policy in force, counts the verdict for the transport that the request came by, and logs
    /// a denial if the service logs denials.
    ///
    /// ```
    /// use tollgate_engine::{Purpose, Terms};
    /// use tollgate_policy::attributes::{Attribute, Attributes};
    /// use tollgate_policy::source::Format;
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
    /// let policy = tollgate_policy::load("limits: [{ name: all, rate: 2/m }]", "p.yaml", Format::Yaml)?;
    /// let service = RateLimitService::new(&policy, 1_000, SystemClock::new(), Secret::random())?;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let options = Terms::of(Purpose::Charge, None);
    /// let checked = service.check(Transport::Http, &Nobody, options).await;
    /// assert!(checked.verdict.is_admitted());
    ///
    /// // Kept by the connection or the thread: nothing is allocated once it has grown.
    /// let mut fields = HeaderFields::new();
    /// service.fields(&checked, &mut fields);
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
        options: Terms,
    ) -> Checked {
        let checked = self.check_uncounted(request, options).await;
        let is_peek = options.purpose == Purpose::Look;
        self.observe(transport, request, &checked.verdict, is_peek);
        checked
    }

    /// The same for a caller that goes on at once. A [`Checked`] is large, and a future that returns it copies it; so it is
    /// lent to `then` instead.
    pub async fn check_then<R>(
        &self,
        transport: Transport,
        request: &dyn Attributes,
        options: Terms,
        then: impl FnOnce(&mut Checked) -> R + Send,
    ) -> R {
        if self.has_fleet() {
            return Box::pin(async move {
                let mut checked = self.check(transport, request, options).await;
                then(&mut checked)
            })
            .await;
        }
        let mut checked = self.check_local(request, options);
        let is_peek = options.purpose == Purpose::Look;
        self.observe(transport, request, &checked.verdict, is_peek);
        then(&mut checked)
    }

    /// Decides without counting or logging, for a caller that checks several times for one request. It calls
    /// [`observe`](Self::observe) once.
    pub async fn check_uncounted(&self, request: &dyn Attributes, options: Terms) -> Checked {
        match self.has_fleet() {
            true => Box::pin(self.check_fleet(request, options)).await,
            false => self.check_local(request, options),
        }
    }

    /// Decides by this node's memory store alone, without counting or logging. Only where there is no fleet.
    pub fn check_local(&self, request: &dyn Attributes, options: Terms) -> Checked {
        let details = self.headers.details();
        let verdict = self.engine().ask(request, options, &details);
        Checked { verdict, details }
    }

    async fn check_fleet(&self, request: &dyn Attributes, options: Terms) -> Checked {
        let details = self.headers.details();
        let together = self.engine().together();
        let verdict = together.ask(request, options, Some(&details)).await;
        Checked { verdict, details }
    }

    /// Fills `fields` with the header fields that tell a client of a decision, in the dialects of this service: names in
    /// lowercase, values in printable ASCII, and how to merge them with fields that a response has already.
    pub fn fields(&self, checked: &Checked, fields: &mut HeaderFields) {
        self.answer(checked, Subject::Request, |answer| {
            answer.write(self.headers.dialects(), fields);
        });
    }

    /// Lends what a decision promises to `work`, which writes its fields and its body.
    pub fn answer<R>(
        &self,
        checked: &Checked,
        subject: Subject,
        work: impl FnOnce(&Answer<'_>) -> R,
    ) -> R {
        self.headers.answer(checked, subject, || self.now(), work)
    }
}

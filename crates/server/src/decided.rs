//! A decision that can be put into words, for every transport: ask, then take the fields.
//!
//! Must not know: how a transport reads requests or sends fields.

use tollgate_core::Nanos;
use tollgate_engine::{LimitState, Purpose, Terms, Verdict};
use tollgate_http::{Answer, Standing, Words};
use tollgate_policy::attributes::Attributes;
use tollgate_store::Clock;

use crate::app::App;
use crate::metrics::Transport;
use crate::words::{About, Note, Notes, told};

/// What came of a question, and who was counted.
#[derive(Debug)]
pub struct Decided {
    /// What the engine says.
    pub verdict: Verdict,
    notes: Notes,
}

impl Decided {
    /// Where the limits stand that clients are told about.
    pub(crate) fn standings(&self) -> impl Iterator<Item = Standing<'_>> {
        told(&self.verdict, &self.notes).map(|(_, standing)| standing)
    }

    /// The window of the quota that decided on one of the verdict's states. Zero where there is no one such time.
    pub(crate) fn window(&self, state: &LimitState) -> Nanos {
        self.note(state).window
    }

    /// Where nothing remains of a bucket: time until there is one more. Zero for anything else.
    pub(crate) fn more_after(&self, state: &LimitState) -> Nanos {
        self.note(state).more_after
    }

    fn note(&self, state: &LimitState) -> Note {
        let mut states = self.verdict.limits().iter();
        let position = states.position(|one| std::ptr::eq(one, state));
        self.notes.of(position.unwrap_or(usize::MAX))
    }
}

impl<C: Clock> App<C> {
    /// Decides on a request by the policy in force, counts what came of it for the transport that it came by, logs it if it
    /// is denied and that is wanted, and remembers who was counted as far as clients are told.
    ///
    /// ```
    /// use tollgate_engine::{Purpose, Terms};
    /// use tollgate_http::Words;
    /// use tollgate_policy::attributes::{Attribute, Attributes};
    /// use tollgate_policy::source::Format;
    /// use tollgate_server::{App, Transport};
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
    /// let app = App::new(&policy, 1_000, SystemClock::new())?;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let terms = Terms::of(Purpose::Charge, None);
    /// let decided = app.ask(Transport::Http, &Nobody, terms).await;
    /// assert!(decided.verdict.is_admitted());
    ///
    /// // Kept by the connection or the thread: nothing is allocated once it has grown.
    /// let mut words = Words::new();
    /// app.fields(&decided, &mut words);
    /// assert_eq!(words.get("ratelimit-policy"), Some(&br#""all";q=2;w=60"#[..]));
    /// assert_eq!(words.get("ratelimit"), Some(&br#""all";r=1;t=30"#[..]));
    /// # });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Without a fleet the answer is there when it is first looked at.
    pub async fn ask(
        &self,
        transport: Transport,
        request: &dyn Attributes,
        terms: Terms,
    ) -> Decided {
        let decided = self.ask_unseen(request, terms).await;
        let is_look = terms.purpose == Purpose::Look;
        self.observe(transport, request, &decided.verdict, is_look);
        decided
    }

    /// The same for whoever goes on with it at once. A decision is large, and handed out of a future it is copied; so it is
    /// handed on instead.
    pub(crate) async fn ask_then<R>(
        &self,
        transport: Transport,
        request: &dyn Attributes,
        terms: Terms,
        then: impl FnOnce(&mut Decided) -> R + Send,
    ) -> R {
        if self.waits() {
            return Box::pin(async move {
                let mut decided = self.ask(transport, request, terms).await;
                then(&mut decided)
            })
            .await;
        }
        let mut decided = self.ask_here(request, terms);
        let is_look = terms.purpose == Purpose::Look;
        self.observe(transport, request, &decided.verdict, is_look);
        then(&mut decided)
    }

    /// The same without counting or logging it, for whoever asks several times about one request.
    pub(crate) async fn ask_unseen(&self, request: &dyn Attributes, terms: Terms) -> Decided {
        match self.waits() {
            true => Box::pin(self.ask_together(request, terms)).await,
            false => self.ask_here(request, terms),
        }
    }

    /// The same where nobody has to be waited for.
    pub(crate) fn ask_here(&self, request: &dyn Attributes, terms: Terms) -> Decided {
        let notes = self.wording.notes();
        let verdict = self.engine.ask(request, terms, &notes);
        Decided { verdict, notes }
    }

    async fn ask_together(&self, request: &dyn Attributes, terms: Terms) -> Decided {
        let notes = self.wording.notes();
        let together = self.engine.together();
        let verdict = together.ask(request, terms, Some(&notes)).await;
        Decided { verdict, notes }
    }

    /// Fills `words` with the fields that tell a client of a decision, in the dialects of this app: names in lowercase,
    /// values in printable ASCII, and what to do with those that a response has already.
    pub fn fields(&self, decided: &Decided, words: &mut Words) {
        self.answering(decided, About::Request, |answer| {
            answer.write(self.wording.dialects(), words);
        });
    }

    /// Hands over what a decision promises, for its fields and for its body.
    pub(crate) fn answering<R>(
        &self,
        decided: &Decided,
        about: About,
        work: impl FnOnce(&Answer<'_>) -> R,
    ) -> R {
        let now = || self.engine.store().now();
        let Decided { verdict, notes } = decided;
        self.wording.answer(verdict, notes, about, now, work)
    }
}

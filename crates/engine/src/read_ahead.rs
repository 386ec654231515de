//! Decides on several requests of one caller, such as a pipeline, without waiting for memory at each of them.
//!
//! A large table of states is not in the processor's caches, so a decision on a random key waits for main memory. Here the states of
//! a few requests are being loaded while others are planned. Must not know: how requests are planned or decided.

use arrayvec::ArrayVec;
use tollgate_policy::attributes::Attributes;
use tollgate_store::{QuotaCheck, Store};

use crate::check_options::CheckOptions;
use crate::decision::Decision;
use crate::engine::Engine;
use crate::steps::{StoreSteps, checks, run_local};
use crate::store::StateStore;
use crate::verdict::Verdict;

/// Requests that are planned before the first of them is decided. Planning so many takes longer than a load from memory. More would
/// gain nothing, and the guards of their generations would no longer fit into a thread's fast slots, of which there are eight.
const READ_AHEAD: usize = 4;

/// Checks of one request whose states are loaded ahead. A core loads about a dozen cache lines at a time.
const PREFETCHED_CHECKS: usize = 8;

impl<S: StateStore> Engine<S> {
    /// Decides on requests in their order, each exactly as [`check`](Self::check) does: a request sees what those before it were
    /// charged. It is faster than one call for each if the store has more keys than the processor's caches, because the states of the
    /// next requests are loaded meanwhile.
    ///
    /// `on_verdict` gets the verdicts in the same order. Each request uses the policy that is in force when it is read from
    /// `requests`, at most four requests before its verdict.
    ///
    /// ```
    /// use tollgate_engine::{CheckOptions, Engine};
    /// use tollgate_policy::attributes::{Attribute, Attributes};
    /// use tollgate_policy::rules::Rules;
    /// use tollgate_policy::source::SourceFormat;
    /// use tollgate_store::MemoryStore;
    ///
    /// struct Command(&'static str);
    /// impl Attributes for Command {
    ///     fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
    ///         matches!(attribute, Attribute::Header(_)).then_some(self.0.as_bytes())
    ///     }
    /// }
    ///
    /// let text = "limits: [{ name: per-user, key: header.user, rate: 1/m }]";
    /// let policy = tollgate_policy::load(text, "p.yaml", SourceFormat::Yaml)?;
    /// let rules = Rules::compile(&policy, [7; 16]).map_err(|problems| format!("{problems:?}"))?;
    /// let engine = Engine::new(rules, MemoryStore::for_keys(1_000)?)?;
    ///
    /// let pipeline = [Command("ada"), Command("bob"), Command("ada")];
    /// let requests = pipeline.iter().map(|command| (command as &dyn Attributes, CheckOptions::default()));
    /// let mut admitted = Vec::new();
    /// engine.check_each(requests, |verdict| admitted.push(verdict.is_admitted()));
    /// assert_eq!(admitted, [true, true, false], "ada's first request has spent her quota");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_each<'a>(
        &'a self,
        requests: impl IntoIterator<Item = (&'a dyn Attributes, CheckOptions)>,
        mut on_verdict: impl FnMut(Verdict),
    ) {
        let mut requests = requests.into_iter();
        let mut planned = ArrayVec::<Decision<'a>, READ_AHEAD>::new();
        loop {
            for (request, options) in requests.by_ref().take(READ_AHEAD) {
                let decision = self.decision(request, options);
                prefetch(&decision, self.store());
                planned.push(decision);
            }
            if planned.is_empty() {
                return;
            }
            for mut decision in planned.drain(..) {
                run_local(&mut decision, self.store());
                on_verdict(decision.into_verdict());
            }
        }
    }
}

/// Begins to load the states of the next batch.
fn prefetch<S: Store>(steps: &impl StoreSteps, store: &S) {
    let batch: ArrayVec<QuotaCheck<'_>, PREFETCHED_CHECKS> = checks(steps);
    store.prefetch(&batch);
}

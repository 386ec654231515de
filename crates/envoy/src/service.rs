//! [`EnvoyService`]: what Envoy asks, answered over a rate limit service.
//!
//! Must not know: gRPC, sockets, how anything is decided.

use std::fmt;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use tollgate_engine::control::{Adopted, By, OperatorError, Switch, ToPut, Wake};
use tollgate_engine::{LimitTotals, OutOfNumbers};
use tollgate_service::fleet::{LocalNode, NodeTotals};
use tollgate_service::reload::{Reload, ReloadStatus, Reloader};
use tollgate_service::{InvalidService, RateLimitService};
use tollgate_store::Clock;
use tollgate_store::register::RegisterSnapshot;

use crate::config::{EnvoyPolicy, Modes};
use crate::engine::{EnvoyEngine, EnvoyReloader, SharedStore};
use crate::rlqs::{QuotaBounds, QuotaCounts, Quotas};
use crate::rls::{RulePolicies, overrides};

/// Envoy's rate limit service (RLS) and rate limit quota service (RLQS) over a rate limit service.
pub struct EnvoyService<C> {
    service: Arc<RateLimitService<C>>,
    rules: DescriptorRules<C>,
    /// Whether files of envoyproxy/ratelimit decide, and not the service's policy.
    by_files: bool,
    pub(crate) rule_policies: RulePolicies,
    pub(crate) quotas: Quotas,
}

/// Rules that count descriptors as envoyproxy/ratelimit does. Where a policy decides, they count limits that come with
/// descriptors.
enum DescriptorRules<C> {
    /// From somewhere else.
    Given(EnvoyEngine<SharedStore<C>>),
    /// From files, which are loaded again.
    Reloaded(Arc<EnvoyReloader<SharedStore<C>>>),
}

impl<C: Clock> EnvoyService<C> {
    /// Decides by the policy of the service.
    ///
    /// # Errors
    /// There are more states than numbers for them.
    pub fn new(service: Arc<RateLimitService<C>>) -> Result<Self, OutOfNumbers> {
        let engine = engine(&service, overrides())?;
        Ok(Self::over(service, DescriptorRules::Given(engine), false))
    }

    /// Decides by files of envoyproxy/ratelimit that were read elsewhere.
    ///
    /// # Errors
    /// There are more counters than numbers for them.
    pub fn by_files(
        service: Arc<RateLimitService<C>>,
        files: EnvoyPolicy,
    ) -> Result<Self, OutOfNumbers> {
        let engine = engine(&service, files)?;
        Ok(Self::over(service, DescriptorRules::Given(engine), true))
    }

    /// Decides by the files of envoyproxy/ratelimit at a path: one file, or a directory of files.
    ///
    /// # Errors
    /// Everything that is wrong with the files.
    pub fn from_files(
        service: Arc<RateLimitService<C>>,
        path: &Path,
    ) -> Result<Self, InvalidService> {
        let secret = service.secret().bytes();
        let reloader = Reloader::open(path, secret, |files| engine(&service, files))
            .map_err(InvalidService::Files)?;
        let rules = DescriptorRules::Reloaded(Arc::new(reloader));
        Ok(Self::over(service, rules, true))
    }

    fn over(service: Arc<RateLimitService<C>>, rules: DescriptorRules<C>, by_files: bool) -> Self {
        let quotas = Quotas::new(QuotaBounds::default(), service.now());
        Self {
            service,
            rules,
            by_files,
            rule_policies: RulePolicies::default(),
            quotas,
        }
    }

    /// The same service, which assigns quotas within these bounds.
    #[must_use]
    pub fn with_quota_bounds(mut self, bounds: QuotaBounds) -> Self {
        self.quotas = Quotas::new(bounds, self.service.now());
        self
    }

    /// The same over a service that is configured by `change`. A service that is shared already stays as it is.
    #[must_use]
    pub fn configured(
        mut self,
        change: impl FnOnce(RateLimitService<C>) -> RateLimitService<C>,
    ) -> Self {
        self.service = match Arc::try_unwrap(self.service) {
            Ok(service) => Arc::new(change(service)),
            Err(shared) => {
                debug_assert!(false, "a service is configured before it is shared");
                shared
            }
        };
        self
    }

    /// The service below.
    #[must_use]
    pub const fn service(&self) -> &Arc<RateLimitService<C>> {
        &self.service
    }

    /// Whether files of envoyproxy/ratelimit decide. Then only what Envoy asks is answered.
    #[must_use]
    pub const fn is_by_files(&self) -> bool {
        self.by_files
    }

    /// What loads the file or files that decide, whichever kind they are, if there are any.
    pub fn reload(&self) -> Option<Arc<dyn Reload>>
    where
        C: 'static,
    {
        match &self.rules {
            DescriptorRules::Reloaded(reloader) => Some(Arc::<EnvoyReloader<_>>::clone(reloader)),
            DescriptorRules::Given(_) => {
                let reloader = Arc::clone(self.service.reloader()?);
                Some(reloader)
            }
        }
    }

    /// The status of the file or files that decide, if there are any.
    #[must_use]
    pub fn file_status(&self) -> Option<ReloadStatus> {
        match &self.rules {
            DescriptorRules::Reloaded(reloader) => Some(reloader.status()),
            DescriptorRules::Given(_) => Some(self.service.reloader()?.status()),
        }
    }

    /// The generation of the policy, or of the files, that decides.
    #[must_use]
    pub fn generation(&self) -> u64 {
        match self.by_files {
            true => self.engine().generation(),
            false => self.service.engine().generation().number(),
        }
    }

    /// What every rule of the files does, a line each, if files decide.
    #[must_use]
    pub fn rules_in_words(&self) -> Option<Vec<String>> {
        self.by_files.then(|| self.engine().explain())
    }

    /// What every rule of the files has decided, and limits that came with requests where any did.
    #[must_use]
    pub fn counted(&self) -> Vec<(Box<str>, LimitTotals)> {
        let mut counted = self.engine().counted();
        let is_used = |counted: &LimitTotals| *counted != LimitTotals::default();
        counted.retain(|(name, counted)| !name.starts_with("override/") || is_used(counted));
        counted
    }

    /// Halts a limit or all limits, or lets them go on: the kill switch. Where files decide it puts them into shadow mode.
    ///
    /// # Errors
    /// There is no such limit, or the switch is not possible.
    pub fn switch(&self, limit: Option<&str>, to: Switch, by: By<'_>) -> Result<(), OperatorError> {
        self.service.control().switch(limit, to, by)?;
        if self.by_files {
            // There are no limits of ours then, so this was everything. What files decide is always counted.
            self.set_shadow(to.halt.is_some());
        }
        Ok(())
    }

    /// Puts everything that files decide into shadow mode, or out of it.
    fn set_shadow(&self, is_halted: bool) {
        let engine = self.engine();
        engine.set_modes(Modes {
            shadow_mode: is_halted,
            ..engine.modes()
        });
    }

    /// What clients of RLQS were assigned so far.
    #[must_use]
    pub fn quota_counts(&self) -> QuotaCounts {
        self.quotas.counts()
    }

    pub(crate) fn engine(&self) -> &EnvoyEngine<SharedStore<C>> {
        match &self.rules {
            DescriptorRules::Given(engine) => engine,
            DescriptorRules::Reloaded(reloader) => reloader.engine(),
        }
    }
}

fn engine<C: Clock>(
    service: &RateLimitService<C>,
    files: EnvoyPolicy,
) -> Result<EnvoyEngine<SharedStore<C>>, OutOfNumbers> {
    let engine = service.engine();
    let store = SharedStore::new(Arc::clone(engine));
    let secret = service.secret().bytes();
    EnvoyEngine::new(files, secret, store, &engine.numbering())
}

impl<C: Clock + 'static> LocalNode for EnvoyService<C> {
    fn policy(&self) -> u64 {
        match self.file_status() {
            Some(status) => status.hash.short(),
            None => self.service.policy(),
        }
    }

    fn generation(&self) -> u64 {
        Self::generation(self)
    }

    fn tally(&self) -> NodeTotals {
        self.service.tally()
    }

    fn share_among(&self, nodes: NonZeroU32) {
        self.service.share_among(nodes);
    }

    fn share(&self, wake: Wake) {
        self.service.share(wake);
    }

    fn to_put(&self) -> ToPut {
        self.service.to_put()
    }

    fn was_put(&self, put: &ToPut) {
        self.service.was_put(put);
    }

    fn give_up(&self, put: &ToPut) {
        self.service.give_up(put);
    }

    fn tell_again(&self, lost_after: Option<u64>) {
        self.service.tell_again(lost_after);
    }

    fn adopt(&self, said: &RegisterSnapshot) -> Adopted {
        let adopted = self.service.adopt(said);
        if self.by_files {
            // There are no limits of ours then, so the switch over everything is all there is.
            let everything = self.service.engine().control().everything();
            self.set_shadow(everything.halt.is_some());
        }
        adopted
    }

    fn unheard(&self) -> (usize, u64) {
        self.service.unheard()
    }
}

impl<C> fmt::Debug for EnvoyService<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnvoyService")
            .field("by_files", &self.by_files)
            .finish_non_exhaustive()
    }
}

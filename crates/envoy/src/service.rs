//! [`EnvoyService`]: Envoy's services over a rate limit service.
//!
//! Must not know: gRPC, sockets, how requests are decided.

use std::fmt;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use tollgate_core::Nanos;
use tollgate_engine::control::{
    Attribution, OperatorError, RegisterChanges, Switch, SyncOutcome, WakeCallback,
};
use tollgate_engine::{LimitIdsExhausted, LimitTotals};
use tollgate_service::fleet::{LocalNode, NodeTotals};
use tollgate_service::reload::{ReloadHandle, ReloadStatus, Reloader};
use tollgate_service::state::ProcessState;
use tollgate_service::{InvalidService, RateLimitService};
use tollgate_store::Clock;
use tollgate_store::register::{NodeUsage, RegisterSnapshot};

use crate::config::{EnvoyPolicy, LoadOptions, Modes};
use crate::engine::{EnvoyEngine, EnvoyReloader, SharedStore};
use crate::rlqs::{QuotaBounds, QuotaCounts, SharedQuotaTable};
use crate::rls::{RulePolicies, override_policy};

/// Envoy's rate limit service (RLS) and rate limit quota service (RLQS) over a rate limit service.
pub struct EnvoyService<C> {
    service: Arc<RateLimitService<C>>,
    rules: DescriptorRules<C>,
    /// Whether files of envoyproxy/ratelimit decide instead of the service's policy.
    by_files: bool,
    options: EnvoyOptions,
    pub(crate) rule_policies: RulePolicies,
    pub(crate) quotas: SharedQuotaTable,
}

/// How files of envoyproxy/ratelimit are read and enforced: its environment variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct EnvoyOptions {
    /// Several files may define one domain, as with `MERGE_DOMAIN_CONFIG`.
    pub merge_domains: bool,
    /// The modes of all rules, as with `SHADOW_MODE` and `QUOTA_MODE`.
    pub modes: Modes,
    /// Every reply has dynamic metadata, as with `RESPONSE_DYNAMIC_METADATA`. Otherwise only those of requests that a rule with
    /// `metadata` admitted.
    pub dynamic_metadata: bool,
}

/// The rules that count descriptors as envoyproxy/ratelimit does. If a policy decides, they count only overrides.
enum DescriptorRules<C> {
    /// Fixed rules.
    Static(EnvoyEngine<SharedStore<C>>),
    /// Rules of files, which are reloaded.
    Reloaded(Arc<EnvoyReloader<SharedStore<C>>>),
}

impl<C: Clock> EnvoyService<C> {
    /// Decides by the policy of the service.
    ///
    /// # Errors
    /// There are more limits than limit ids.
    pub fn new(service: Arc<RateLimitService<C>>) -> Result<Self, LimitIdsExhausted> {
        let engine = engine(&service, override_policy())?;
        Ok(Self::with_rules(
            service,
            DescriptorRules::Static(engine),
            false,
        ))
    }

    /// Decides by a loaded configuration of envoyproxy/ratelimit.
    ///
    /// # Errors
    /// There are more counters than limit ids.
    pub fn from_config(
        service: Arc<RateLimitService<C>>,
        files: EnvoyPolicy,
    ) -> Result<Self, LimitIdsExhausted> {
        let engine = engine(&service, files)?;
        Ok(Self::with_rules(
            service,
            DescriptorRules::Static(engine),
            true,
        ))
    }

    /// Decides by the files of envoyproxy/ratelimit at a path: one file, or a directory of files.
    ///
    /// # Errors
    /// All problems of the files.
    pub fn from_path(
        service: Arc<RateLimitService<C>>,
        path: &Path,
        options: EnvoyOptions,
    ) -> Result<Self, InvalidService> {
        let secret = service.secret().bytes();
        let load_options = LoadOptions {
            merge_domains: options.merge_domains,
            ..LoadOptions::default()
        };
        let make = |files| Ok(engine(&service, files)?.with_load_options(load_options));
        let reloader =
            Reloader::open(path, secret, &load_options, make).map_err(InvalidService::Files)?;
        let rules = DescriptorRules::Reloaded(Arc::new(reloader));
        let mut by_files = Self::with_rules(service, rules, true);
        by_files.options = options;
        by_files.set_shadow(false);
        Ok(by_files)
    }

    fn with_rules(
        service: Arc<RateLimitService<C>>,
        rules: DescriptorRules<C>,
        by_files: bool,
    ) -> Self {
        let quotas = SharedQuotaTable::new(QuotaBounds::default(), service.now());
        Self {
            service,
            rules,
            by_files,
            options: EnvoyOptions::default(),
            rule_policies: RulePolicies::default(),
            quotas,
        }
    }

    /// Sets the bounds of quota assignments.
    #[must_use]
    pub fn with_quota_bounds(mut self, bounds: QuotaBounds) -> Self {
        self.quotas = SharedQuotaTable::new(bounds, self.service.now());
        self
    }

    /// Configures the service by `change`. A service that is already shared stays as it is.
    #[must_use]
    pub fn map_service(
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

    /// The rate limit service.
    #[must_use]
    pub const fn service(&self) -> &Arc<RateLimitService<C>> {
        &self.service
    }

    /// Whether files of envoyproxy/ratelimit decide. Then only Envoy's requests are answered.
    #[must_use]
    pub const fn is_by_files(&self) -> bool {
        self.by_files
    }

    /// The reloader of the policy or of the files, whichever decides, if it is from files.
    pub fn reloader(&self) -> Option<Arc<dyn ReloadHandle>>
    where
        C: 'static,
    {
        match &self.rules {
            DescriptorRules::Reloaded(reloader) => Some(Arc::<EnvoyReloader<_>>::clone(reloader)),
            DescriptorRules::Static(_) => {
                let reloader = Arc::clone(self.service.reloader()?);
                Some(reloader)
            }
        }
    }

    /// The reload status of the policy or of the files, whichever decides, if it is from files.
    #[must_use]
    pub fn file_status(&self) -> Option<ReloadStatus> {
        match &self.rules {
            DescriptorRules::Reloaded(reloader) => Some(reloader.status()),
            DescriptorRules::Static(_) => Some(self.service.reloader()?.status()),
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

    /// The explanation of each rule of the files, one line each. `None` if a policy decides.
    #[must_use]
    pub fn explain_rules(&self) -> Option<Vec<String>> {
        self.by_files.then(|| self.engine().explain())
    }

    /// The totals of each rule of the files, and of overrides that were used.
    #[must_use]
    pub fn rule_totals(&self) -> Vec<(Box<str>, LimitTotals)> {
        let mut counted = self.engine().rule_totals();
        let is_used = |counted: &LimitTotals| *counted != LimitTotals::default();
        counted.retain(|(name, counted)| !name.starts_with("override/") || is_used(counted));
        counted
    }

    /// Switches a limit or all limits, or back: the kill switch. If files decide, it sets their shadow mode.
    ///
    /// # Errors
    /// The limit does not exist, or the switch is invalid.
    pub fn switch(
        &self,
        limit: Option<&str>,
        to: Switch,
        by: Attribution<'_>,
    ) -> Result<(), OperatorError> {
        self.service.control().switch(limit, to, by)?;
        if self.by_files {
            // If files decide, the policy has no limits, so this was the switch for all. Files always count.
            self.set_shadow(to.halt.is_some());
        }
        Ok(())
    }

    /// Takes over operator settings and tickets of an earlier process. Call it before the first request.
    pub fn restore(&self, process: ProcessState) {
        let is_halted = process.operators().everything.halt.is_some();
        self.service.restore(process);
        if self.by_files {
            self.set_shadow(is_halted);
        }
    }

    /// Sets the modes of the files: those of the options, and shadow mode while operators have halted everything.
    fn set_shadow(&self, is_halted: bool) {
        let modes = self.options.modes;
        self.engine().set_modes(Modes {
            shadow_mode: is_halted || modes.shadow_mode,
            ..modes
        });
    }

    pub(crate) const fn options(&self) -> &EnvoyOptions {
        &self.options
    }

    /// The counters of RLQS.
    #[must_use]
    pub fn quota_counts(&self) -> QuotaCounts {
        self.quotas.counts()
    }

    pub(crate) fn engine(&self) -> &EnvoyEngine<SharedStore<C>> {
        match &self.rules {
            DescriptorRules::Static(engine) => engine,
            DescriptorRules::Reloaded(reloader) => reloader.engine(),
        }
    }
}

fn engine<C: Clock>(
    service: &RateLimitService<C>,
    files: EnvoyPolicy,
) -> Result<EnvoyEngine<SharedStore<C>>, LimitIdsExhausted> {
    let engine = service.engine();
    let store = SharedStore::new(Arc::clone(engine));
    let secret = service.secret().bytes();
    EnvoyEngine::new(files, secret, store, &engine.limit_ids())
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

    fn totals(&self) -> NodeTotals {
        self.service.totals()
    }

    fn usage(&self, most: usize) -> NodeUsage {
        self.service.usage(most)
    }

    fn set_peer_usage(&self, own: &NodeUsage, peers: &[&NodeUsage], ttl: Nanos) {
        LocalNode::set_peer_usage(&*self.service, own, peers, ttl);
    }

    fn set_fleet_size(&self, nodes: NonZeroU32) {
        self.service.set_fleet_size(nodes);
    }

    fn start_sharing(&self, wake: WakeCallback) {
        self.service.start_sharing(wake);
    }

    fn pending_changes(&self) -> RegisterChanges {
        self.service.pending_changes()
    }

    fn confirm_changes(&self, put: &RegisterChanges) {
        self.service.confirm_changes(put);
    }

    fn discard_changes(&self, put: &RegisterChanges) {
        self.service.discard_changes(put);
    }

    fn resend_changes(&self, lost_after: Option<u64>) {
        self.service.resend_changes(lost_after);
    }

    fn apply_snapshot(&self, snapshot: &RegisterSnapshot) -> SyncOutcome {
        let outcome = self.service.apply_snapshot(snapshot);
        if self.by_files {
            // If files decide, the policy has no limits, so only the switch for all matters.
            let everything = self.service.engine().control().global_switch();
            self.set_shadow(everything.halt.is_some());
        }
        outcome
    }

    fn pending_counts(&self) -> (usize, u64) {
        self.service.pending_counts()
    }
}

impl<C> fmt::Debug for EnvoyService<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnvoyService")
            .field("by_files", &self.by_files)
            .finish_non_exhaustive()
    }
}

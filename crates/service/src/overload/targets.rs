//! The overload control of each target: what one upstream can do for one route says nothing about another.
//!
//! A transport names its targets. A target lives as long as the transport holds it, so a reload that keeps a route keeps what
//! was learned. Must not know: how requests are routed.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use tollgate_core::Timestamp;
use tollgate_policy::model::{OverloadSpec, ShedMechanism};

use super::control::OverloadControl;
use super::process_cpu::ProcessCpu;
use super::shed_counters::ShedCounters;
use super::status::{OverloadStatus, ShedCount};

/// The most targets. Each has a queue and metric series; further ones share the target without a name.
pub(super) const MAX_TARGETS: usize = 256;

/// The overload control of all targets of a service.
#[derive(Debug)]
pub struct OverloadTargets {
    /// The target of requests whose transport names none.
    unnamed: Arc<OverloadControl>,
    named: Mutex<Vec<NamedTarget>>,
    /// Shared by all targets, so that the number of series does not grow with them.
    counters: Arc<ShedCounters>,
    cpu: ProcessCpu,
}

#[derive(Debug)]
struct NamedTarget {
    upstream: Box<str>,
    route: Box<str>,
    control: Weak<OverloadControl>,
}

impl OverloadTargets {
    /// The control of requests to an upstream by a route, for as long as the caller keeps it.
    #[must_use]
    pub fn target(&self, upstream: &str, route: &str) -> Arc<OverloadControl> {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        named.retain(|target| target.control.strong_count() > 0);
        let same = named
            .iter()
            .find(|target| (&*target.upstream, &*target.route) == (upstream, route));
        if let Some(control) = same.and_then(|target| target.control.upgrade()) {
            return control;
        }
        if named.len() >= MAX_TARGETS {
            return Arc::clone(&self.unnamed);
        }
        let control = Arc::new(OverloadControl::new(Arc::clone(&self.counters)));
        named.push(NamedTarget {
            upstream: upstream.into(),
            route: route.into(),
            control: Arc::downgrade(&control),
        });
        control
    }

    pub(super) const fn cpu(&self) -> &ProcessCpu {
        &self.cpu
    }

    pub(super) const fn unnamed(&self) -> &Arc<OverloadControl> {
        &self.unnamed
    }

    /// Calls `visit` with every target and its names.
    pub(super) fn for_each(&self, mut visit: impl FnMut(&OverloadControl, &str, &str)) {
        visit(&self.unnamed, "", "");
        let named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        for target in &*named {
            if let Some(control) = target.control.upgrade() {
                visit(&control, &target.upstream, &target.route);
            }
        }
    }

    /// The state of all targets that have had a request.
    pub(super) fn status(
        &self,
        now: Timestamp,
        classes: &[Box<str>],
        overload: OverloadSpec,
    ) -> OverloadStatus {
        let mut targets = Vec::new();
        self.for_each(|control, upstream, route| {
            targets.extend(control.status(now, classes, upstream, route));
        });
        let mut shed = Vec::new();
        let sheds = |mechanism: &ShedMechanism| *mechanism != ShedMechanism::Credits;
        for mechanism in ShedMechanism::ALL.into_iter().filter(sheds) {
            for (index, class) in classes.iter().enumerate() {
                let (enforced, shadow) = self.counters.counts(mechanism, index);
                shed.push(ShedCount {
                    class: class.clone(),
                    mechanism,
                    enforced,
                    shadow,
                });
            }
        }
        OverloadStatus {
            overload,
            cpu: self.cpu.share(),
            targets,
            shed,
            credit_offers: self.counters.offers.counts(),
        }
    }
}

impl Default for OverloadTargets {
    fn default() -> Self {
        let counters = Arc::<ShedCounters>::default();
        Self {
            unnamed: Arc::new(OverloadControl::new(Arc::clone(&counters))),
            named: Mutex::default(),
            counters,
            cpu: ProcessCpu::default(),
        }
    }
}

//! The quota policies of envoyproxy/ratelimit's rules for header fields, each rendered once.
//!
//! Must not know: how requests are decided.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use tollgate_core::QuotaUnit as Counted;
use tollgate_http::QuotaPolicy;

use crate::config::{EnvoyRule, RuleQuota};

/// The quota policies of the newest version of the files.
#[derive(Debug, Default)]
pub(crate) struct RulePolicies {
    current: ArcSwap<VersionPolicies>,
}

/// The quota policies of one version of the files. Each is rendered when it is first needed.
#[derive(Debug, Default)]
pub(super) struct VersionPolicies {
    generation: u64,
    rules: Box<[OnceLock<Option<QuotaPolicy>>]>,
}

impl RulePolicies {
    /// The policies of a version with `count` rules. A decision by an older version gets its own.
    pub(super) fn for_version(
        &self,
        generation: u64,
        count: usize,
    ) -> arc_swap::Guard<Arc<VersionPolicies>> {
        let current = self.current.load();
        if current.generation == generation {
            return current;
        }
        let new = Arc::new(VersionPolicies {
            generation,
            rules: (0..count).map(|_| OnceLock::new()).collect(),
        });
        if generation > current.generation {
            self.current.store(Arc::clone(&new));
        }
        arc_swap::Guard::from_inner(new)
    }
}

impl VersionPolicies {
    /// The policy of one rule. `None` if its name cannot be sent, or the rule is unlimited.
    pub(super) fn for_rule(&self, rule: &EnvoyRule) -> Option<&QuotaPolicy> {
        let index = usize::try_from(rule.number).ok()?;
        let policy = self.rules.get(index)?;
        policy.get_or_init(|| render(rule)).as_ref()
    }
}

fn render(rule: &EnvoyRule) -> Option<QuotaPolicy> {
    let RuleQuota::Limited {
        requests_per_unit,
        unit,
        ..
    } = rule.quota
    else {
        return None;
    };
    let name = match &*rule.limit_name {
        "" => &rule.name,
        name => name,
    };
    QuotaPolicy::new(
        name,
        requests_per_unit.into(),
        unit.length(),
        Counted::Requests,
    )
    .ok()
}

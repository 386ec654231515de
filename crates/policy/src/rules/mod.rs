//! Compiled rules: which rules match a request, with which key, quota and cost.
//!
//! Rules are built once, when a policy is compiled, and only read afterwards. Nothing on the request path allocates.
//! Must not know: stores, clocks, files.

mod cost;
mod credentials;
mod display_key;
mod draft;
mod glob_pattern;
pub(crate) mod host;
mod key_buffer;
mod keys;
mod matched_rules;
mod matcher;
mod meter;
mod network_index;
mod path;
mod prefix_tree;
mod preflights;
mod priorities;
mod quota_builder;
mod reachable_quotas;
mod route_tree;
mod variant_selector;

#[cfg(test)]
mod tests;

pub use crate::algorithm::{AlgorithmSpec, share_state};
pub use cost::CostRule;
pub use draft::{
    DraftLimit, KeySpec, MAX_GLOB_BYTES, MAX_KEY_PARTS, MAX_SEGMENTS, RuleError, RuleErrorKind,
    RuleOrigin, RulesDraft,
};
pub use key_buffer::{KEY_CAPACITY, KeyBuffer, KeyOutcome};
pub(crate) use keys::mask_address;
pub use matched_rules::{ListVerdict, MAX_METERS, MatchedRules};
pub use meter::{Meter, MeterRole, SelectedQuota};
pub use path::Unreadable;
pub use priorities::PriorityRules;
pub use quota_builder::QuotaBuilder;
pub use variant_selector::VariantSelector;
pub(crate) use variant_selector::{ComputedQuota, MeterGrant};

use std::borrow::Cow;

use matcher::Matcher;
use preflights::PreflightRule;

use crate::attributes::{Attribute, Attributes};
use crate::model::{
    Consistency, Count, DenyRule, DuplicateRule, Mode, OnStoreFailure, Penalty, Percent,
    StatusClass, WhenFull,
};
use tollgate_core::Nanos;

/// One compiled limit. The store decides on its meters.
#[derive(Debug)]
pub struct Rule {
    /// The name in the file.
    pub name: Box<str>,
    /// Its meters: one per window or level that must admit, and those of penalties, distinct counting, the local bucket
    /// and the candidate. Empty only if the rule never limits.
    pub meters: Box<[Meter]>,
    /// Selects the variant of a request.
    pub selector: VariantSelector,
    /// Whether it applies to every request, with a key that does not depend on the target of the request.
    pub applies_to_all: bool,
    /// Whether it applies to preflights besides the built-in limit.
    pub applies_to_preflights: bool,
    /// Whether it can only be decided when the claims of the request are known.
    pub waits_for_claims: bool,
    /// The cost of a request.
    pub cost: CostRule,
    /// What is counted.
    pub count: Count,
    /// The responses whose charge is given back.
    pub refund: Box<[StatusClass]>,
    /// Whether it is enforced.
    pub mode: Mode,
    /// The share of keys that it is enforced for.
    pub enforce: Percent,
    /// Denials that end within this time become waits.
    pub wait: Option<Nanos>,
    /// What a denial costs.
    pub penalty: Penalty,
    /// Never denies, charges into debt.
    pub charge_always: bool,
    /// What to decide while the shared store does not answer.
    pub on_store_failure: OnStoreFailure,
    /// What becomes of its keys when memory is full.
    pub when_full: WhenFull,
    /// How a fleet shares the quota.
    pub consistency: Consistency,
    /// Rules with the same attribute here keep their state in one cluster slot.
    pub colocate: Option<Attribute>,
    /// The status of a denial.
    pub status: u16,
    /// The message of a denial.
    pub message: Option<Box<str>>,
    /// The opaque, stable id of its shared bucket (16 hexadecimal digits), if it has one.
    pub bucket: Option<Box<str>>,
}

/// One meter of one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MeterRef {
    /// The rule, by its index in [`Rules::rules`].
    pub rule: usize,
    /// The meter, by its index in [`Rule::meters`].
    pub meter: usize,
}

/// A compiled policy.
#[derive(Debug)]
pub struct Rules {
    rules: Box<[Rule]>,
    denials: Box<[DenyRule]>,
    key_specs: Box<[Box<[KeySpec]>]>,
    matcher: Matcher,
    divergence_threshold: Percent,
    duplicates: Box<[(Attribute, DuplicateRule)]>,
    claims: Box<[Box<str>]>,
    preflights: Option<PreflightRule>,
    /// `None` if nothing sheds.
    priorities: Option<PriorityRules>,
    is_enforcing: bool,
    secret: [u8; 16],
}

impl Rules {
    /// Builds the rules of a draft. The secret keys every digest in keys; all nodes of a fleet use the same secret.
    ///
    /// # Errors
    /// Everything in the draft that exceeds a bound.
    pub fn new(mut draft: RulesDraft, secret: [u8; 16]) -> Result<Self, Vec<RuleError>> {
        let matcher = Matcher::new(&draft);
        let mut errors = Vec::new();
        if let Err(too_many) = reachable_quotas::check(&draft, MAX_METERS) {
            errors.push(too_many.into_error(&draft));
        }
        let priorities = (!draft.overload.is_off()).then(|| {
            let overload = (draft.overload, draft.retries.clone());
            PriorityRules::new(&draft.priorities, overload, draft.paths, secret)
        });
        let priorities = match priorities.transpose() {
            Ok(priorities) => priorities,
            Err(of_classes) => {
                errors.extend(of_classes.into_iter().map(RuleError::into_priority));
                None
            }
        };
        // Behind the checks of the policy's own limits: it applies without them.
        let preflights = draft.preflights.take();
        let built_in = preflights.map(|limit| {
            draft.limits.push(limit);
            PreflightRule::new(draft.limits.len() - 1)
        });
        let mut rules: Vec<Rule> = Vec::with_capacity(draft.limits.len());
        let mut key_specs = Vec::with_capacity(draft.limits.len());
        for (index, limit) in draft.limits.into_iter().enumerate() {
            errors.extend(keys::key_errors(&limit).map(|why| RuleError {
                origin: RuleOrigin::Limit(index),
                kind: why,
            }));
            rules.push(limit.rule);
            key_specs.push(limit.keys.into());
        }
        let is_enforcing =
            !draft.deny.is_empty() || rules.iter().any(|rule| rule.mode == Mode::Enforce);
        match matcher {
            Ok(matcher) if errors.is_empty() => Ok(Self {
                is_enforcing,
                claims: draft.claims.into(),
                preflights: built_in,
                priorities,
                duplicates: draft.duplicates.into(),
                rules: rules.into(),
                denials: draft.deny.into(),
                key_specs: key_specs.into(),
                matcher,
                divergence_threshold: draft.divergence_threshold,
                secret,
            }),
            Ok(_) => Err(errors),
            Err(more) => {
                errors.extend(more);
                Err(errors)
            }
        }
    }

    /// The limits, in file order.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The `deny` list, in file order.
    #[must_use]
    pub fn denials(&self) -> &[DenyRule] {
        &self.denials
    }

    /// The share of differing decisions above which a candidate is not recommended.
    #[must_use]
    pub const fn divergence_threshold(&self) -> Percent {
        self.divergence_threshold
    }

    /// Every header, cookie and query parameter that the rules read, and which value counts if a client sends several.
    /// Transports that can receive several apply it.
    #[must_use]
    pub fn duplicate_rules(&self) -> &[(Attribute, DuplicateRule)] {
        &self.duplicates
    }

    /// Whether anything is enforced, so that a request that cannot be read has to be refused.
    #[must_use]
    pub const fn is_enforcing(&self) -> bool {
        self.is_enforcing
    }

    /// Finds all rules that match a request, and replaces the content of `found`.
    ///
    /// `deny` comes first, then `exempt`, then every limit that matches. Groups may select only the narrowest.
    pub fn match_rules(&self, request: &dyn Attributes, matched: &mut MatchedRules) {
        self.matcher.match_rules(request, matched);
        if let Some(preflights) = &self.preflights
            && matched.list_verdict == ListVerdict::Limits
        {
            let rules = &self.rules;
            let applies = |index: usize| {
                let rule = rules.get(index);
                rule.is_some_and(|rule| rule.applies_to_preflights)
            };
            preflights.select(request, applies, matched);
        }
    }

    /// Whether every limit of the policy matches every request, apart from [preflights](Self::may_be_preflight): there are no
    /// conditions and no lists.
    #[must_use]
    pub const fn is_unconditional(&self) -> bool {
        self.matcher.is_unconditional()
    }

    /// Whether a request may be charged to the built-in limit of preflights instead of the limits that match it.
    #[inline]
    #[must_use]
    pub fn may_be_preflight(&self, request: &dyn Attributes) -> bool {
        self.preflights.is_some() && preflights::has_method(request)
    }

    /// The names of all claims that the rules read, sorted.
    #[must_use]
    pub fn claims(&self) -> &[Box<str>] {
        &self.claims
    }

    /// The priority classes and what sheds them. `None` if nothing does.
    #[must_use]
    pub const fn priorities(&self) -> Option<&PriorityRules> {
        self.priorities.as_ref()
    }

    /// The index of the built-in limit of preflights.
    #[must_use]
    pub fn preflight_rule(&self) -> Option<usize> {
        self.preflights.as_ref().map(|built_in| built_in.index)
    }

    /// The route of a request: the transport's route, else the most specific template that matches the path.
    #[must_use]
    pub fn route<'a>(
        &'a self,
        request: &'a dyn Attributes,
        matched: &MatchedRules,
    ) -> Option<&'a [u8]> {
        let template = || self.matcher.template(matched).map(str::as_bytes);
        request.get(&Attribute::Route).or_else(template)
    }

    /// The route under each reading of the path; the [`route`](Self::route) comes first.
    pub(crate) fn possible_routes<'a>(
        &'a self,
        request: &'a dyn Attributes,
        matched: &'a MatchedRules,
    ) -> impl Iterator<Item = Option<&'a [u8]>> {
        let own = self.route(request, matched);
        let has_others = matched.is_ambiguous() && request.get(&Attribute::Route).is_none();
        let others = matched.readings.routes.iter().filter(move |_| has_others);
        std::iter::once(own).chain(others.map(|route| {
            let template = route.and_then(|index| self.matcher.template_at(index));
            template.map(str::as_bytes)
        }))
    }

    /// The value of an attribute for keys, tiers and costs, with the matched route. Addresses have no bytes here.
    #[inline]
    pub(crate) fn attribute_value<'a>(
        &'a self,
        attribute: &Attribute,
        request: &'a dyn Attributes,
        matched: &'a MatchedRules,
    ) -> Option<&'a [u8]> {
        match attribute {
            Attribute::Route => self.route(request, matched),
            Attribute::Ip => None,
            Attribute::Path => canonical_path(request.get(attribute)?, matched),
            Attribute::Host => canonical_host(request.get(attribute)?, matched),
            other => request.get(other),
        }
    }
}

/// The one spelling of a path for keys.
fn canonical_path<'a>(raw: &'a [u8], matched: &'a MatchedRules) -> Option<&'a [u8]> {
    match &matched.readings.canonical {
        canonical if !canonical.is_empty() => Some(canonical),
        _ => path::plain(raw).map(|(path, _)| path.without_trailing_slash()),
    }
}

/// The one spelling of a host for keys, which are in lower case. A host that cannot be read stays as it is.
fn canonical_host<'a>(raw: &'a [u8], matched: &'a MatchedRules) -> Option<&'a [u8]> {
    match &matched.readings.host {
        canonical if !canonical.is_empty() => Some(canonical),
        _ => match host::canonical(raw) {
            Some(Cow::Borrowed(host)) => Some(host),
            _ => Some(raw),
        },
    }
}

//! What the engine asks: which rules a request falls under, whose quota each is, how much it grants and what it costs.
//!
//! Everything here is made once, when a policy is compiled, and only read afterwards; nothing on the way of a request
//! allocates. Must not know: stores, clocks, files.

mod cost;
mod display_key;
mod draft;
mod glob_pattern;
mod key_buffer;
mod keys;
mod matched_rules;
mod matcher;
mod meter;
mod network_index;
mod path;
mod prefix_tree;
mod quota_builder;
mod route_tree;
mod variant_selector;

#[cfg(test)]
mod allocation;
#[cfg(test)]
mod differential;
#[cfg(test)]
mod keys_tests;
#[cfg(test)]
mod naive;
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
pub use matched_rules::{ListVerdict, MAX_LIMITS, MAX_METERS, MatchedRules};
pub use meter::{Meter, MeterRole, SelectedQuota};
pub use quota_builder::QuotaBuilder;
pub use variant_selector::VariantSelector;
pub(crate) use variant_selector::{ComputedQuota, MeterGrant};

use matcher::Matcher;

use crate::attributes::{Attribute, Attributes};
use crate::model::{
    Consistency, Count, DenyRule, Mode, OnStoreFailure, Penalty, Percent, WhenFull,
};
use tollgate_core::Nanos;

/// One compiled limit. Its meters are what a store is asked about.
#[derive(Debug)]
pub struct Rule {
    /// As the file names it.
    pub name: Box<str>,
    /// Its meters: one per window or level that must admit, and those that penalties, distinct counting, a local
    /// bucket or a candidate need. None only where nobody is ever limited.
    pub meters: Box<[Meter]>,
    /// Which of its quotas a request falls under.
    pub selector: VariantSelector,
    /// Whether it applies to every request, and counts a caller's requests together wherever they go.
    pub applies_to_all: bool,
    /// What a request costs.
    pub cost: CostRule,
    /// What is counted.
    pub count: Count,
    /// Whether it is enforced.
    pub mode: Mode,
    /// For which share of keys.
    pub enforce: Percent,
    /// Denials shorter than this become waits.
    pub wait: Option<Nanos>,
    /// What a denial costs.
    pub penalty: Penalty,
    /// Never denies, charges into debt.
    pub charge_always: bool,
    /// What to decide without the shared store.
    pub on_store_failure: OnStoreFailure,
    /// What becomes of its keys when memory is full.
    pub when_full: WhenFull,
    /// How a fleet shares it.
    pub consistency: Consistency,
    /// Rules with the same attribute here live in one slot of a cluster.
    pub colocate: Option<Attribute>,
    /// The status of a denial.
    pub status: u16,
    /// The message of a denial.
    pub message: Option<Box<str>>,
    /// The opaque, stable id of the bucket it shares with others, if it does (16 hexadecimal digits).
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

/// A whole policy, compiled.
#[derive(Debug)]
pub struct Rules {
    rules: Box<[Rule]>,
    denials: Box<[DenyRule]>,
    key_specs: Box<[Box<[KeySpec]>]>,
    matcher: Matcher,
    divergence_threshold: Percent,
    secret: [u8; 16],
}

impl Rules {
    /// Rules of a draft. The secret keys every digest that keys are made of; a fleet shares one.
    ///
    /// # Errors
    /// Everything in the draft that is too large to be matched or keyed within fixed bounds.
    pub fn new(draft: RulesDraft, secret: [u8; 16]) -> Result<Self, Vec<RuleError>> {
        let matcher = Matcher::new(&draft);
        let mut unfit = Vec::new();
        let mut rules = Vec::with_capacity(draft.limits.len());
        let mut recipes = Vec::with_capacity(draft.limits.len());
        for (index, limit) in draft.limits.into_iter().enumerate() {
            unfit.extend(keys::key_errors(&limit).map(|why| RuleError {
                origin: RuleOrigin::Limit(index),
                kind: why,
            }));
            rules.push(limit.rule);
            recipes.push(limit.keys.into());
        }
        match matcher {
            Ok(matcher) if unfit.is_empty() => Ok(Self {
                rules: rules.into(),
                denials: draft.deny.into(),
                key_specs: recipes.into(),
                matcher,
                divergence_threshold: draft.divergence_threshold,
                secret,
            }),
            Ok(_) => Err(unfit),
            Err(more) => {
                unfit.extend(more);
                Err(unfit)
            }
        }
    }

    /// The limits, in the order of the file.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The `deny` list, in the order of the file.
    #[must_use]
    pub fn denials(&self) -> &[DenyRule] {
        &self.denials
    }

    /// Above this share of differing decisions a candidate is advised against.
    #[must_use]
    pub const fn divergence_threshold(&self) -> Percent {
        self.divergence_threshold
    }

    /// Finds what a request falls under; what was found before is forgotten.
    ///
    /// Refusing comes first, then being exempt, then every limit that matches, of which groups may keep only the narrowest.
    pub fn match_rules(&self, request: &dyn Attributes, found: &mut MatchedRules) {
        self.matcher.match_rules(request, found);
    }

    /// The route that a request belongs to: what its transport says, else the most specific of the policy's templates
    /// that its path lies under.
    #[must_use]
    pub fn route<'a>(
        &'a self,
        request: &'a dyn Attributes,
        found: &MatchedRules,
    ) -> Option<&'a [u8]> {
        let template = || self.matcher.template(found).map(str::as_bytes);
        request.get(&Attribute::Route).or_else(template)
    }

    /// An attribute as keys, tiers and costs see it: with the route that was found. Addresses have no bytes here.
    pub(crate) fn attribute_value<'a>(
        &'a self,
        attribute: &Attribute,
        request: &'a dyn Attributes,
        found: &MatchedRules,
    ) -> Option<&'a [u8]> {
        match attribute {
            Attribute::Route => self.route(request, found),
            Attribute::Ip => None,
            other => request.get(other),
        }
    }
}

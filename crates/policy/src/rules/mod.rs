//! What the engine asks: which rules a request falls under, whose quota each is, how much it grants and what it costs.
//!
//! Everything here is made once, when a policy is compiled, and only read afterwards; nothing on the way of a request
//! allocates. Must not know: stores, clocks, files.

mod buffer;
mod choose;
mod cost;
mod draft;
mod formula;
mod found;
mod globs;
mod keys;
mod matcher;
mod meter;
mod networks;
mod path;
mod prefixes;
mod readable;
mod tree;

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

pub use crate::algorithm::{Shape, sharing};
pub use buffer::{KEY_ROOM, KeyBuffer, Keyed};
pub use choose::Choice;
pub(crate) use choose::{ComputedQuota, Grant};
pub use cost::Price;
pub use draft::{
    Draft, DraftLimit, MOST_GLOB_BYTES, MOST_KEY_PARTS, MOST_SEGMENTS, Origin, Recipe, Unfit, Why,
};
pub use formula::Formula;
pub use found::{Listed, MOST_LIMITS, MOST_METERS, MatchedRules};
pub(crate) use keys::masked;
pub use meter::{Chosen, Meter, Role};

use matcher::Matcher;

use crate::attributes::{Attribute, Attributes};
use crate::model::{Consistency, Count, DenyRule, Mode, OnStoreFailure, Penalty, Percent};
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
    pub choice: Choice,
    /// Whether it applies to every request, and counts a caller's requests together wherever they go.
    pub applies_to_all: bool,
    /// What a request costs.
    pub price: Price,
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
    recipes: Box<[Box<[Recipe]>]>,
    matcher: Matcher,
    divergence_threshold: Percent,
    secret: [u8; 16],
}

impl Rules {
    /// Rules of a draft. The secret keys every digest that keys are made of; a fleet shares one.
    ///
    /// # Errors
    /// Everything in the draft that is too large to be matched or keyed within fixed bounds.
    pub fn new(draft: Draft, secret: [u8; 16]) -> Result<Self, Vec<Unfit>> {
        let matcher = Matcher::new(&draft);
        let mut unfit = Vec::new();
        let mut rules = Vec::with_capacity(draft.limits.len());
        let mut recipes = Vec::with_capacity(draft.limits.len());
        for (index, limit) in draft.limits.into_iter().enumerate() {
            unfit.extend(keys::unfit(&limit).map(|why| Unfit {
                origin: Origin::Limit(index),
                why,
            }));
            rules.push(limit.rule);
            recipes.push(limit.keys.into());
        }
        match matcher {
            Ok(matcher) if unfit.is_empty() => Ok(Self {
                rules: rules.into(),
                denials: draft.deny.into(),
                recipes: recipes.into(),
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
    pub fn find(&self, request: &dyn Attributes, found: &mut MatchedRules) {
        self.matcher.find(request, found);
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
    pub(crate) fn value<'a>(
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

//! Selects the quota of a request: an override for the key, else a tier, else the rule's own quota. Also computes
//! quotas per request.
//!
//! Nothing here allocates. Must not know: how keys are encoded.

use std::collections::HashMap;

use tollgate_core::limit::Limit;

use super::cost::parse_whole_number;
use super::meter::SelectedQuota;
use super::quota_builder::QuotaBuilder;
use super::{MatchedRules, MeterRef, Rules};
use crate::algorithm::share_state;
use crate::attributes::{Attribute, Attributes};

/// The value of an attribute; for `route` the matched template if the transport has none.
pub(crate) fn attribute_value<'a>(
    attribute: &Attribute,
    request: &'a dyn Attributes,
    route: Option<&'a [u8]>,
) -> Option<&'a [u8]> {
    let value = request.get(attribute);
    if matches!(attribute, Attribute::Route) {
        return value.or(route);
    }
    value
}

impl Rules {
    /// The quota of a request at one meter. `key` is the request's key at the rule's first meter, which overrides are
    /// indexed by.
    #[must_use]
    pub fn select_quota(
        &self,
        meter: MeterRef,
        request: &dyn Attributes,
        matched: &MatchedRules,
        key: &[u8],
    ) -> SelectedQuota {
        let variant = self.variant(meter.rule, request, matched, key);
        self.quota_of_variant(meter, variant, request, matched)
    }

    /// The variant of a rule for a request: 0 is its own quota, then tiers, then overrides, each in file order. Call it
    /// once for all meters of a rule.
    #[must_use]
    pub fn variant(
        &self,
        rule: usize,
        request: &dyn Attributes,
        matched: &MatchedRules,
        key: &[u8],
    ) -> usize {
        self.rules().get(rule).map_or(0, |rule| {
            if rule.selector.is_own_quota_only() {
                return 0;
            }
            // Of the tiers of all readings, the strictest.
            let routes = self.possible_routes(request, matched);
            let variants = routes.map(|route| rule.selector.variant(request, route, key));
            variants
                .min_by_key(|variant| rule.selector.generosity.get(*variant))
                .unwrap_or(0)
        })
    }

    /// The quota of one meter for a [variant](Self::variant).
    #[must_use]
    pub fn quota_of_variant(
        &self,
        meter: MeterRef,
        variant: usize,
        request: &dyn Attributes,
        matched: &MatchedRules,
    ) -> SelectedQuota {
        let rule = self.rules().get(meter.rule);
        match rule.and_then(|rule| rule.meters.get(meter.meter)) {
            Some(meter) if meter.is_computed(variant) => {
                meter.select_quota(variant, request, self.route(request, matched))
            }
            Some(meter) => meter.select_quota(variant, request, None),
            None => SelectedQuota::Unlimited,
        }
    }
}

/// Selects the variant of a rule. The rule's own quota is variant 0; tiers follow, then overrides.
#[derive(Debug, Default)]
pub struct VariantSelector {
    by: Option<Attribute>,
    /// The names and variants of the tiers, sorted by name.
    tiers: Box<[(Box<str>, usize)]>,
    /// How much the own quota and each tier admit, to compare them.
    generosity: Box<[u128]>,
    /// The variants of single keys, by encoded key.
    overrides: HashMap<Box<[u8]>, usize>,
}

impl VariantSelector {
    /// Only the rule's own quota.
    #[must_use]
    pub fn own_quota() -> Self {
        Self::default()
    }

    /// Adds tiers by the value of an attribute. The first tier is variant 1.
    #[must_use]
    pub fn with_tiers<'a>(mut self, by: Attribute, names: impl Iterator<Item = &'a str>) -> Self {
        let mut tiers: Vec<(Box<str>, usize)> = names.map(Box::from).zip(1..).collect();
        tiers.sort();
        self.by = Some(by);
        self.tiers = tiers.into();
        self
    }

    /// Says how much the own quota and each tier admit, for requests that several tiers fit.
    #[must_use]
    pub fn with_generosity(mut self, generosity: impl Iterator<Item = u128>) -> Self {
        self.generosity = generosity.collect();
        self
    }

    /// Adds a variant for an encoded key. The first variant of a key wins.
    pub fn override_key(&mut self, key: &[u8], variant: usize) {
        self.overrides.entry(key.into()).or_insert(variant);
    }

    /// The variant of a request with this encoded key.
    #[must_use]
    pub fn variant(&self, request: &dyn Attributes, route: Option<&[u8]>, key: &[u8]) -> usize {
        if !self.overrides.is_empty()
            && let Some(variant) = self.overrides.get(key)
        {
            return *variant;
        }
        let Some(by) = &self.by else {
            return 0;
        };
        let Some(name) = attribute_value(by, request, route) else {
            return 0;
        };
        self.tiers
            .binary_search_by(|(tier, _)| tier.as_bytes().cmp(name))
            .ok()
            .and_then(|index| self.tiers.get(index))
            .map_or(0, |(_, variant)| *variant)
    }

    /// Whether there is only the rule's own quota.
    #[must_use]
    pub fn is_own_quota_only(&self) -> bool {
        self.by.is_none() && self.overrides.is_empty()
    }

    /// Whether the request selects the variant of this encoded key.
    #[must_use]
    pub fn depends_on_request(&self, key: &[u8]) -> bool {
        self.by.is_some() && !self.overrides.contains_key(key)
    }

    /// Whether the quota depends on the key.
    #[must_use]
    pub fn has_overrides(&self) -> bool {
        !self.overrides.is_empty()
    }
}

/// The quota of one variant at one meter.
#[derive(Clone, Debug)]
pub(crate) enum MeterGrant {
    /// The quota at this index.
    Index(usize),
    /// A quota computed for each request.
    Computed(Box<ComputedQuota>),
    /// The meter is skipped.
    Unlimited,
}

/// A quota with a number that an attribute adds to.
#[derive(Clone, Debug)]
pub(crate) struct ComputedQuota {
    pub(crate) builder: QuotaBuilder,
    pub(crate) base: u64,
    pub(crate) each: u64,
    pub(crate) times: Attribute,
    pub(crate) at_most: u64,
    /// The index of the base quota, used if the computed quota cannot be built.
    pub(crate) base_index: usize,
    /// The quota with the highest ceiling of all that share the state.
    pub(crate) ceiling_limit: Limit,
}

impl MeterGrant {
    pub(crate) fn select_quota(
        &self,
        request: &dyn Attributes,
        route: Option<&[u8]>,
    ) -> SelectedQuota {
        match self {
            Self::Index(index) => SelectedQuota::Index(*index),
            Self::Computed(computed) => computed.select_quota(request, route),
            Self::Unlimited => SelectedQuota::Unlimited,
        }
    }
}

impl ComputedQuota {
    /// The units of a request: the base plus `each` times the attribute, at most `at_most`.
    pub(crate) fn units(&self, request: &dyn Attributes, route: Option<&[u8]>) -> u64 {
        let times = attribute_value(&self.times, request, route)
            .and_then(parse_whole_number)
            .unwrap_or(0);
        self.each
            .saturating_mul(times)
            .saturating_add(self.base)
            .min(self.at_most)
    }

    fn select_quota(&self, request: &dyn Attributes, route: Option<&[u8]>) -> SelectedQuota {
        let units = self.units(request, route);
        if units == self.base {
            return SelectedQuota::Index(self.base_index);
        }
        // Every number between the base and the maximum can be built, except numbers below one block. Those admit no
        // more than the base.
        match self.builder.build(units) {
            Ok(limit) => SelectedQuota::Computed(share_state(limit, &self.ceiling_limit)),
            Err(_below_a_block) => SelectedQuota::Index(self.base_index),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Plan(&'static [u8]);

    impl Attributes for Plan {
        fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
            (*attribute == Attribute::Header("x-plan".into())).then_some(self.0)
        }
    }

    fn tiers() -> VariantSelector {
        let by = Attribute::Header("x-plan".into());
        VariantSelector::own_quota().with_tiers(by, ["pro", "free", "partner"].into_iter())
    }

    #[test]
    fn a_tier_is_selected_by_its_exact_name_and_other_values_get_the_own_quota() {
        let variant = |plan| tiers().variant(&Plan(plan), None, b"");
        assert_eq!(variant(b"pro"), 1);
        assert_eq!(variant(b"free"), 2);
        assert_eq!(variant(b"partner"), 3);
        for other in [&b"Pro"[..], b"", b"gold", b"\xff"] {
            assert_eq!(variant(other), 0);
        }
    }

    #[test]
    fn an_override_comes_before_the_tier() {
        let mut choice = tiers();
        choice.override_key(b"abc", 4);
        choice.override_key(b"abc", 5);
        assert_eq!(choice.variant(&Plan(b"pro"), None, b"abc"), 4);
        assert_eq!(choice.variant(&Plan(b"pro"), None, b"abd"), 1);
    }
}

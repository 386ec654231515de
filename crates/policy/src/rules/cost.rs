//! What a request costs, and what it turned out to cost when its response is known.
//!
//! Nothing here allocates. Must not know: how costs are charged.

use super::variant_selector::attribute_value;
use super::{MatchedRules, Rules};
use crate::attributes::{Attribute, Attributes};
use crate::model::Cost;

impl Rules {
    /// What a request costs under a rule when it arrives.
    #[must_use]
    pub fn cost(&self, rule: usize, request: &dyn Attributes, found: &MatchedRules) -> u64 {
        self.rules().get(rule).map_or(1, |rule| match rule.cost.0 {
            CostKind::Fixed(units) => units,
            _ => rule.cost.request_cost(request, self.route(request, found)),
        })
    }
}

/// The price list of one rule.
#[derive(Debug)]
pub struct CostRule(CostKind);

#[derive(Debug)]
enum CostKind {
    Fixed(u64),
    ByValue {
        attribute: Attribute,
        /// In the order of the values.
        values: Box<[(Box<str>, u64)]>,
        otherwise: u64,
    },
    Attribute {
        attribute: Attribute,
        at_least: u64,
        at_most: u64,
        otherwise: u64,
    },
    Response {
        header: Box<str>,
        estimate: u64,
        at_most: u64,
    },
}

impl CostRule {
    /// The price list that a policy says.
    #[must_use]
    pub fn new(cost: &Cost) -> Self {
        Self(match cost {
            Cost::Fixed(units) => CostKind::Fixed(*units),
            Cost::ByValue {
                attribute,
                values,
                otherwise,
            } => {
                let mut values = values.clone();
                // Stable, and the first of two equal values holds.
                values.sort_by(|(one, _), (two, _)| one.cmp(two));
                values.dedup_by(|(later, _), (first, _)| later == first);
                CostKind::ByValue {
                    attribute: attribute.clone(),
                    values: values.into(),
                    otherwise: *otherwise,
                }
            }
            Cost::Attribute {
                attribute,
                at_least,
                at_most,
                otherwise,
            } => CostKind::Attribute {
                attribute: attribute.clone(),
                at_least: *at_least,
                at_most: *at_most,
                otherwise: *otherwise,
            },
            Cost::Response {
                header,
                estimate,
                at_most,
            } => CostKind::Response {
                header: header.clone(),
                estimate: *estimate,
                at_most: *at_most,
            },
        })
    }

    /// What every request costs, where that does not depend on the request.
    #[must_use]
    pub const fn fixed(&self) -> Option<u64> {
        match &self.0 {
            CostKind::Fixed(units) => Some(*units),
            _ => None,
        }
    }

    /// What a request costs when it arrives: for a price that only the response says, the estimate.
    #[must_use]
    pub fn request_cost(&self, request: &dyn Attributes, route: Option<&[u8]>) -> u64 {
        match &self.0 {
            CostKind::Fixed(units) => *units,
            CostKind::ByValue {
                attribute,
                values,
                otherwise,
            } => attribute_value(attribute, request, route)
                .and_then(|said| {
                    let found = values.binary_search_by(|(value, _)| value.as_bytes().cmp(said));
                    values.get(found.ok()?)
                })
                .map_or(*otherwise, |(_, units)| *units),
            CostKind::Attribute {
                attribute,
                at_least,
                at_most,
                otherwise,
            } => attribute_value(attribute, request, route)
                .and_then(parse_whole_number)
                .map_or(*otherwise, |units| units.max(*at_least).min(*at_most)),
            CostKind::Response { estimate, .. } => *estimate,
        }
    }

    /// The response header that says what the request cost, where one does. Lower-case.
    #[must_use]
    pub fn response_header(&self) -> Option<&str> {
        match &self.0 {
            CostKind::Response { header, .. } => Some(header),
            _ => None,
        }
    }

    /// What a request turned out to cost, given the value of the [response header](Self::response_header). `None`: the
    /// price was known before, or the response says no number, and what was charged stays.
    #[must_use]
    pub fn response_cost(&self, said: Option<&[u8]>) -> Option<u64> {
        match &self.0 {
            CostKind::Response { at_most, .. } => said
                .and_then(parse_whole_number)
                .map(|units| units.min(*at_most)),
            _ => None,
        }
    }

    /// The least and the most that a request is charged when it arrives.
    #[must_use]
    pub fn bounds(&self) -> (u64, u64) {
        match &self.0 {
            CostKind::Fixed(units) => (*units, *units),
            CostKind::ByValue {
                values, otherwise, ..
            } => values
                .iter()
                .fold((*otherwise, *otherwise), |(low, high), (_, units)| {
                    (low.min(*units), high.max(*units))
                }),
            CostKind::Attribute {
                at_least,
                at_most,
                otherwise,
                ..
            } => (
                (*at_least).min(*at_most).min(*otherwise),
                (*at_most).max(*otherwise),
            ),
            CostKind::Response { estimate, .. } => (*estimate, *estimate),
        }
    }
}

/// The whole number that a value says in decimal digits, with spaces around it allowed; what is too large for 64 bits is
/// the largest that fits, because whatever reads it has a bound.
pub(crate) fn parse_whole_number(value: &[u8]) -> Option<u64> {
    let digits = value.trim_ascii();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0_u64, |number, digit| {
        number
            .saturating_mul(10)
            .saturating_add(u64::from(digit.saturating_sub(b'0')))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct FixedValue(Option<&'static [u8]>);

    impl Attributes for FixedValue {
        fn get(&self, _: &Attribute) -> Option<&[u8]> {
            self.0
        }
    }

    #[test]
    fn numbers_are_digits_and_nothing_else() {
        for (said, number) in [
            (&b"42"[..], Some(42)),
            (b" 7 ", Some(7)),
            (b"99999999999999999999999", Some(u64::MAX)),
            (b"", None),
            (b"-1", None),
            (b"+1", None),
            (b"1.5", None),
            (b"1e3", None),
            (b"0x10", None),
            (b"\xff", None),
        ] {
            assert_eq!(parse_whole_number(said), number, "{said:?}");
        }
    }

    #[test]
    fn points_by_method_fall_back_where_no_value_fits() {
        let price = CostRule::new(&Cost::ByValue {
            attribute: Attribute::Method,
            values: vec![("POST".into(), 5), ("GET".into(), 1), ("POST".into(), 9)],
            otherwise: 2,
        });
        let cost = |method| price.request_cost(&FixedValue(method), None);
        assert_eq!(cost(Some(b"POST")), 5, "the first of two holds");
        assert_eq!(cost(Some(b"GET")), 1);
        assert_eq!(cost(Some(b"PATCH")), 2);
        assert_eq!(cost(None), 2);
        assert_eq!(price.bounds(), (1, 5));
    }

    #[test]
    fn a_cost_that_an_attribute_says_stays_within_its_bounds() {
        let price = CostRule::new(&Cost::Attribute {
            attribute: Attribute::Header("x-cost".into()),
            at_least: 2,
            at_most: 100,
            otherwise: 7,
        });
        let cost = |said| price.request_cost(&FixedValue(said), None);
        assert_eq!(cost(Some(b"50")), 50);
        assert_eq!(cost(Some(b"0")), 2);
        assert_eq!(cost(Some(b"99999999999999999999")), 100);
        assert_eq!(cost(Some(b"many")), 7);
        assert_eq!(cost(None), 7);
    }

    #[test]
    fn a_response_corrects_the_estimate_only_if_it_says_a_number() {
        let price = CostRule::new(&Cost::Response {
            header: "x-tokens-used".into(),
            estimate: 100,
            at_most: 10_000,
        });
        assert_eq!(price.request_cost(&FixedValue(None), None), 100);
        assert_eq!(price.response_header(), Some("x-tokens-used"));
        assert_eq!(price.response_cost(Some(b"250")), Some(250));
        assert_eq!(price.response_cost(Some(b"999999")), Some(10_000));
        assert_eq!(price.response_cost(Some(b"lots")), None);
        assert_eq!(price.response_cost(None), None);
    }
}

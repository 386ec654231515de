//! The cost of a request, and its actual cost when the response is known.
//!
//! Nothing here allocates. Must not know: how costs are charged.

use super::variant_selector::attribute_value;
use super::{MatchedRules, Rules};
use crate::attributes::{Attribute, Attributes};
use crate::model::Cost;

impl Rules {
    /// The cost of a request under a rule when it arrives.
    #[must_use]
    pub fn cost(&self, rule: usize, request: &dyn Attributes, matched: &MatchedRules) -> u64 {
        self.rules().get(rule).map_or(1, |rule| match rule.cost.0 {
            CostKind::Fixed(units) => units,
            // Of the costs of all readings, the highest.
            _ => self
                .possible_routes(request, matched)
                .map(|route| rule.cost.request_cost(request, route))
                .max()
                .unwrap_or(1),
        })
    }
}

/// The compiled `cost` of one rule.
#[derive(Debug)]
pub struct CostRule(CostKind);

#[derive(Debug)]
enum CostKind {
    Fixed(u64),
    ByValue {
        attribute: Attribute,
        /// Sorted by value.
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
    ResponseBody {
        estimate: u64,
        at_most: u64,
    },
}

impl CostRule {
    /// Compiles the cost of a policy.
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
                // The sort is stable, so the first of two equal values wins.
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
            Cost::ResponseBody { estimate, at_most } => CostKind::ResponseBody {
                estimate: *estimate,
                at_most: *at_most,
            },
        })
    }

    /// The cost, if it is constant.
    #[must_use]
    pub const fn fixed(&self) -> Option<u64> {
        match &self.0 {
            CostKind::Fixed(units) => Some(*units),
            _ => None,
        }
    }

    /// The cost of a request when it arrives. If only the response has the cost, this is the estimate.
    #[must_use]
    pub fn request_cost(&self, request: &dyn Attributes, route: Option<&[u8]>) -> u64 {
        match &self.0 {
            CostKind::Fixed(units) => *units,
            CostKind::ByValue {
                attribute,
                values,
                otherwise,
            } => attribute_value(attribute, request, route)
                .and_then(|value| {
                    let matched = values.binary_search_by(|(known, _)| known.as_bytes().cmp(value));
                    values.get(matched.ok()?)
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
            CostKind::Response { estimate, .. } | CostKind::ResponseBody { estimate, .. } => {
                *estimate
            }
        }
    }

    /// Whether only the response has the actual cost.
    #[must_use]
    pub const fn is_from_response(&self) -> bool {
        matches!(self.0, CostKind::Response { .. }) || self.is_response_body()
    }

    /// Whether the bytes of the response's body are the actual cost.
    #[must_use]
    pub const fn is_response_body(&self) -> bool {
        matches!(self.0, CostKind::ResponseBody { .. })
    }

    /// The actual cost of a request whose response had so many bytes of body. `None` if they are not the cost.
    #[must_use]
    pub fn response_body_cost(&self, bytes: u64) -> Option<u64> {
        match &self.0 {
            CostKind::ResponseBody { at_most, .. } => Some(bytes.min(*at_most)),
            _ => None,
        }
    }

    /// The response header with the actual cost, lower-case, if there is one.
    #[must_use]
    pub fn response_header(&self) -> Option<&str> {
        match &self.0 {
            CostKind::Response { header, .. } => Some(header),
            _ => None,
        }
    }

    /// The actual cost of a request, from the value of the [response header](Self::response_header). `None` if the cost
    /// was known before or the header has no number; then the charge stays.
    #[must_use]
    pub fn response_cost(&self, value: Option<&[u8]>) -> Option<u64> {
        match &self.0 {
            CostKind::Response { at_most, .. } => value
                .and_then(parse_whole_number)
                .map(|units| units.min(*at_most)),
            _ => None,
        }
    }

    /// The minimum and maximum that a request is charged when it arrives.
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
            CostKind::Response { estimate, .. } | CostKind::ResponseBody { estimate, .. } => {
                (*estimate, *estimate)
            }
        }
    }
}

/// Parses decimal digits, with spaces around them allowed. Numbers above 64 bits become `u64::MAX`, because every
/// caller applies a bound.
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
        for (value, number) in [
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
            assert_eq!(parse_whole_number(value), number, "{value:?}");
        }
    }

    #[test]
    fn a_cost_by_value_falls_back_for_other_values() {
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
    fn a_cost_from_an_attribute_stays_within_its_bounds() {
        let price = CostRule::new(&Cost::Attribute {
            attribute: Attribute::Header("x-cost".into()),
            at_least: 2,
            at_most: 100,
            otherwise: 7,
        });
        let cost = |value| price.request_cost(&FixedValue(value), None);
        assert_eq!(cost(Some(b"50")), 50);
        assert_eq!(cost(Some(b"0")), 2);
        assert_eq!(cost(Some(b"99999999999999999999")), 100);
        assert_eq!(cost(Some(b"many")), 7);
        assert_eq!(cost(None), 7);
    }

    #[test]
    fn a_response_corrects_the_estimate_only_with_a_number() {
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

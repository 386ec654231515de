//! Explains each rule in a sentence.
//!
//! Must not know: requests.

use std::fmt;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::EnvoyPolicy;
use super::rule::{EnvoyRule, RuleLevel, RuleQuota};

/// The explanation of one rule. It displays as one line.
#[derive(Clone, Copy, Debug)]
pub struct RuleExplanation<'a>(&'a EnvoyRule);

impl EnvoyPolicy {
    /// Explains each rule.
    ///
    /// ```
    /// let policy = tollgate_envoy::config::load(&[("edge.yaml", "
    /// domain: edge
    /// descriptors:
    ///   - key: remote_address
    ///     rate_limit: { unit: second, requests_per_unit: 10 }
    /// ")])?;
    /// let lines: Vec<String> = policy.explain().map(|line| line.to_string()).collect();
    /// assert_eq!(
    ///     lines,
    ///     ["edge.remote_address: at most 10 in each second, for each remote_address by itself"]
    /// );
    /// # Ok::<(), tollgate_envoy::config::InvalidFiles>(())
    /// ```
    pub fn explain(&self) -> impl Iterator<Item = RuleExplanation<'_>> {
        self.rules.iter().map(RuleExplanation)
    }
}

impl<'a> RuleExplanation<'a> {
    /// The rule.
    #[must_use]
    pub const fn rule(&self) -> &'a EnvoyRule {
        self.0
    }
}

/// The machine-readable form: `{"name", "words"}`.
impl Serialize for RuleExplanation<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("RuleExplanation", 2)?;
        out.serialize_field("name", &*self.0.name)?;
        out.serialize_field("words", &RuleSentence(self.0).to_string())?;
        out.end()
    }
}

impl fmt::Display for RuleExplanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.name, RuleSentence(self.0))
    }
}

/// The sentence about a rule, without its name.
struct RuleSentence<'a>(&'a EnvoyRule);

impl fmt::Display for RuleSentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(rule) = self;
        match rule.quota {
            RuleQuota::Unlimited => f.write_str("unlimited, nothing is counted")?,
            RuleQuota::Limited {
                requests_per_unit,
                unit,
                ..
            } => {
                let days = match unit.name() {
                    "month" => " of 30 days",
                    "year" => " of 365 days",
                    _ => "",
                };
                match requests_per_unit {
                    0 => write!(f, "denies everything")?,
                    most => write!(f, "at most {most} in each {}{days}", unit.name())?,
                }
            }
        }
        conditions(f, &rule.levels)?;
        if let RuleQuota::Limited { .. } = rule.quota {
            counters(f, &rule.levels)?;
        }
        traits(f, rule)
    }
}

/// Writes the values to which the rule applies.
fn conditions(f: &mut fmt::Formatter<'_>, levels: &[RuleLevel]) -> fmt::Result {
    let mut conjunction = ", where";
    for level in levels.iter().filter(|level| !level.value.is_empty()) {
        let verb = if level.value.contains('*') {
            "is like"
        } else {
            "is"
        };
        write!(f, "{conjunction} {} {verb} {}", level.key, level.value)?;
        conjunction = " and";
    }
    Ok(())
}

/// Writes which values are counted separately and which together.
fn counters(f: &mut fmt::Formatter<'_>, levels: &[RuleLevel]) -> fmt::Result {
    let is_open = |level: &&RuleLevel| level.value.is_empty() || level.value.contains('*');
    let mut apart = levels.iter().filter(is_open).filter(|level| !level.shared);
    if let Some(first) = apart.next() {
        write!(f, ", for each {}", first.key)?;
        apart.try_for_each(|level| write!(f, " and {}", level.key))?;
        f.write_str(" by itself")?;
    }
    let mut together = levels.iter().filter(|level| level.shared);
    if let Some(first) = together.next() {
        write!(f, ", all of {}", first.key)?;
        together.try_for_each(|level| write!(f, " and {}", level.key))?;
        f.write_str(" together")?;
    }
    Ok(())
}

fn traits(f: &mut fmt::Formatter<'_>, rule: &EnvoyRule) -> fmt::Result {
    if !rule.limit_name.is_empty() {
        write!(f, "; called {}", rule.limit_name)?;
    }
    let mut conjunction = "; takes the place of";
    for name in &rule.replaces {
        write!(f, "{conjunction} {name}")?;
        conjunction = " and";
    }
    if rule.shadow_mode {
        f.write_str("; in shadow: counts, never denies")?;
    }
    if rule.quota_mode {
        f.write_str("; a quota: denies only if all quotas of a request do")?;
    }
    Ok(())
}

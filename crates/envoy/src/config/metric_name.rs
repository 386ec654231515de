//! The name of a descriptor's metric, displayed without allocating.
//!
//! It is the rule's name, unless the file asks for the request's values in it. Then there is a metric for each value, and
//! the consumer must bound their number. Must not know: how metrics are stored.

use std::fmt;

use super::descriptor_tree::{DescriptorPath, DescriptorTree};
use super::request::DescriptorEntry;
use super::rule::EnvoyRule;

/// A metric's name.
#[derive(Clone, Copy, Debug)]
pub struct MetricName<'a> {
    pub(super) tree: &'a DescriptorTree,
    pub(super) domain: &'a str,
    pub(super) entries: &'a [DescriptorEntry<'a>],
    /// `None` for an override.
    pub(super) rule: Option<&'a EnvoyRule>,
    pub(super) path: DescriptorPath,
}

impl fmt::Display for MetricName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.domain)?;
        let detailed = self.rule.is_some_and(|rule| rule.detailed_metric);
        for (level, entry) in self.entries.iter().enumerate() {
            let value = match self.rule {
                None => entry.value,
                Some(_) if detailed => self.tree.counted_value(&self.path, level, entry),
                Some(_) => self.tree.metric_value(&self.path, level, entry),
            };
            write!(f, ".{}", entry.key)?;
            // envoyproxy/ratelimit keeps the underscore of an empty value in detailed names, unless a threshold is shared.
            if !value.is_empty() || (detailed && !self.path.is_shared()) {
                write!(f, "_{value}")?;
            }
        }
        Ok(())
    }
}

//! The name of the metric that a descriptor counts in, written without making a text of it.
//!
//! It is the rule's own name, unless the file asks for the request's values in it: then there are as many metrics as there
//! are values, and whoever keeps them has to bound them. Must not know: how metrics are kept.

use std::fmt;

use super::descriptor_tree::{DescriptorPath, DescriptorTree};
use super::request::DescriptorEntry;
use super::rule::EnvoyRule;

/// A metric's name, as it displays.
#[derive(Clone, Copy, Debug)]
pub struct MetricName<'a> {
    pub(super) tree: &'a DescriptorTree,
    pub(super) domain: &'a str,
    pub(super) entries: &'a [DescriptorEntry<'a>],
    /// None for a limit that came with its descriptor.
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
            // The reference keeps the underscore of an empty value in detailed names, unless a threshold is shared.
            if !value.is_empty() || (detailed && !self.path.is_shared()) {
                write!(f, "_{value}")?;
            }
        }
        Ok(())
    }
}

//! Configuration files of envoyproxy/ratelimit, and decisions as it makes them.
//!
//! [`EnvoyPolicy::plan`] finds the rule of each descriptor and lists the counters to charge. The caller charges them in its
//! store. [`ChargePlan::reply`] builds the reply from the store's statuses. Limits are fixed windows aligned to 1970, every
//! descriptor is charged on its own, and denied requests are charged too.
//!
//! # Differences from envoyproxy/ratelimit
//!
//! - Counters are keyed by domain, entries and unit without ambiguity. envoyproxy/ratelimit joins them by underscores, so that
//!   some different descriptors share a counter, and so do different units whose windows begin at the same time.
//! - A window's count survives a clock that goes backwards.
//! - In dynamic metadata the text of a `limit` has single spaces; that of Go's protobuf has one or two, by chance.
//! - `metadata` is also sent with `detailed_metric` or `value_to_metric`; envoyproxy/ratelimit loses it there.
//! - A duplicate key, or a key on the wrong level, is refused; envoyproxy/ratelimit takes the last one, or none.
//!   [`LoadOptions::ignore_misplaced`] ignores the latter too.
//! - An unquoted `value` may be a number with a fraction.
//! - Requests are bounded: [`MAX_DESCRIPTORS`] descriptors of [`MAX_ENTRIES`] entries.
//! - Hits can be refunded, which envoyproxy/ratelimit does not support.
//!
//! Must not know: stores, clocks, protobuf.

mod builder;
mod counter_key;
mod descriptor_tree;
mod dynamic_metadata;
mod explain;
mod file;
mod metadata;
mod metric_name;
mod pattern;
mod pattern_index;
mod plan;
mod reply;
mod request;
mod rule;
mod window_unit;
mod yaml_values;

#[cfg(test)]
mod tests;

pub use counter_key::{CounterKey, MAX_COUNTER_KEY_LEN};
pub use explain::RuleExplanation;
pub use metadata::Metadata;
pub use metric_name::MetricName;
pub use plan::{Charge, ChargePlan};
pub use reply::{CurrentLimit, DescriptorStatus, EnvoyReply, Modes, RlsCode};
pub use request::{
    BadRequest, Descriptor, DescriptorEntry, LimitOverride, MAX_DESCRIPTORS, MAX_ENTRIES,
    RlsRequest,
};
pub use rule::{EnvoyRule, RuleQuota, RuleStateIndex};
pub use window_unit::WindowUnit;

use std::fmt;

use tollgate_policy::source::{self, Diagnostic, Diagnostics, SourceFormat, SourceValue};

/// The most limits in one policy: limit ids have two bytes.
pub const MAX_RULES: usize = 60_000;

/// The checked rules of all domains.
#[derive(Debug)]
pub struct EnvoyPolicy {
    tree: descriptor_tree::DescriptorTree,
    rules: Vec<EnvoyRule>,
    identities: Vec<Box<str>>,
    /// The index of each state's counter, by [`RuleStateIndex`].
    counters: Vec<u32>,
    counter_identities: Vec<Box<str>>,
}

/// Options for loading files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LoadOptions {
    /// Whether several files may define one domain, as with `MERGE_DOMAIN_CONFIG`.
    pub merge_domains: bool,
    /// Whether a key on the wrong level is ignored, as envoyproxy/ratelimit does, instead of refused.
    pub ignore_misplaced: bool,
}

/// The problems of files: one entry for each file with problems, in the order of the files; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidFiles(pub Vec<Diagnostics>);

/// Loads files. Each has a name, which error messages use.
///
/// ```
/// use tollgate_core::limit::State;
/// use tollgate_core::Timestamp;
/// use tollgate_envoy::config::{self, RlsCode, Descriptor, DescriptorEntry, Modes, RlsRequest};
///
/// let policy = config::load(&[(
///     "edge.yaml",
///     "
/// domain: edge
/// descriptors:
///   - key: remote_address
///     rate_limit: { unit: minute, requests_per_unit: 1 }
/// ",
/// )])?;
///
/// let entries = [DescriptorEntry::new("remote_address", "203.0.113.7")];
/// let descriptors = [Descriptor::new(&entries)];
/// let request = RlsRequest::new("edge", &descriptors);
/// let plan = policy.plan(&request).unwrap();
///
/// // A store keeps one state for each identity and key; here there is only one.
/// let (mut state, now) = (State::default(), Timestamp::from_secs(90));
/// let charge = plan.charges().next().unwrap();
/// assert_eq!(policy.identity(charge.state), Some("edge.remote_address/minute"));
/// let mut codes = Vec::new();
/// for _ in 0..2 {
///     let transition = charge.limit.decide(&state, now, charge.op).unwrap();
///     state.apply(transition.next.unwrap());
///     let status = charge.limit.status(&state, now);
///     let reply = plan.reply(&[status], now, Modes::default()).unwrap();
///     assert_eq!(reply.statuses()[0].until_reset, Some(30));
///     codes.push(reply.overall);
/// }
/// assert_eq!(codes, [RlsCode::Ok, RlsCode::OverLimit]);
/// # Ok::<(), config::InvalidFiles>(())
/// ```
///
/// # Errors
/// All problems of the files, with their location and a hint.
///
/// ```
/// use tollgate_envoy::config;
///
/// let text = "domain: edge\ndescriptors:\n  - key: ip\n    rate_limit: { unit: fortnight }\n";
/// let refused = config::load(&[("edge.yaml", text)]).unwrap_err();
/// assert!(refused.to_string().starts_with("edge.yaml:4:25: invalid rate limit unit `fortnight`"));
/// ```
pub fn load(files: &[(&str, &str)]) -> Result<EnvoyPolicy, InvalidFiles> {
    load_with(files, LoadOptions::default())
}

/// Loads files with options.
///
/// # Errors
/// As [`load`].
pub fn load_with(
    files: &[(&str, &str)],
    options: LoadOptions,
) -> Result<EnvoyPolicy, InvalidFiles> {
    let mut builder = builder::EnvoyPolicyBuilder::new(options.merge_domains);
    let mut refused = Vec::new();
    for (name, text) in files {
        let problems = add(&mut builder, name, text, options);
        if !problems.is_empty() {
            refused.push(Diagnostics::new(name, text, problems));
        }
    }
    if refused.is_empty() {
        Ok(builder.finish())
    } else {
        Err(InvalidFiles(refused))
    }
}

/// Whether a text is a file of envoyproxy/ratelimit: it has a top-level `domain`, and no `limits` as Tollgate's policies have.
///
/// ```
/// use tollgate_envoy::config;
///
/// assert!(config::is_envoy_config("domain: edge\ndescriptors: []\n"));
/// assert!(!config::is_envoy_config("limits: []\n"));
/// ```
#[must_use]
pub fn is_envoy_config(text: &str) -> bool {
    let Ok(root) = source::parse(text, SourceFormat::Yaml) else {
        return false;
    };
    let SourceValue::Map(entries) = &root.value else {
        return false;
    };
    let has = |name: &str| entries.iter().any(|entry| &*entry.name.value == name);
    has("domain") && !has("limits")
}

fn add(
    builder: &mut builder::EnvoyPolicyBuilder,
    name: &str,
    text: &str,
    options: LoadOptions,
) -> Vec<Diagnostic> {
    let root = match source::parse(text, SourceFormat::Yaml) {
        Ok(root) => root,
        Err(problems) => return problems,
    };
    let mut problems = source::find_duplicate_names(&root);
    let mut reader = file::FileReader {
        problems: &mut problems,
        ignore_misplaced: options.ignore_misplaced,
    };
    let file = reader.file(&root);
    builder.add(name, file, &mut problems);
    problems
}

impl EnvoyPolicy {
    /// A policy with one domain and no rules: it counts only overrides of descriptors.
    #[must_use]
    pub fn without_rules(domain: &str) -> Self {
        let mut policy = builder::EnvoyPolicyBuilder::new(false).finish();
        policy.tree.add_domain(domain);
        policy
    }

    /// All limits, in the order of the files.
    #[must_use]
    pub fn rules(&self) -> &[EnvoyRule] {
        &self.rules
    }

    /// The names of all domains, sorted.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        let mut domains: Vec<_> = self.tree.domains().collect();
        domains.sort_unstable();
        domains.into_iter()
    }

    /// The stable identities of all states, in the order of [`RuleStateIndex`]: `override/minute` and the like for overrides, then
    /// `domain.key_value/minute` for each rule with a limit. Totals are kept by them. Two rules with the same name share one.
    pub fn identities(&self) -> impl ExactSizeIterator<Item = &str> {
        self.identities.iter().map(|identity| &**identity)
    }

    /// The identity of one state.
    #[must_use]
    pub fn identity(&self, state: RuleStateIndex) -> Option<&str> {
        let index = usize::try_from(state.0).ok()?;
        self.identities.get(index).map(|identity| &**identity)
    }

    /// The identities under which a store counts: domain, keys and unit, `domain.key.key2/minute`. Rules that differ only in
    /// values share one, because the values are in the counter's key. So a value that gets a rule of its own keeps its count.
    pub fn counter_identities(&self) -> impl ExactSizeIterator<Item = &str> {
        self.counter_identities.iter().map(|identity| &**identity)
    }

    /// The index of a state's identity in [`counter_identities`](Self::counter_identities).
    #[must_use]
    pub fn counter(&self, state: RuleStateIndex) -> Option<usize> {
        let counter = self.counters.get(usize::try_from(state.0).ok()?)?;
        usize::try_from(*counter).ok()
    }

    fn rule(&self, rule: u32) -> Option<&EnvoyRule> {
        self.rules.get(usize::try_from(rule).ok()?)
    }
}

impl fmt::Display for InvalidFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|file| file.fmt(f))
    }
}

impl std::error::Error for InvalidFiles {}

//! Files of envoyproxy/ratelimit, loaded as they are and decided as it decides.
//!
//! The way of a request: [`EnvoyPolicy::plan`] finds the rule of each descriptor and says which counters are to be charged;
//! whoever has a store charges them; [`Plan::reply`] makes the answer. Limits are fixed windows since 1970, every
//! descriptor is charged on its own, and what is denied is counted too.
//!
//! # Where this differs
//!
//! - Counters are keyed by domain, entries and unit without ambiguity. The reference joins them by underscores, so that
//!   some different descriptors share a counter there, and so do different units at the instants where their windows
//!   begin together.
//! - A window's count survives a clock that goes back.
//! - `metadata` is also given out where `detailed_metric` or `value_to_metric` is set; the reference loses it there.
//! - A name that stands twice in one map, or on the wrong level, is refused; the reference silently takes the last one,
//!   or none. [`Options::ignore_misplaced`] does as it does for the latter.
//! - Numbers with a fraction may stand unquoted as a `value`; anchors and aliases are refused.
//! - Requests are bounded: [`MAX_DESCRIPTORS`] descriptors of [`MAX_ENTRIES`] entries.
//! - Hits can be given back, which the reference does not know yet.
//!
//! Must not know: stores, clocks, protobuf.

mod builder;
mod counter_key;
mod descriptor_tree;
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

/// The most limits in one policy: their states are told apart by numbers of two bytes.
pub const MAX_RULES: usize = 60_000;

/// All domains, checked and ready to be asked.
#[derive(Debug)]
pub struct EnvoyPolicy {
    tree: descriptor_tree::DescriptorTree,
    rules: Vec<EnvoyRule>,
    identities: Vec<Box<str>>,
}

/// How files are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LoadOptions {
    /// Whether several files may describe one domain, as with `MERGE_DOMAIN_CONFIG`.
    pub merge_domains: bool,
    /// Whether a name that belongs to another level is ignored, as the reference does, instead of refused.
    pub ignore_misplaced: bool,
}

/// What is wrong with files: one for each file with problems, in the order in which they were given; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidFiles(pub Vec<Diagnostics>);

/// Loads files, each with the name that messages call it by.
///
/// ```
/// use tollgate_core::limit::State;
/// use tollgate_core::Timestamp;
/// use tollgate_envoy::config::{self, RlsCode, JsonDescriptor, DescriptorEntry, Modes, RlsRequest};
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
/// let descriptors = [JsonDescriptor::new(&entries)];
/// let request = RlsRequest::new("edge", &descriptors);
/// let plan = policy.plan(&request).unwrap();
///
/// // Whoever has a store keeps one state for each identity and key; here there is just one.
/// let (mut state, now) = (State::default(), Timestamp::from_secs(90));
/// let charge = plan.charges().next().unwrap();
/// assert_eq!(policy.identity(charge.state), Some("edge.remote_address/minute"));
/// let mut codes = Vec::new();
/// for _ in 0..2 {
///     let answer = charge.limit.decide(&state, now, charge.op).unwrap();
///     state.apply(answer.next.unwrap());
///     let status = charge.limit.status(&state, now);
///     let reply = plan.reply(&[status], now, Modes::default()).unwrap();
///     assert_eq!(reply.statuses()[0].until_reset, Some(30));
///     codes.push(reply.overall);
/// }
/// assert_eq!(codes, [RlsCode::Ok, RlsCode::OverLimit]);
/// # Ok::<(), config::FilesRefused>(())
/// ```
///
/// # Errors
/// Everything that is wrong with the files, where it stands, and what would be right.
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

/// Whether a text reads like one of these files: it names a `domain` at the top, and no `limits` as policies of ours do.
///
/// ```
/// use tollgate_envoy::config;
///
/// assert!(config::is_one("domain: edge\ndescriptors: []\n"));
/// assert!(!config::is_one("limits: []\n"));
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
    /// A domain without rules: only limits that come with descriptors are counted in it.
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

    /// The names of all domains, in the order of the alphabet.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        let mut domains: Vec<_> = self.tree.domains().collect();
        domains.sort_unstable();
        domains.into_iter()
    }

    /// The stable names of everything that is counted, by [`RuleStateIndex`]: `override/minute` and the like for limits that come
    /// with a request, then `domain.key_value/minute` for each limited rule. A rule whose unit changes counts anew. Two
    /// rules whose names read the same share one, and their keys still differ.
    pub fn identities(&self) -> impl ExactSizeIterator<Item = &str> {
        self.identities.iter().map(|identity| &**identity)
    }

    /// The name of one state.
    #[must_use]
    pub fn identity(&self, state: RuleStateIndex) -> Option<&str> {
        let index = usize::try_from(state.0).ok()?;
        self.identities.get(index).map(|identity| &**identity)
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

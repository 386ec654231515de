//! Builds a policy from parsed files, and checks the rules that span fields, descriptors and files.
//!
//! Must not know: YAML.

use std::collections::HashMap;

use tollgate_policy::source::{Diagnostic, SourceLocation};

use super::descriptor_tree::{DescriptorTree, NodeOptions};
use super::file::{ConfigFile, DescriptorBlock, RateLimit};
use super::request::MAX_ENTRIES;
use super::rule::{EnvoyRule, RuleLevel, RuleQuota, RuleStateIndex};
use super::window_unit::WindowUnit;
use super::{EnvoyPolicy, MAX_RULES};

/// A policy that is being built.
pub(super) struct EnvoyPolicyBuilder {
    policy: EnvoyPolicy,
    /// The file and line of each domain's first definition.
    domains: HashMap<Box<str>, (Box<str>, u32)>,
    /// The file and line of each node, by its id.
    node_locations: HashMap<u32, (Box<str>, u32)>,
    name_ids: HashMap<Box<str>, u32>,
    states: HashMap<Box<str>, RuleStateIndex>,
    counters: HashMap<Box<str>, u32>,
    merge_domains: bool,
}

/// The file that is being added, and its problems.
struct FileContext<'a> {
    file: &'a str,
    problems: &'a mut Vec<Diagnostic>,
}

/// The tree node below which descriptors are added.
struct ParentNode<'a> {
    node: u32,
    domain: &'a str,
    name: &'a str,
    levels: &'a [RuleLevel],
}

impl EnvoyPolicyBuilder {
    pub(super) fn new(merge_domains: bool) -> Self {
        let mut builder = Self {
            policy: EnvoyPolicy {
                tree: DescriptorTree::default(),
                rules: Vec::new(),
                identities: Vec::new(),
                counters: Vec::new(),
                counter_identities: Vec::new(),
            },
            domains: HashMap::new(),
            node_locations: HashMap::new(),
            name_ids: HashMap::new(),
            states: HashMap::new(),
            counters: HashMap::new(),
            merge_domains,
        };
        // Overrides of descriptors without a rule are counted by unit. Their identities come first.
        for unit in WindowUnit::ALL {
            let identity: Box<str> = format!("override/{}", unit.name()).into();
            builder.state(identity.clone(), identity);
        }
        builder
    }

    pub(super) fn finish(self) -> EnvoyPolicy {
        self.policy
    }

    /// Adds a file and collects its problems.
    pub(super) fn add(&mut self, name: &str, file: ConfigFile, problems: &mut Vec<Diagnostic>) {
        let domain = &file.domain;
        let mut context = FileContext {
            file: name,
            problems,
        };
        if domain.value.is_empty() {
            context.problem(domain.location, "a file must name its `domain`", None);
        }
        let known = self.policy.tree.domain(&domain.value);
        let root = match (known, self.domains.get(&domain.value)) {
            (Some(root), Some((file, line))) => {
                if !self.merge_domains {
                    let message = format!("duplicate domain `{}`", domain.value);
                    let help = format!(
                        "it is already in {file}, line {line}; files of one domain are merged only with `merge_domains`"
                    );
                    context.problem(domain.location, message, Some(help));
                }
                root
            }
            _ => {
                let location = (name.into(), domain.location.line);
                self.domains.insert(domain.value.clone(), location);
                self.policy.tree.add_domain(&domain.value)
            }
        };
        let parent = ParentNode {
            node: root,
            domain: &domain.value,
            name: &domain.value,
            levels: &[],
        };
        self.descriptors(&mut context, &parent, file.descriptors);
    }

    fn descriptors(
        &mut self,
        context: &mut FileContext<'_>,
        parent: &ParentNode<'_>,
        list: Vec<DescriptorBlock>,
    ) {
        if let Some(first) = list.first().filter(|_| parent.levels.len() >= MAX_ENTRIES) {
            let message = format!("descriptors are nested more than {MAX_ENTRIES} deep");
            context.problem(first.key.location, message, None);
            return;
        }
        for one in list {
            self.descriptor(context, parent, one);
        }
    }

    fn descriptor(
        &mut self,
        context: &mut FileContext<'_>,
        parent: &ParentNode<'_>,
        one: DescriptorBlock,
    ) {
        if one.key.value.is_empty() {
            context.problem(one.key.location, "a descriptor must have a `key`", None);
        }
        let text = match &*one.value.value {
            "" => one.key.value.to_string(),
            value => format!("{}_{value}", one.key.value),
        };
        let name = format!("{}.{text}", parent.name);
        let shared = one.share_threshold;
        if shared.value && !text.contains('*') {
            let message = format!(
                "`share_threshold` needs a `*` in the value, and there is none in `{text}`"
            );
            let help =
                "only values that match a pattern can share a counter; one value needs no sharing";
            context.problem(shared.location, message, Some(help.into()));
        }
        let options = NodeOptions {
            shared: shared.value,
            value_to_metric: one.value_to_metric,
        };
        let node = match self.policy.tree.add(parent.node, &text, options) {
            Ok(node) => {
                let location = (context.file.into(), one.key.location.line);
                self.node_locations.insert(node, location);
                node
            }
            Err(known) => {
                // An empty key was already reported; a second one is not a duplicate.
                if !one.key.value.is_empty() {
                    let first = self.node_locations.get(&known);
                    let help = first.map(|(file, line)| {
                        format!("it is already in {file}, line {line}; key and value are compared as one text")
                    });
                    let message = format!("duplicate descriptor composite key `{name}`");
                    context.problem(one.key.location, message, help);
                }
                known
            }
        };
        let mut levels = parent.levels.to_vec();
        levels.push(RuleLevel {
            key: one.key.value.clone(),
            value: one.value.value.clone(),
            shared: shared.value,
        });
        let node_context = ParentNode {
            node,
            domain: parent.domain,
            name: &name,
            levels: &levels,
        };
        let limit = one.rate_limit.as_ref();
        if let Some(rule) = limit.and_then(|limit| self.rule(context, &node_context, &one, limit)) {
            self.policy.tree.set_rule(node, rule);
        }
        self.descriptors(context, &node_context, one.descriptors);
    }

    fn rule(
        &mut self,
        context: &mut FileContext<'_>,
        at: &ParentNode<'_>,
        one: &DescriptorBlock,
        limit: &RateLimit,
    ) -> Option<u32> {
        context.replaces(limit);
        let quota = self.quota(context, at, limit)?;
        let index = self.policy.rules.len();
        if index == MAX_RULES {
            let message = format!("there are more than {MAX_RULES} limits");
            let help = "a descriptor without a value counts every value by itself";
            context.problem(limit.location, message, Some(help.into()));
        }
        if index >= MAX_RULES {
            return None;
        }
        let replaces: Box<[Box<str>]> = limit.replaces.iter().map(|at| at.value.clone()).collect();
        let named = (!limit.name.is_empty()).then(|| self.name_id(&limit.name));
        let rule = EnvoyRule {
            number: u32::try_from(index).unwrap_or(u32::MAX),
            name: at.name.into(),
            quota,
            limit_name: limit.name.clone(),
            replaced_ids: replaces.iter().map(|name| self.name_id(name)).collect(),
            replaces,
            shadow_mode: one.shadow_mode,
            quota_mode: one.quota_mode,
            detailed_metric: one.detailed_metric,
            metadata: one.metadata.clone(),
            levels: at.levels.into(),
            limit_name_id: named,
        };
        self.policy.rules.push(rule);
        u32::try_from(index).ok()
    }

    fn quota(
        &mut self,
        context: &mut FileContext<'_>,
        at: &ParentNode<'_>,
        limit: &RateLimit,
    ) -> Option<RuleQuota> {
        let unit = WindowUnit::from_name(&limit.unit.value);
        let units = || {
            WindowUnit::ALL
                .map(|unit| format!("`{}`", unit.name()))
                .join(", ")
        };
        match (limit.unlimited, unit) {
            (true, None) => Some(RuleQuota::Unlimited),
            (true, Some(_)) => {
                let message = "`unit` must not be given together with `unlimited`";
                let help = "an unlimited rule is not counted; remove one of the two";
                context.problem(limit.unit.location, message, Some(help.into()));
                None
            }
            (false, None) => {
                let message = match &*limit.unit.value {
                    "" => "a `rate_limit` must have a `unit`, or say `unlimited: true`".into(),
                    unit => format!("invalid rate limit unit `{unit}`"),
                };
                let help = format!("units are {}", units());
                context.problem(limit.unit.location, message, Some(help));
                None
            }
            (false, Some(unit)) => {
                let requests_per_unit = limit.requests_per_unit;
                let identity = format!("{}/{}", at.name, unit.name());
                match unit.limit(requests_per_unit) {
                    Ok(counter) => Some(RuleQuota::Limited {
                        requests_per_unit,
                        unit,
                        counter,
                        state: self.state(identity.into(), at.counter_identity(unit)),
                    }),
                    Err(reason) => {
                        context.problem(limit.location, reason.to_string(), None);
                        None
                    }
                }
            }
        }
    }

    /// The state index of an identity. Names are joined by dots, so two rules may have the same identity. Their counter keys
    /// still differ, because these keep domains and entries apart.
    fn state(&mut self, identity: Box<str>, counter: Box<str>) -> RuleStateIndex {
        if let Some(state) = self.states.get(&identity) {
            return *state;
        }
        let state = RuleStateIndex(u32::try_from(self.policy.identities.len()).unwrap_or(u32::MAX));
        self.policy.identities.push(identity.clone());
        let next = u32::try_from(self.counters.len()).unwrap_or(u32::MAX);
        let counter = *self.counters.entry(counter).or_insert_with_key(|counter| {
            self.policy.counter_identities.push(counter.clone());
            next
        });
        self.policy.counters.push(counter);
        self.states.insert(identity, state);
        state
    }

    /// The id of a limit's name, so that requests compare numbers instead of names.
    fn name_id(&mut self, name: &str) -> u32 {
        let next = u32::try_from(self.name_ids.len()).unwrap_or(u32::MAX);
        *self.name_ids.entry(name.into()).or_insert(next)
    }
}

impl ParentNode<'_> {
    /// The identity of the counters of a rule: its domain, keys and unit. Values are in the counter's key. So a value that gets
    /// a rule of its own keeps its count, as in envoyproxy/ratelimit.
    fn counter_identity(&self, unit: WindowUnit) -> Box<str> {
        let keys = self.levels.iter().map(|level| &*level.key);
        let path: Vec<&str> = std::iter::once(self.domain).chain(keys).collect();
        format!("{}/{}", path.join("."), unit.name()).into()
    }
}

impl FileContext<'_> {
    fn problem(
        &mut self,
        location: SourceLocation,
        message: impl Into<Box<str>>,
        help: Option<String>,
    ) {
        self.problems.push(Diagnostic {
            location,
            message: message.into(),
            help: help.map(Into::into),
        });
    }

    fn replaces(&mut self, limit: &RateLimit) {
        for replaced in &limit.replaces {
            if replaced.value.is_empty() {
                let help = "name the limit with `name:`";
                let message = "an entry of `replaces` must have a `name`";
                self.problem(replaced.location, message, Some(help.into()));
            } else if replaced.value == limit.name {
                let message = format!("`{}` cannot replace itself", limit.name);
                let help = "`replaces` names other limits of the same request";
                self.problem(replaced.location, message, Some(help.into()));
            }
        }
    }
}

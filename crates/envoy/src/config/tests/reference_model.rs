//! A slow reference model of envoyproxy/ratelimit: a list of nodes that is walked by joined texts, and a map of counters by the
//! start of their window. It shares only the test notation with the product.

use std::collections::{HashMap, HashSet};

use super::test_server::{TestDescriptor, TestRequest};
use crate::config::WindowUnit;

#[derive(Clone, Debug, Default)]
pub(super) struct ModelNode {
    pub(super) key: String,
    pub(super) value: String,
    pub(super) limit: Option<ModelLimit>,
    pub(super) shadow: bool,
    pub(super) quota: bool,
    pub(super) shared: bool,
    pub(super) below: Vec<ModelNode>,
}

#[derive(Clone, Debug)]
pub(super) struct ModelLimit {
    /// `None` is unlimited.
    pub(super) most: Option<(u32, WindowUnit)>,
    pub(super) name: String,
    pub(super) replaces: Vec<String>,
}

/// A mistake in the model, as a negative control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    None,
    DeniedNotCounted,
    LastPatternWins,
    KeyBeforePatterns,
    AnyDepth,
    NothingShared,
    NothingReplaced,
    QuotasDenyAlone,
    WindowFromFirstHit,
}

pub(super) struct ReferenceModel {
    pub(super) domain: String,
    pub(super) nodes: Vec<ModelNode>,
    pub(super) mistake: Mistake,
    counters: HashMap<(Vec<String>, u64, u64), u64>,
}

/// A node, and the text by which each entry is counted.
type ModelMatch<'a> = (&'a ModelNode, Vec<String>);

impl ModelNode {
    fn text(&self) -> String {
        if self.value.is_empty() {
            self.key.clone()
        } else {
            format!("{}_{}", self.key, self.value)
        }
    }

    /// Drops duplicates and invalid options, which a file cannot have.
    pub(super) fn tidy(nodes: Vec<Self>) -> Vec<Self> {
        let mut seen = HashSet::new();
        let mut unique = Vec::new();
        for mut node in nodes {
            node.shared &= node.text().contains('*');
            if seen.insert(node.text()) {
                node.below = Self::tidy(node.below);
                unique.push(node);
            }
        }
        unique
    }

    /// The node as YAML.
    pub(super) fn yaml(&self, indent: usize) -> String {
        let pad = " ".repeat(indent);
        let mut text = format!("{pad}- key: \"{}\"\n", self.key);
        let mut push_line = |line: String| text += &format!("{pad}  {line}\n");
        if !self.value.is_empty() {
            push_line(format!("value: \"{}\"", self.value));
        }
        push_line(format!("shadow_mode: {}", self.shadow));
        push_line(format!("quota_mode: {}", self.quota));
        push_line(format!("share_threshold: {}", self.shared));
        if let Some(limit) = &self.limit {
            push_line("rate_limit:".into());
            match limit.most {
                None => push_line("  unlimited: true".into()),
                Some((most, unit)) => {
                    push_line(format!("  unit: {}", unit.name()));
                    push_line(format!("  requests_per_unit: {most}"));
                }
            }
            push_line(format!("  name: \"{}\"", limit.name));
            let names = limit.replaces.iter().filter(|name| **name != limit.name);
            let names: Vec<String> = names.map(|name| format!("{{ name: {name} }}")).collect();
            push_line(format!("  replaces: [{}]", names.join(", ")));
        }
        if !self.below.is_empty() {
            push_line("descriptors:".into());
            self.below
                .iter()
                .for_each(|node| text += &node.yaml(indent + 4));
        }
        text
    }
}

impl ReferenceModel {
    pub(super) fn new(domain: &str, nodes: Vec<ModelNode>, mistake: Mistake) -> Self {
        Self {
            domain: domain.into(),
            nodes,
            mistake,
            counters: HashMap::new(),
        }
    }

    /// The reply in the format of `format_reply`.
    pub(super) fn check(&mut self, nanos: u64, request: &TestRequest) -> String {
        let found: Vec<Option<ModelMatch<'_>>> = request
            .descriptors
            .iter()
            .map(|one| self.find(&request.domain, one))
            .collect();
        let mut replaced = HashSet::new();
        for (node, _) in found.iter().flatten() {
            let limit = node.limit.as_ref().unwrap();
            let names = limit.replaces.iter().filter(|name| **name != limit.name);
            replaced.extend(names.cloned());
        }
        if self.mistake == Mistake::NothingReplaced {
            replaced.clear();
        }
        let mut action = Vec::new();
        for (one, found) in request.descriptors.iter().zip(&found) {
            action.push(self.action(request, one, found.as_ref(), &replaced));
        }
        let seconds = nanos / 1_000_000_000;
        let (mut statuses, mut plain_over, mut quotas, mut quotas_over) = (Vec::new(), false, 0, 0);
        for action in action {
            let ModelAction::Count {
                key,
                most,
                unit,
                hits,
                shadow,
                quota,
                name,
            } = action
            else {
                let unlimited = matches!(action, ModelAction::Unlimited);
                statuses.push(if unlimited { "OK unlimited" } else { "OK free" }.to_owned());
                continue;
            };
            let length = unit.length().as_nanos() / 1_000_000_000;
            let mut start = seconds / length * length;
            if self.mistake == Mistake::WindowFromFirstHit {
                start = 0;
            }
            let counter = self.counters.entry((key, length, start)).or_default();
            let after = *counter + hits;
            let over = after > u64::from(most);
            if !(over && self.mistake == Mistake::DeniedNotCounted) {
                *counter = after;
            }
            let denied = over && !shadow;
            quotas += u32::from(quota);
            quotas_over += u32::from(quota && denied);
            plain_over |= denied && (!quota || self.mistake == Mistake::QuotasDenyAlone);
            let left = u64::from(most).saturating_sub(after);
            let code = if denied { "OVER" } else { "OK" };
            let name = if name.is_empty() {
                name
            } else {
                format!(" '{name}'")
            };
            let reset = length - seconds % length;
            statuses.push(format!(
                "{code} {left}/{most} {} {reset}s{name}",
                unit.name()
            ));
        }
        let over = plain_over || (quotas > 0 && quotas == quotas_over);
        format!(
            "{}: {}",
            if over { "OVER" } else { "OK" },
            statuses.join(" | ")
        )
    }

    fn action(
        &self,
        request: &TestRequest,
        one: &TestDescriptor,
        found: Option<&ModelMatch<'_>>,
        replaced: &HashSet<String>,
    ) -> ModelAction {
        let hits = one.hits.unwrap_or(u64::from(request.hits_addend.max(1)));
        if request.domain != self.domain {
            return ModelAction::Free;
        }
        if let Some((most, unit)) = one.limit {
            let key = one
                .entries
                .iter()
                .flat_map(|(k, v)| [k.clone(), v.clone()])
                .collect();
            return ModelAction::Count {
                key,
                most,
                unit,
                hits,
                shadow: false,
                quota: false,
                name: String::new(),
            };
        }
        let Some((node, key)) = found else {
            return ModelAction::Free;
        };
        let limit = node.limit.as_ref().unwrap();
        match limit.most {
            None => ModelAction::Unlimited,
            Some(_) if replaced.contains(&limit.name) => ModelAction::Free,
            Some((most, unit)) => ModelAction::Count {
                key: key.clone(),
                most,
                unit,
                hits,
                shadow: node.shadow,
                quota: node.quota,
                name: limit.name.clone(),
            },
        }
    }

    /// The node whose limit applies. `None` for overrides.
    fn find(&self, domain: &str, one: &TestDescriptor) -> Option<ModelMatch<'_>> {
        if domain != self.domain || one.limit.is_some() {
            return None;
        }
        let (mut level, mut taken, mut key) = (&self.nodes, None, Vec::new());
        for (index, (entry, value)) in one.entries.iter().enumerate() {
            let both = format!("{entry}_{value}");
            let exact = level.iter().find(|node| node.text() == both);
            let mut patterns = level.iter().filter(|node| {
                let node_text = node.text();
                node_text.contains('*') && matches_pattern(node_text.as_bytes(), both.as_bytes())
            });
            let pattern = match self.mistake {
                Mistake::LastPatternWins => patterns.next_back(),
                _ => patterns.next(),
            };
            let alone = level.iter().find(|node| node.text() == *entry);
            let (node, by_pattern) = match (exact, pattern, alone) {
                (Some(node), _, _) => (node, false),
                (None, _, Some(node)) if self.mistake == Mistake::KeyBeforePatterns => {
                    (node, false)
                }
                (None, Some(node), _) => (node, true),
                (None, None, Some(node)) => (node, false),
                (None, None, None) => return None,
            };
            let node_text = node.text();
            let of_pattern = node_text
                .strip_prefix(&format!("{entry}_"))
                .unwrap_or(&node_text);
            let shares = by_pattern && node.shared && self.mistake != Mistake::NothingShared;
            let counts_by = if shares && !of_pattern.is_empty() {
                of_pattern
            } else {
                value
            };
            key.extend([entry.clone(), counts_by.to_owned()]);
            taken = Some(node);
            let last = index + 1 == one.entries.len();
            if !last && node.below.is_empty() {
                if self.mistake == Mistake::AnyDepth {
                    break;
                }
                return None;
            }
            level = &node.below;
        }
        let node = taken.filter(|node| node.limit.is_some())?;
        Some((node, key))
    }
}

enum ModelAction {
    Free,
    Unlimited,
    Count {
        key: Vec<String>,
        most: u32,
        unit: WindowUnit,
        hits: u64,
        shadow: bool,
        quota: bool,
        name: String,
    },
}

/// Matches a text against a pattern by trying every length for every star.
fn matches_pattern(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|skip| matches_pattern(rest, &text[skip..])),
        Some((byte, rest)) => text.first() == Some(byte) && matches_pattern(rest, &text[1..]),
    }
}

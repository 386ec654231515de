//! Reads a YAML tree into a domain and its descriptors.
//!
//! The format has a closed list of keys for each level. envoyproxy/ratelimit has one list for all levels and silently ignores a
//! key on the wrong level: `shadow_mode` inside `rate_limit` has no effect, and the limit is enforced. This reader refuses such
//! keys unless [`LoadOptions::ignore_misplaced`](super::LoadOptions::ignore_misplaced) is set. Must not know: whether values are
//! consistent with each other.

use tollgate_policy::source::{Diagnostic, Located, SourceLocation, SourceNode, SourceValue};

use super::metadata::Metadata;
use super::yaml_values::{self, FieldResult};

const ROOT: &[&str] = &["domain", "descriptors"];
const DESCRIPTOR: &[&str] = &[
    "key",
    "value",
    "rate_limit",
    "descriptors",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];
const RATE_LIMIT: &[&str] = &["unit", "requests_per_unit", "unlimited", "name", "replaces"];
const REPLACED: &[&str] = &["name"];

/// A parsed file.
#[derive(Debug)]
pub(super) struct ConfigFile {
    pub(super) domain: Located<Box<str>>,
    pub(super) descriptors: Vec<DescriptorBlock>,
}

/// One descriptor.
#[derive(Debug)]
pub(super) struct DescriptorBlock {
    pub(super) key: Located<Box<str>>,
    /// Empty for any value.
    pub(super) value: Located<Box<str>>,
    pub(super) rate_limit: Option<RateLimit>,
    pub(super) descriptors: Vec<DescriptorBlock>,
    pub(super) shadow_mode: bool,
    pub(super) quota_mode: bool,
    pub(super) detailed_metric: bool,
    pub(super) value_to_metric: bool,
    pub(super) share_threshold: Located<bool>,
    pub(super) metadata: Option<Metadata>,
}

/// A descriptor's limit.
#[derive(Debug)]
pub(super) struct RateLimit {
    pub(super) location: SourceLocation,
    pub(super) unit: Located<Box<str>>,
    pub(super) requests_per_unit: u32,
    pub(super) unlimited: bool,
    pub(super) name: Box<str>,
    pub(super) replaces: Vec<Located<Box<str>>>,
}

/// Reads files and collects their problems.
pub(super) struct FileReader<'a> {
    pub(super) problems: &'a mut Vec<Diagnostic>,
    pub(super) ignore_misplaced: bool,
}

impl FileReader<'_> {
    /// Reads a whole file.
    pub(super) fn file(&mut self, root: &SourceNode) -> ConfigFile {
        let fields = self.fields(root, "a file", ROOT);
        ConfigFile {
            domain: self.text(&fields, "domain", root.location),
            descriptors: self.descriptors(&fields),
        }
    }

    fn descriptors(&mut self, fields: &NodeFields<'_>) -> Vec<DescriptorBlock> {
        let list = self.list(fields, "descriptors");
        list.iter().map(|node| self.descriptor(node)).collect()
    }

    fn descriptor(&mut self, node: &SourceNode) -> DescriptorBlock {
        let fields = self.fields(node, "a descriptor", DESCRIPTOR);
        DescriptorBlock {
            key: self.text(&fields, "key", node.location),
            value: self.text(&fields, "value", node.location),
            rate_limit: self.rate_limit(&fields),
            descriptors: self.descriptors(&fields),
            shadow_mode: self.boolean(&fields, "shadow_mode").value,
            quota_mode: self.boolean(&fields, "quota_mode").value,
            detailed_metric: self.boolean(&fields, "detailed_metric").value,
            value_to_metric: self.boolean(&fields, "value_to_metric").value,
            share_threshold: self.boolean(&fields, "share_threshold"),
            metadata: self.metadata(&fields),
        }
    }

    fn rate_limit(&mut self, fields: &NodeFields<'_>) -> Option<RateLimit> {
        let node = fields.get("rate_limit")?;
        if node.value == SourceValue::Null {
            return None;
        }
        let fields = self.fields(node, "`rate_limit`", RATE_LIMIT);
        let replaced = self.list(&fields, "replaces");
        let replaces = replaced.iter().map(|node| {
            let fields = self.fields(node, "an entry of `replaces`", REPLACED);
            self.text(&fields, "name", node.location)
        });
        let replaces = replaces.collect();
        Some(RateLimit {
            location: node.location,
            unit: self.text(&fields, "unit", node.location),
            requests_per_unit: self.count(&fields, "requests_per_unit"),
            unlimited: self.boolean(&fields, "unlimited").value,
            name: self.text(&fields, "name", node.location).value,
            replaces,
        })
    }

    fn metadata(&mut self, fields: &NodeFields<'_>) -> Option<Metadata> {
        let node = fields.get("metadata")?;
        match &node.value {
            SourceValue::Null => None,
            SourceValue::Map(_) => {
                Some(Metadata::from_node(node)).filter(|metadata| !metadata.is_empty())
            }
            _ => {
                self.report_wrong_type(node, "metadata", "a map of names and values");
                None
            }
        }
    }

    /// The fields of a map, without unexpected keys.
    fn fields<'n>(
        &mut self,
        node: &'n SourceNode,
        what: &str,
        allowed: &'static [&str],
    ) -> NodeFields<'n> {
        let mut fields = NodeFields(Vec::new());
        let SourceValue::Map(entries) = &node.value else {
            self.problem(
                node.location,
                format!("{what} must be a map"),
                format!("its names are {}", join_quoted(allowed)),
            );
            return fields;
        };
        for entry in entries {
            let name = &*entry.name.value;
            if !allowed.contains(&name) {
                self.report_unexpected_key(&entry.name, what, allowed);
            } else {
                // Duplicate keys are reported elsewhere, for the whole file.
                fields.0.push((name, &entry.value));
            }
        }
        fields
    }

    fn report_unexpected_key(&mut self, name: &Located<Box<str>>, what: &str, allowed: &[&str]) {
        let known_elsewhere = [ROOT, DESCRIPTOR, RATE_LIMIT, REPLACED]
            .iter()
            .any(|names| names.contains(&&*name.value));
        if !known_elsewhere {
            self.problem(
                name.location,
                format!("unknown key `{}`", name.value),
                format!("{what} has {}", join_quoted(allowed)),
            );
        } else if !self.ignore_misplaced {
            self.problem(
                name.location,
                format!("`{}` is not allowed in {what}", name.value),
                format!(
                    "envoyproxy/ratelimit ignores it here; {what} has {}",
                    join_quoted(allowed)
                ),
            );
        }
    }

    /// The maps of a list.
    fn list<'n>(&mut self, fields: &NodeFields<'n>, name: &str) -> &'n [SourceNode] {
        match fields.get(name).map(|node| (node, &node.value)) {
            None | Some((_, SourceValue::Null)) => &[],
            Some((_, SourceValue::List(list))) => list,
            Some((node, _)) => {
                self.report_wrong_type(node, name, "a list of maps");
                &[]
            }
        }
    }

    fn text(
        &mut self,
        fields: &NodeFields<'_>,
        name: &str,
        parent: SourceLocation,
    ) -> Located<Box<str>> {
        let value = self.read_field(fields, name, yaml_values::parse_text, "a text");
        value.unwrap_or_else(|| Located::new("".into(), parent))
    }

    fn boolean(&mut self, fields: &NodeFields<'_>, name: &str) -> Located<bool> {
        let value = self.read_field(
            fields,
            name,
            yaml_values::parse_bool,
            "`true` or `false`, without quotes",
        );
        value.unwrap_or_default()
    }

    fn count(&mut self, fields: &NodeFields<'_>, name: &str) -> u32 {
        let expected = "a whole number from 0 to 4294967295, without quotes";
        let value = self.read_field(fields, name, yaml_values::parse_count, expected);
        value.unwrap_or_default().value
    }

    fn read_field<T>(
        &mut self,
        fields: &NodeFields<'_>,
        name: &str,
        read: impl FnOnce(&SourceNode) -> FieldResult<T>,
        expected: &str,
    ) -> Option<Located<T>> {
        let node = fields.get(name)?;
        if let Ok(value) = read(node) {
            return value.map(|value| Located::new(value, node.location));
        }
        self.report_wrong_type(node, name, expected);
        None
    }

    fn report_wrong_type(&mut self, node: &SourceNode, name: &str, expected: &str) {
        let message = match &node.value {
            SourceValue::Scalar { text, .. } => format!("`{name}`: `{text}` is not {expected}"),
            SourceValue::List(_) => format!("`{name}` is a list, but must be {expected}"),
            SourceValue::Map(_) => format!("`{name}` is a map, but must be {expected}"),
            SourceValue::Null => format!("`{name}` must be {expected}"),
        };
        self.problems
            .push(Diagnostic::without_help(node.location, message));
    }

    fn problem(&mut self, location: SourceLocation, message: String, help: String) {
        self.problems.push(Diagnostic::new(location, message, help));
    }
}

struct NodeFields<'n>(Vec<(&'n str, &'n SourceNode)>);

impl<'n> NodeFields<'n> {
    fn get(&self, name: &str) -> Option<&'n SourceNode> {
        let mut fields = self.0.iter();
        fields
            .find(|(known, _)| *known == name)
            .map(|(_, node)| *node)
    }
}

fn join_quoted(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

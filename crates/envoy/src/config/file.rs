//! A tree of values becomes what the file says: a domain and its descriptors.
//!
//! The format has a closed list of names, and so has each level here. The reference knows only one list for all levels and
//! silently ignores a name that stands on the wrong one, such as `shadow_mode` inside `rate_limit`, which then is enforced
//! after all; that is refused here unless it is asked for. Must not know: whether what is said makes sense together.

use tollgate_policy::source::{At, Diagnostic, SourceLocation, SourceNode, SourceValue};

use super::metadata::Metadata;
use super::values::{self, Field};

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

/// What a file says.
#[derive(Debug)]
pub(super) struct File {
    pub(super) domain: At<Box<str>>,
    pub(super) descriptors: Vec<DescriptorBlock>,
}

/// One descriptor.
#[derive(Debug)]
pub(super) struct DescriptorBlock {
    pub(super) key: At<Box<str>>,
    /// Empty for any value.
    pub(super) value: At<Box<str>>,
    pub(super) rate_limit: Option<RateLimit>,
    pub(super) descriptors: Vec<DescriptorBlock>,
    pub(super) shadow_mode: bool,
    pub(super) quota_mode: bool,
    pub(super) detailed_metric: bool,
    pub(super) value_to_metric: bool,
    pub(super) share_threshold: At<bool>,
    pub(super) metadata: Option<Metadata>,
}

/// A descriptor's limit.
#[derive(Debug)]
pub(super) struct RateLimit {
    pub(super) place: SourceLocation,
    pub(super) unit: At<Box<str>>,
    pub(super) requests_per_unit: u32,
    pub(super) unlimited: bool,
    pub(super) name: Box<str>,
    pub(super) replaces: Vec<At<Box<str>>>,
}

/// Reads files and collects what is wrong with them.
pub(super) struct Reader<'a> {
    pub(super) problems: &'a mut Vec<Diagnostic>,
    pub(super) ignore_misplaced: bool,
}

impl Reader<'_> {
    /// What a whole file says.
    pub(super) fn file(&mut self, root: &SourceNode) -> File {
        let fields = self.fields(root, "a file", ROOT);
        File {
            domain: self.text(&fields, "domain", root.place),
            descriptors: self.descriptors(&fields),
        }
    }

    fn descriptors(&mut self, fields: &Fields<'_>) -> Vec<DescriptorBlock> {
        let list = self.list(fields, "descriptors");
        list.iter().map(|node| self.descriptor(node)).collect()
    }

    fn descriptor(&mut self, node: &SourceNode) -> DescriptorBlock {
        let fields = self.fields(node, "a descriptor", DESCRIPTOR);
        DescriptorBlock {
            key: self.text(&fields, "key", node.place),
            value: self.text(&fields, "value", node.place),
            rate_limit: self.rate_limit(&fields),
            descriptors: self.descriptors(&fields),
            shadow_mode: self.truth(&fields, "shadow_mode").value,
            quota_mode: self.truth(&fields, "quota_mode").value,
            detailed_metric: self.truth(&fields, "detailed_metric").value,
            value_to_metric: self.truth(&fields, "value_to_metric").value,
            share_threshold: self.truth(&fields, "share_threshold"),
            metadata: self.metadata(&fields),
        }
    }

    fn rate_limit(&mut self, fields: &Fields<'_>) -> Option<RateLimit> {
        let node = fields.get("rate_limit")?;
        if node.value == SourceValue::Nothing {
            return None;
        }
        let fields = self.fields(node, "`rate_limit`", RATE_LIMIT);
        let replaced = self.list(&fields, "replaces");
        let replaces = replaced.iter().map(|node| {
            let fields = self.fields(node, "an entry of `replaces`", REPLACED);
            self.text(&fields, "name", node.place)
        });
        let replaces = replaces.collect();
        Some(RateLimit {
            place: node.place,
            unit: self.text(&fields, "unit", node.place),
            requests_per_unit: self.count(&fields, "requests_per_unit"),
            unlimited: self.truth(&fields, "unlimited").value,
            name: self.text(&fields, "name", node.place).value,
            replaces,
        })
    }

    fn metadata(&mut self, fields: &Fields<'_>) -> Option<Metadata> {
        let node = fields.get("metadata")?;
        match &node.value {
            SourceValue::Nothing => None,
            SourceValue::Map(_) => Some(Metadata::of(node)).filter(|metadata| !metadata.is_empty()),
            _ => {
                self.wrong(node, "metadata", "a map of names and values");
                None
            }
        }
    }

    /// The fields of a map that belong there.
    fn fields<'n>(
        &mut self,
        node: &'n SourceNode,
        what: &str,
        here: &'static [&str],
    ) -> Fields<'n> {
        let mut fields = Fields(Vec::new());
        let SourceValue::Map(entries) = &node.value else {
            self.problem(
                node.place,
                format!("{what} must be a map"),
                format!("its names are {}", listed(here)),
            );
            return fields;
        };
        for entry in entries {
            let name = &*entry.name.value;
            if !here.contains(&name) {
                self.stranger(&entry.name, what, here);
            } else {
                // A name that is given twice is reported for the whole file at once.
                fields.0.push((name, &entry.value));
            }
        }
        fields
    }

    fn stranger(&mut self, name: &At<Box<str>>, what: &str, here: &[&str]) {
        let known_elsewhere = [ROOT, DESCRIPTOR, RATE_LIMIT, REPLACED]
            .iter()
            .any(|names| names.contains(&&*name.value));
        if !known_elsewhere {
            self.problem(
                name.place,
                format!("unknown key `{}`", name.value),
                format!("{what} has {}", listed(here)),
            );
        } else if !self.ignore_misplaced {
            self.problem(
                name.place,
                format!("`{}` does not belong into {what}", name.value),
                format!(
                    "envoyproxy/ratelimit ignores it here; {what} has {}",
                    listed(here)
                ),
            );
        }
    }

    /// The maps of a list.
    fn list<'n>(&mut self, fields: &Fields<'n>, name: &str) -> &'n [SourceNode] {
        match fields.get(name).map(|node| (node, &node.value)) {
            None | Some((_, SourceValue::Nothing)) => &[],
            Some((_, SourceValue::List(list))) => list,
            Some((node, _)) => {
                self.wrong(node, name, "a list of maps");
                &[]
            }
        }
    }

    fn text(&mut self, fields: &Fields<'_>, name: &str, parent: SourceLocation) -> At<Box<str>> {
        let said = self.said(fields, name, values::text, "a text");
        said.unwrap_or_else(|| At::new("".into(), parent))
    }

    fn truth(&mut self, fields: &Fields<'_>, name: &str) -> At<bool> {
        let said = self.said(
            fields,
            name,
            values::truth,
            "`true` or `false`, without quotes",
        );
        said.unwrap_or_default()
    }

    fn count(&mut self, fields: &Fields<'_>, name: &str) -> u32 {
        let right = "a whole number from 0 to 4294967295, without quotes";
        let said = self.said(fields, name, values::count, right);
        said.unwrap_or_default().value
    }

    fn said<T>(
        &mut self,
        fields: &Fields<'_>,
        name: &str,
        read: impl FnOnce(&SourceNode) -> Field<T>,
        right: &str,
    ) -> Option<At<T>> {
        let node = fields.get(name)?;
        if let Ok(said) = read(node) {
            return said.map(|value| At::new(value, node.place));
        }
        self.wrong(node, name, right);
        None
    }

    fn wrong(&mut self, node: &SourceNode, name: &str, right: &str) {
        let message = match &node.value {
            SourceValue::Scalar { text, .. } => format!("`{name}`: `{text}` is not {right}"),
            SourceValue::List(_) => format!("`{name}` is a list, but must be {right}"),
            SourceValue::Map(_) => format!("`{name}` is a map, but must be {right}"),
            SourceValue::Nothing => format!("`{name}` must be {right}"),
        };
        self.problems.push(Diagnostic::bare(node.place, message));
    }

    fn problem(&mut self, place: SourceLocation, message: String, help: String) {
        self.problems.push(Diagnostic::new(place, message, help));
    }
}

struct Fields<'n>(Vec<(&'n str, &'n SourceNode)>);

impl<'n> Fields<'n> {
    fn get(&self, name: &str) -> Option<&'n SourceNode> {
        let mut fields = self.0.iter();
        fields
            .find(|(known, _)| *known == name)
            .map(|(_, node)| *node)
    }
}

fn listed(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

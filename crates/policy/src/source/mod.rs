//! The text of a policy as one tree, whatever its format, in which every value knows where it stands.
//!
//! Must not know: what fields there are and what they mean.

mod diagnostic;
mod duplicate_names;
mod json;
mod line_index;
mod node;
mod render;
mod toml;
mod yaml;
mod yaml_errors;

use std::path::Path;

pub use diagnostic::{Diagnostic, Diagnostics, MAX_DIAGNOSTICS};
pub use duplicate_names::find_duplicate_names;
pub use node::{Located, MapEntry, SourceLocation, SourceNode, SourceValue};

use line_index::LineIndex;

/// The longest text that is read, in bytes.
pub const MAX_BYTES: usize = 1 << 20;
/// How deep lists and maps may lie in each other.
pub const MAX_DEPTH: usize = 32;
/// How many values and names a text may have.
pub const MAX_NODES: usize = 200_000;

/// How a text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourceFormat {
    /// YAML 1.2, without anchors, aliases, tags and merge keys.
    Yaml,
    /// TOML 1.0.
    Toml,
    /// JSON, strictly.
    Json,
}

impl SourceFormat {
    /// The format that a file's name says, by its ending.
    ///
    /// ```
    /// use std::path::Path;
    /// use tollgate_policy::source::SourceFormat;
    ///
    /// assert_eq!(SourceFormat::of_path(Path::new("/etc/tollgate/policy.YML")), Some(SourceFormat::Yaml));
    /// assert_eq!(SourceFormat::of_path(Path::new("policy.txt")), None);
    /// ```
    #[must_use]
    pub fn from_path(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        match ending.as_str() {
            "yaml" | "yml" => Some(Self::Yaml),
            "toml" => Some(Self::Toml),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

/// Reads a text into a tree. A text that says nothing is a problem, because it must never mean "no limits".
///
/// A name that stands twice in one map is kept twice, so that a reader can report it beside everything else that is
/// wrong; [`given_twice`] finds them. (TOML's own grammar refuses it here already.)
///
/// ```
/// use tollgate_policy::source::{SourceFormat, SourceValue, parse};
///
/// let tree = parse("limits: []\nmode: shadow\n", SourceFormat::Yaml).unwrap();
/// let SourceValue::Map(entries) = tree.value else { panic!("it is a map") };
/// assert_eq!((&*entries[1].name.value, entries[1].value.place.column), ("mode", 7));
///
/// let problems = parse("# nothing yet\n", SourceFormat::Yaml).unwrap_err();
/// assert!(problems[0].message.contains("says nothing"));
/// ```
///
/// # Errors
///
/// What is wrong with the text: its syntax, its size, how deep it goes, or that it says nothing.
pub fn parse(text: &str, format: SourceFormat) -> Result<SourceNode, Vec<Diagnostic>> {
    if text.len() > MAX_BYTES {
        return Err(vec![Diagnostic::new(
            SourceLocation::START,
            format!(
                "the file has {} bytes, and at most {MAX_BYTES} are read",
                text.len()
            ),
            "split the policy, or move long lists of values out of it",
        )]);
    }
    let text = without_byte_order_mark(text);
    let lines = LineIndex::new(text);
    let mut tree = match format {
        SourceFormat::Yaml => yaml::parse(text, &lines),
        SourceFormat::Toml => toml::parse(text, &lines),
        SourceFormat::Json => json::parse(text, &lines).map_err(|problem| vec![problem]),
    }?;
    if let (SourceFormat::Json, SourceValue::Map(entries)) = (format, &mut tree.value) {
        // Where editors find what a JSON file may say: a word to them, in a format that has no comments for it.
        entries.retain(|entry| &*entry.name.value != "$schema");
    }
    let nothing = match &tree.value {
        SourceValue::Null => true,
        SourceValue::Scalar { text, .. } => text.is_empty(),
        SourceValue::List(values) => values.is_empty(),
        SourceValue::Map(entries) => entries.is_empty(),
    };
    if nothing {
        return Err(vec![empty_file()]);
    }
    Ok(tree)
}

/// Editors on some systems begin a file with this invisible character; it is no part of what the file says.
fn without_byte_order_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

fn empty_file() -> Diagnostic {
    Diagnostic::new(
        SourceLocation::START,
        "the file says nothing",
        "a policy has at least `limits:` with one limit; to switch limits off, say `mode: off`",
    )
}

fn too_deep(place: SourceLocation) -> Diagnostic {
    Diagnostic::new(
        place,
        format!("lists and maps lie more than {MAX_DEPTH} deep in each other here"),
        "no field of a policy needs that; is there a bracket too many?",
    )
}

fn too_many(place: SourceLocation) -> Diagnostic {
    Diagnostic::new(
        place,
        format!("the file has more than {MAX_NODES} values and names"),
        "split the policy, or use networks, globs and templates instead of long lists",
    )
}

#[cfg(test)]
mod tests;

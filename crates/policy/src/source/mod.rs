//! Parses YAML, TOML or JSON into one tree in which every value has a location.
//!
//! Must not know: which fields there are and what they mean.

mod diagnostic;
mod duplicate_names;
mod json;
mod line_index;
mod node;
mod render;
mod toml;
mod warnings;
mod yaml;
mod yaml_anchors;
mod yaml_errors;

use std::path::Path;

pub use diagnostic::{Diagnostic, Diagnostics, MAX_DIAGNOSTICS};
pub use duplicate_names::find_duplicate_names;
pub use node::{Located, MapEntry, SourceLocation, SourceNode, SourceValue};
pub use warnings::Warnings;

use line_index::LineIndex;

/// The maximum length of a text in bytes.
pub const MAX_BYTES: usize = 1 << 20;
/// The maximum nesting depth of lists and maps.
pub const MAX_DEPTH: usize = 32;
/// The maximum number of values and names in a text.
pub const MAX_NODES: usize = 200_000;

/// The format of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourceFormat {
    /// YAML 1.2 with anchors, aliases and merge keys, without tags.
    Yaml,
    /// TOML 1.0.
    Toml,
    /// JSON, strictly.
    Json,
}

impl SourceFormat {
    /// The format by the file extension.
    ///
    /// ```
    /// use std::path::Path;
    /// use tollgate_policy::source::SourceFormat;
    ///
    /// assert_eq!(SourceFormat::from_path(Path::new("/etc/tollgate/policy.YML")), Some(SourceFormat::Yaml));
    /// assert_eq!(SourceFormat::from_path(Path::new("policy.txt")), None);
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

/// Parses a text into a tree. An empty text is an error, because it must never mean "no limits".
///
/// A duplicate name in a map is kept, so that a reader can report it together with other mistakes;
/// [`find_duplicate_names`] finds them. (The TOML parser reports duplicates itself.)
///
/// ```
/// use tollgate_policy::source::{SourceFormat, SourceValue, parse};
///
/// let tree = parse("limits: []\nmode: shadow\n", SourceFormat::Yaml).unwrap();
/// let SourceValue::Map(entries) = tree.value else { panic!("it is a map") };
/// assert_eq!((&*entries[1].name.value, entries[1].value.location.column), ("mode", 7));
///
/// let diagnostics = parse("# nothing yet\n", SourceFormat::Yaml).unwrap_err();
/// assert!(diagnostics[0].message.contains("is empty"));
/// ```
///
/// # Errors
///
/// The diagnostics of the text: syntax, size, nesting depth, or no content.
pub fn parse(text: &str, format: SourceFormat) -> Result<SourceNode, Vec<Diagnostic>> {
    if text.len() > MAX_BYTES {
        return Err(vec![Diagnostic::new(
            SourceLocation::START,
            format!(
                "the file has {} bytes, the maximum is {MAX_BYTES}",
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
        SourceFormat::Json => json::parse(text, &lines).map_err(|diagnostic| vec![diagnostic]),
    }?;
    if let (SourceFormat::Json, SourceValue::Map(entries)) = (format, &mut tree.value) {
        // `$schema` is for editors, because JSON has no comments.
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

/// Some editors begin a file with a byte order mark; it is not part of the content.
fn without_byte_order_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

fn empty_file() -> Diagnostic {
    Diagnostic::new(
        SourceLocation::START,
        "the file is empty",
        "write at least `limits:` with one limit; to switch limits off, write `mode: off`",
    )
}

fn too_deep(location: SourceLocation) -> Diagnostic {
    Diagnostic::new(
        location,
        format!("lists and maps are nested more than {MAX_DEPTH} levels deep here"),
        "no field of a policy needs that; is there a bracket too many?",
    )
}

fn too_many(location: SourceLocation) -> Diagnostic {
    Diagnostic::new(
        location,
        format!("the file has more than {MAX_NODES} values and names"),
        "split the policy, or use networks, globs and templates instead of long lists",
    )
}

#[cfg(test)]
mod tests;

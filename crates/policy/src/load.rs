//! From a text or a file to a policy, with everything that is wrong shown in its lines.
//!
//! Must not know: what fields mean.

use std::io::Read as _;
use std::path::Path;

use crate::model::Policy;
use crate::source::{Format, MAX_BYTES, Node, Place, Problem, Problems, Value, parse};

/// Reads and checks a policy.
///
/// ```
/// use tollgate_policy::load;
/// use tollgate_policy::source::Format;
///
/// let text = "limits:\n  - name: everyone\n    rate: 100/s\n";
/// assert_eq!(load(text, "policy.yaml", Format::Yaml).unwrap().limits.len(), 1);
///
/// let problems = load("limits: [{ name: a, rate: 100 }]", "policy.yaml", Format::Yaml).unwrap_err();
/// assert!(problems.to_string().contains("`100` does not say per what"));
/// ```
///
/// # Errors
/// Everything that is wrong with it.
pub fn load(text: &str, file_name: &str, format: Format) -> Result<Policy, Problems> {
    let mut tree = parse(text, format).map_err(|list| Problems::new(file_name, text, list))?;
    if format != Format::Yaml {
        bare_words(&mut tree);
    }
    crate::read::policy(&tree).map_err(|list| Problems::new(file_name, text, list))
}

/// Reads and checks a policy in a file, in the format that its ending says.
///
/// # Errors
/// The file cannot be read, is no text, or is wrong.
pub fn load_path(path: &Path) -> Result<Policy, Problems> {
    let name = path.display().to_string();
    let refuse = |message: String, help: &str| {
        Problems::new(&name, "", vec![Problem::new(Place::START, message, help)])
    };
    let Some(format) = Format::of_path(path) else {
        return Err(refuse(
            "the name of the file does not say how it is written".to_owned(),
            "name it with the ending `.yaml`, `.toml` or `.json`",
        ));
    };
    let mut bytes = Vec::new();
    // One byte more than is read, so that a file of just the right size is told from a larger one.
    let most = u64::try_from(MAX_BYTES)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    std::fs::File::open(path)
        .and_then(|file| file.take(most).read_to_end(&mut bytes))
        .map_err(|error| {
            refuse(
                format!("the file cannot be read: {error}"),
                "check its path and permissions",
            )
        })?;
    if bytes.len() > MAX_BYTES {
        return Err(refuse(
            format!("the file has more than {MAX_BYTES} bytes"),
            "split the policy, or move long lists of values out of it",
        ));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let before = error.as_bytes().get(..at).unwrap_or_default();
        let line = before.split(|byte| *byte == b'\n').count();
        refuse(
            format!(
                "the file is not UTF-8 text: byte {} on line {line} begins no character",
                at + 1
            ),
            "save it as UTF-8",
        )
    })?;
    load(&text, &name, format)
}

/// In YAML `absent` is a word and `"absent"` a text. JSON and TOML have only texts, so there the words are meant
/// wherever a condition could say them; the text itself can still be matched as a list of one.
fn bare_words(node: &mut Node) {
    match &mut node.value {
        Value::Nothing | Value::Scalar { .. } => {}
        Value::List(nodes) => nodes.iter_mut().for_each(bare_words),
        Value::Map(entries) => {
            for entry in entries {
                match &mut entry.value.value {
                    Value::Scalar { text, quoted } if matches!(&**text, "present" | "absent") => {
                        *quoted = false;
                    }
                    _ => bare_words(&mut entry.value),
                }
            }
        }
    }
}

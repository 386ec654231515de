//! Loads a policy from a text or a file, with diagnostics that show the lines of the file.
//!
//! Must not know: what fields mean.

use std::io::{ErrorKind, Read};
use std::path::Path;

use tollgate_files::read_regular;

use crate::model::Policy;
use crate::source::{
    Diagnostic, Diagnostics, MAX_BYTES, SourceFormat, SourceLocation, SourceNode, SourceValue,
    Warnings, parse,
};

/// Reads and checks a policy.
///
/// ```
/// use tollgate_policy::load;
/// use tollgate_policy::source::SourceFormat;
///
/// let text = "limits:\n  - name: everyone\n    rate: 100/s\n";
/// assert_eq!(load(text, "policy.yaml", SourceFormat::Yaml).unwrap().limits.len(), 1);
///
/// let diagnostics = load("limits: [{ name: a, rate: 100 }]", "policy.yaml", SourceFormat::Yaml).unwrap_err();
/// assert!(diagnostics.to_string().contains("`100` has no period"));
/// ```
///
/// # Errors
/// All diagnostics of the policy.
pub fn load(text: &str, file_name: &str, format: SourceFormat) -> Result<Policy, Diagnostics> {
    load_with_warnings(text, file_name, format).map(|(policy, _)| policy)
}

/// Reads and checks a policy, and finds what its author probably did not intend.
///
/// ```
/// use tollgate_policy::load_with_warnings;
/// use tollgate_policy::source::SourceFormat;
///
/// let text = "exempt: [{ header.x-staff: yes }]\nlimits: [{ name: everyone, rate: 100/s }]\n";
/// let (_, warnings) = load_with_warnings(text, "policy.yaml", SourceFormat::Yaml).unwrap();
/// assert!(warnings.render(false).starts_with("warning: policy.yaml:1:12: `exempt` depends on"));
/// ```
///
/// # Errors
/// All diagnostics of the policy.
pub fn load_with_warnings(
    text: &str,
    file_name: &str,
    format: SourceFormat,
) -> Result<(Policy, Warnings), Diagnostics> {
    let mut tree = parse(text, format).map_err(|list| Diagnostics::new(file_name, text, list))?;
    if format != SourceFormat::Yaml {
        unquote_presence_words(&mut tree);
    }
    let policy =
        crate::read::read_policy(&tree).map_err(|list| Diagnostics::new(file_name, text, list))?;
    let warnings = Warnings::new(file_name, text, crate::warn::find_warnings(&policy));
    Ok((policy, warnings))
}

/// Reads and checks a policy file. The file extension selects the format.
///
/// # Errors
/// The file is unreadable, not UTF-8, or not a valid policy.
pub fn load_path(path: &Path) -> Result<Policy, Diagnostics> {
    load_bytes(read_path(path)?, path)
}

/// Checks a policy from the bytes of its file. The file extension selects the format.
///
/// # Errors
/// The bytes are not UTF-8, or not a valid policy.
pub fn load_bytes(bytes: Vec<u8>, path: &Path) -> Result<Policy, Diagnostics> {
    let name = path.display().to_string();
    let Some(format) = SourceFormat::from_path(path) else {
        return Err(file_error(
            &name,
            "unknown file extension",
            "use `.yaml`, `.toml` or `.json`",
        ));
    };
    load(&decode_utf8(bytes, &name)?, &name, format)
}

/// Reads the bytes of a policy file.
///
/// # Errors
/// The file is unreadable, not a regular file, or larger than [`MAX_BYTES`].
pub fn read_path(path: &Path) -> Result<Vec<u8>, Diagnostics> {
    let name = path.display().to_string();
    let max = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
    read_regular(path, max).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => too_large(&name),
        _ => unreadable(&name, &error),
    })
}

/// Reads the text of a policy file. Messages use `name` for the file.
///
/// # Errors
/// The file is unreadable, larger than [`MAX_BYTES`], or not UTF-8.
pub fn read_text(file: impl Read, name: &str) -> Result<String, Diagnostics> {
    decode_utf8(read_bytes(file, name)?, name)
}

fn read_bytes(file: impl Read, name: &str) -> Result<Vec<u8>, Diagnostics> {
    let mut bytes = Vec::new();
    // Reads one byte more than the maximum, to detect larger files.
    let max = u64::try_from(MAX_BYTES)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    file.take(max)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(name, &error))?;
    if bytes.len() > MAX_BYTES {
        return Err(too_large(name));
    }
    Ok(bytes)
}

/// Decodes the bytes of a file. Messages use `name` for the file.
///
/// # Errors
/// The bytes are not UTF-8.
pub fn decode_utf8(bytes: Vec<u8>, name: &str) -> Result<String, Diagnostics> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let before = error.as_bytes().get(..at).unwrap_or_default();
        let line = before.split(|byte| *byte == b'\n').count();
        file_error(
            name,
            format!(
                "the file is not UTF-8: byte {} on line {line} is invalid",
                at + 1
            ),
            "save it as UTF-8",
        )
    })
}

fn too_large(name: &str) -> Diagnostics {
    file_error(
        name,
        format!("the file has more than {MAX_BYTES} bytes"),
        "split the policy, or move long lists of values out of it",
    )
}

fn unreadable(name: &str, error: &std::io::Error) -> Diagnostics {
    file_error(
        name,
        format!("the file cannot be read: {error}"),
        "check its path and permissions",
    )
}

/// A diagnostic about the file as a whole.
fn file_error(name: &str, message: impl Into<String>, help: &str) -> Diagnostics {
    Diagnostics::new(
        name,
        "",
        vec![Diagnostic::new(SourceLocation::default(), message, help)],
    )
}

/// In YAML `absent` is a keyword and `"absent"` is a text. JSON and TOML have only quoted texts, so `present` and
/// `absent` are keywords there. The text itself can be matched as a list with one value.
fn unquote_presence_words(node: &mut SourceNode) {
    match &mut node.value {
        SourceValue::Null | SourceValue::Scalar { .. } => {}
        SourceValue::List(nodes) => nodes.iter_mut().for_each(unquote_presence_words),
        SourceValue::Map(entries) => {
            for entry in entries {
                match &mut entry.value.value {
                    SourceValue::Scalar { text, quoted }
                        if matches!(&**text, "present" | "absent") =>
                    {
                        *quoted = false;
                    }
                    _ => unquote_presence_words(&mut entry.value),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that is deleted at the end of the test.
    struct TempFile(std::path::PathBuf);

    impl TempFile {
        fn new(name: &str, bytes: &[u8]) -> Self {
            let path = std::env::temp_dir().join(format!("tollgate-{}-{name}", std::process::id()));
            std::fs::write(&path, bytes).unwrap();
            Self(path)
        }

        fn refusal(&self) -> String {
            load_path(&self.0).unwrap_err().list[0].message.to_string()
        }
    }

    impl Drop for TempFile {
        fn drop(&mut self) {
            std::fs::remove_file(&self.0).unwrap();
        }
    }

    #[test]
    fn the_file_extension_selects_the_format() {
        let yaml = TempFile::new("a.yaml", b"limits: [{ name: a, rate: 1/s }]");
        let json = TempFile::new(
            "a.json",
            br#"{ "limits": [{ "name": "a", "rate": "1/s" }] }"#,
        );
        assert_eq!(load_path(&yaml.0).unwrap(), load_path(&json.0).unwrap());
        let unknown = TempFile::new("a.conf", b"limits: []");
        assert_eq!(unknown.refusal(), "unknown file extension");
    }

    #[test]
    fn a_file_that_is_not_utf8_is_rejected_with_the_first_invalid_byte() {
        let file = TempFile::new("latin.yaml", b"limits:\n  - name: caf\xe9\n");
        assert_eq!(
            file.refusal(),
            "the file is not UTF-8: byte 22 on line 2 is invalid"
        );
    }

    #[test]
    fn s_41_an_empty_or_half_written_file_is_refused() {
        for text in [
            "",
            "\n",
            "---\n",
            "# soon\n",
            "limits:\n",
            "limits:\n  - name: a\n",
            "limits: [",
            "mode: off\n",
        ] {
            let file = TempFile::new("half.yaml", text.as_bytes());
            assert!(load_path(&file.0).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_file_above_the_maximum_size_is_rejected_without_reading_all_of_it() {
        let file = TempFile::new("large.yaml", &vec![b'#'; MAX_BYTES + 1]);
        assert!(file.refusal().contains("more than 1048576 bytes"));
        let missing = load_path(Path::new("/nowhere/policy.yaml")).unwrap_err();
        assert!(missing.list[0].message.contains("cannot be read"));
    }

    #[test]
    fn presence_is_a_keyword_in_every_format_and_a_text_in_a_list() {
        let yaml = |test: &str| {
            let text = format!("limits: [{{ name: a, rate: 1/s, match: {{ header.x: {test} }} }}]");
            load(&text, "a.yaml", SourceFormat::Yaml).unwrap()
        };
        let json = |test: &str| {
            let text = format!(
                r#"{{ "limits": [{{ "name": "a", "rate": "1/s", "match": {{ "header.x": {test} }} }}] }}"#
            );
            load(&text, "a.json", SourceFormat::Json).unwrap()
        };
        assert_eq!(yaml("absent"), json(r#""absent""#));
        assert_eq!(yaml("{ present: false }"), yaml("absent"));
        assert_eq!(yaml(r#""absent""#), json(r#"["absent"]"#));
        assert_ne!(yaml("absent"), yaml(r#""absent""#));
    }
}

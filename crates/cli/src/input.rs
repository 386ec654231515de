//! Reads the files named on the command line and detects their kind: policy, envoyproxy/ratelimit, or tests.
//!
//! Must not know: what a policy means.

use std::fs::File;
use std::path::{Path, PathBuf};

use tollgate_policy::read_text;
use tollgate_policy::source::{
    Diagnostic, Diagnostics, SourceFormat, SourceLocation, SourceNode, SourceValue, parse,
};

/// The file name that means stdin.
const STDIN: &str = "-";

/// The value of `--format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum FormatArgument {
    Yaml,
    Toml,
    Json,
}

impl From<FormatArgument> for SourceFormat {
    fn from(format: FormatArgument) -> Self {
        match format {
            FormatArgument::Yaml => Self::Yaml,
            FormatArgument::Toml => Self::Toml,
            FormatArgument::Json => Self::Json,
        }
    }
}

/// The flags about input files, for every command that reads policies.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct InputOptions {
    /// Format of the files. Default: by file extension; stdin is YAML
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<FormatArgument>,
    /// Read the files in the format of envoyproxy/ratelimit. Default: only files with a top-level `domain:`
    #[arg(long)]
    envoy: bool,
}

impl InputOptions {
    /// Detects format and kind from the file.
    pub(crate) const DEFAULT: Self = Self {
        format: None,
        envoy: false,
    };
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// A Tollgate policy.
    Policy,
    /// Limits in the format of envoyproxy/ratelimit.
    Envoy,
    /// Policy tests.
    Tests,
}

impl FileKind {
    /// The name in JSON output.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Envoy => "envoy",
            Self::Tests => "tests",
        }
    }
}

/// A file and its text.
#[derive(Debug)]
pub(crate) struct SourceFile {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) format: SourceFormat,
    pub(crate) kind: FileKind,
}

/// Reads a file.
pub(crate) fn read(path: &Path, options: InputOptions) -> Result<SourceFile, Diagnostics> {
    let is_stdin = path == Path::new(STDIN);
    let name = if is_stdin {
        "<stdin>".to_owned()
    } else {
        path.display().to_string()
    };
    if path.is_dir() {
        return Err(file_problem(
            &name,
            "it is a directory",
            format!(
                "name the files in it: `{}/*.yaml`",
                name.trim_end_matches('/')
            ),
        ));
    }
    let by_name = || match is_stdin {
        true => Some(SourceFormat::Yaml),
        false => SourceFormat::from_path(path),
    };
    let Some(format) = options.format.map(SourceFormat::from).or_else(by_name) else {
        return Err(file_problem(
            &name,
            "the file extension does not say the format",
            "use the extension `.yaml`, `.toml` or `.json`, or pass `--format`",
        ));
    };
    let text = if is_stdin {
        read_text(std::io::stdin().lock(), &name)?
    } else {
        let file = File::open(path).map_err(|error| {
            file_problem(
                &name,
                format!("the file cannot be read: {error}"),
                "check its path and permissions",
            )
        })?;
        read_text(file, &name)?
    };
    let kind = if options.envoy {
        FileKind::Envoy
    } else {
        detect_kind(&text, format)
    };
    if kind == FileKind::Envoy && format != SourceFormat::Yaml {
        return Err(file_problem(
            &name,
            "files of envoyproxy/ratelimit are YAML",
            "rewrite it as YAML, or pass `--format yaml` if it is YAML",
        ));
    }
    Ok(SourceFile {
        name,
        text,
        format,
        kind,
    })
}

/// Detects the kind of a file by its top-level fields. A file that cannot be parsed counts as a policy, so that the policy
/// reader reports the problem.
fn detect_kind(text: &str, format: SourceFormat) -> FileKind {
    let tree = parse(text, format).ok();
    let has = |name| {
        tree.as_ref()
            .is_some_and(|tree| has_top_level_field(tree, name))
    };
    if has("domain") && !has("limits") {
        FileKind::Envoy
    } else if has("tests") {
        FileKind::Tests
    } else {
        FileKind::Policy
    }
}

fn has_top_level_field(tree: &SourceNode, name: &str) -> bool {
    match &tree.value {
        SourceValue::Map(entries) => entries.iter().any(|entry| &*entry.name.value == name),
        _ => false,
    }
}

/// A problem with a whole file.
pub(crate) fn file_problem(
    name: &str,
    message: impl Into<String>,
    help: impl Into<String>,
) -> Diagnostics {
    let nowhere = SourceLocation::default();
    Diagnostics::new(name, "", vec![Diagnostic::new(nowhere, message, help)])
}

/// Resolves a path relative to the folder of the file that names it.
pub(crate) fn resolve_beside(file: &Path, named: &str) -> PathBuf {
    match file.parent() {
        Some(folder) => folder.join(named),
        None => PathBuf::from(named),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_a_file_follows_from_its_top_level_fields() {
        let cases = [
            ("domain: edge\ndescriptors: []", FileKind::Envoy),
            ("limits: []", FileKind::Policy),
            ("limits: []\ndomain: edge", FileKind::Policy),
            ("policy: a.yaml\ntests: []", FileKind::Tests),
            ("tests: []", FileKind::Tests),
            ("limits: [", FileKind::Policy),
            ("domain", FileKind::Policy),
        ];
        for (text, kind) in cases {
            assert_eq!(detect_kind(text, SourceFormat::Yaml), kind, "{text}");
        }
    }

    #[test]
    fn a_path_is_resolved_from_the_folder_of_the_file_that_names_it() {
        let file = Path::new("policies/a.test.yaml");
        assert_eq!(resolve_beside(file, "a.yaml"), Path::new("policies/a.yaml"));
        assert_eq!(
            resolve_beside(file, "/etc/a.yaml"),
            Path::new("/etc/a.yaml")
        );
        assert_eq!(
            resolve_beside(Path::new("a.test.yaml"), "a.yaml"),
            Path::new("a.yaml")
        );
    }
}

//! Files named on the command line: read, and told apart by what they say.
//!
//! Must not know: what a policy means.

use std::fs::File;
use std::path::{Path, PathBuf};

use tollgate_policy::read_text;
use tollgate_policy::source::{
    Diagnostic, Diagnostics, SourceFormat, SourceLocation, SourceNode, SourceValue, parse,
};

/// The name of a file that stands for stdin.
const STDIN: &str = "-";

/// How a file is written, where its name does not say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum FormatArgument {
    Yaml,
    Toml,
    Json,
}

impl From<FormatArgument> for SourceFormat {
    fn from(written: FormatArgument) -> Self {
        match written {
            FormatArgument::Yaml => Self::Yaml,
            FormatArgument::Toml => Self::Toml,
            FormatArgument::Json => Self::Json,
        }
    }
}

/// What is asked about files, by every command that reads policies.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct InputOptions {
    /// How files are written; by default their endings say so, and stdin is YAML
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<FormatArgument>,
    /// Take files as those of envoyproxy/ratelimit; by default those with a top-level `domain:`
    #[arg(long)]
    envoy: bool,
}

impl InputOptions {
    /// The file's own ending decides.
    pub(crate) const DEFAULT: Self = Self {
        format: None,
        envoy: false,
    };
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// A policy of ours.
    Policy,
    /// Limits of envoyproxy/ratelimit, by the flag or by what it says.
    Envoy,
    /// Tests of a policy.
    Tests,
}

impl FileKind {
    /// For programs.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Envoy => "envoy",
            Self::Tests => "tests",
        }
    }
}

/// A file and what it says.
#[derive(Debug)]
pub(crate) struct SourceFile {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) format: SourceFormat,
    pub(crate) kind: FileKind,
}

/// Reads a file.
pub(crate) fn read(path: &Path, how: InputOptions) -> Result<SourceFile, Diagnostics> {
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
    let Some(format) = how.format.map(SourceFormat::from).or_else(by_name) else {
        return Err(file_problem(
            &name,
            "the name of the file does not say how it is written",
            "name it with the ending `.yaml`, `.toml` or `.json`, or say `--format`",
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
    let kind = if how.envoy {
        FileKind::Envoy
    } else {
        detect_kind(&text, format)
    };
    if kind == FileKind::Envoy && format != SourceFormat::Yaml {
        return Err(file_problem(
            &name,
            "files of envoyproxy/ratelimit are YAML",
            "rewrite it as YAML, or say `--format yaml` if it is",
        ));
    }
    Ok(SourceFile {
        name,
        text,
        format,
        kind,
    })
}

/// What a file is, by the names it has at the top. A file that cannot be read as a tree is taken for a policy, whose
/// reader says what is wrong with it.
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

/// Something is wrong with a file as a whole.
pub(crate) fn file_problem(
    name: &str,
    message: impl Into<String>,
    help: impl Into<String>,
) -> Diagnostics {
    let nowhere = SourceLocation::default();
    Diagnostics::new(name, "", vec![Diagnostic::new(nowhere, message, help)])
}

/// A file that another file names, looked for beside it.
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
    fn files_are_told_apart_by_their_names_at_the_top() {
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
    fn a_file_is_looked_for_beside_the_one_that_names_it() {
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

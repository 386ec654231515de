//! Files named on the command line: read, and told apart by what they say.
//!
//! Must not know: what a policy means.

use std::fs::File;
use std::path::{Path, PathBuf};

use tollgate_policy::read_text;
use tollgate_policy::source::{
    Diagnostic, Problems, SourceFormat, SourceLocation, SourceNode, SourceValue, parse,
};

/// The name of a file that stands for stdin.
const STDIN: &str = "-";

/// How a file is written, where its name does not say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Written {
    Yaml,
    Toml,
    Json,
}

impl From<Written> for SourceFormat {
    fn from(written: Written) -> Self {
        match written {
            Written::Yaml => Self::Yaml,
            Written::Toml => Self::Toml,
            Written::Json => Self::Json,
        }
    }
}

/// What is asked about files, by every command that reads policies.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct How {
    /// How files are written; by default their endings say so, and stdin is YAML
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Written>,
    /// Take files as those of envoyproxy/ratelimit; by default those with a top-level `domain:`
    #[arg(long)]
    envoy: bool,
}

impl How {
    /// The file's own ending decides.
    pub(crate) const BY_NAME: Self = Self {
        format: None,
        envoy: false,
    };
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A policy of ours.
    Policy,
    /// Limits of envoyproxy/ratelimit, by the flag or by what it says.
    Envoy,
    /// Tests of a policy.
    Tests,
}

impl Kind {
    /// For programs.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Envoy => "envoy",
            Self::Tests => "tests",
        }
    }
}

/// A file and what it says.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) format: SourceFormat,
    pub(crate) kind: Kind,
}

/// Reads a file.
pub(crate) fn read(path: &Path, how: How) -> Result<Source, Problems> {
    let is_stdin = path == Path::new(STDIN);
    let name = if is_stdin {
        "<stdin>".to_owned()
    } else {
        path.display().to_string()
    };
    if path.is_dir() {
        return Err(refused(
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
        false => SourceFormat::of_path(path),
    };
    let Some(format) = how.format.map(SourceFormat::from).or_else(by_name) else {
        return Err(refused(
            &name,
            "the name of the file does not say how it is written",
            "name it with the ending `.yaml`, `.toml` or `.json`, or say `--format`",
        ));
    };
    let text = if is_stdin {
        read_text(std::io::stdin().lock(), &name)?
    } else {
        let file = File::open(path).map_err(|error| {
            refused(
                &name,
                format!("the file cannot be read: {error}"),
                "check its path and permissions",
            )
        })?;
        read_text(file, &name)?
    };
    let kind = if how.envoy {
        Kind::Envoy
    } else {
        kind_of(&text, format)
    };
    if kind == Kind::Envoy && format != SourceFormat::Yaml {
        return Err(refused(
            &name,
            "files of envoyproxy/ratelimit are YAML",
            "rewrite it as YAML, or say `--format yaml` if it is",
        ));
    }
    Ok(Source {
        name,
        text,
        format,
        kind,
    })
}

/// What a file is, by the names it has at the top. A file that cannot be read as a tree is taken for a policy, whose
/// reader says what is wrong with it.
fn kind_of(text: &str, format: SourceFormat) -> Kind {
    let tree = parse(text, format).ok();
    let has = |name| tree.as_ref().is_some_and(|tree| has_name(tree, name));
    if has("domain") && !has("limits") {
        Kind::Envoy
    } else if has("tests") {
        Kind::Tests
    } else {
        Kind::Policy
    }
}

fn has_name(tree: &SourceNode, name: &str) -> bool {
    match &tree.value {
        SourceValue::Map(entries) => entries.iter().any(|entry| &*entry.name.value == name),
        _ => false,
    }
}

/// Something is wrong with a file as a whole.
pub(crate) fn refused(name: &str, message: impl Into<String>, help: impl Into<String>) -> Problems {
    let nowhere = SourceLocation::default();
    Problems::new(name, "", vec![Diagnostic::new(nowhere, message, help)])
}

/// A file that another file names, looked for beside it.
pub(crate) fn beside(file: &Path, named: &str) -> PathBuf {
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
            ("domain: edge\ndescriptors: []", Kind::Envoy),
            ("limits: []", Kind::Policy),
            ("limits: []\ndomain: edge", Kind::Policy),
            ("policy: a.yaml\ntests: []", Kind::Tests),
            ("tests: []", Kind::Tests),
            ("limits: [", Kind::Policy),
            ("domain", Kind::Policy),
        ];
        for (text, kind) in cases {
            assert_eq!(kind_of(text, SourceFormat::Yaml), kind, "{text}");
        }
    }

    #[test]
    fn a_file_is_looked_for_beside_the_one_that_names_it() {
        let file = Path::new("policies/a.test.yaml");
        assert_eq!(beside(file, "a.yaml"), Path::new("policies/a.yaml"));
        assert_eq!(beside(file, "/etc/a.yaml"), Path::new("/etc/a.yaml"));
        assert_eq!(
            beside(Path::new("a.test.yaml"), "a.yaml"),
            Path::new("a.yaml")
        );
    }
}

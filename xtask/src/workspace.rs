//! What cargo says about this workspace: its packages, what they depend on, and their test binaries.
//!
//! Reads `cargo metadata` and nothing else; judges nothing.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::process;

/// The workspace as cargo sees it.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) packages: Vec<Package>,
}

/// One member of the workspace.
pub(crate) struct Package {
    pub(crate) name: String,
    /// Relative to the workspace root, with forward slashes.
    pub(crate) folder: String,
    pub(crate) dependencies: Vec<Dependency>,
    /// Names of the integration test binaries.
    pub(crate) test_binaries: Vec<String>,
}

/// One line under some `[dependencies]`.
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Whether it is a folder of ours rather than a published crate.
    pub(crate) is_local: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Build,
    Dev,
}

impl Workspace {
    /// Asks cargo.
    pub(crate) fn load() -> Result<Self, String> {
        let (json, _) = process::capture(process::cargo().args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
        ]))?;
        Self::parse(&json)
    }

    pub(crate) fn has(&self, package: &str) -> bool {
        self.packages.iter().any(|known| known.name == package)
    }

    fn parse(json: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(json)
            .map_err(|error| format!("cargo metadata is not JSON: {error}"))?;
        let root = PathBuf::from(text(&value, "workspace_root")?);
        let packages = list(&value, "packages")?
            .iter()
            .map(|package| Package::parse(package, &root))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            target: PathBuf::from(text(&value, "target_directory")?),
            root,
            packages,
        })
    }
}

impl Package {
    fn parse(value: &Value, root: &Path) -> Result<Self, String> {
        let manifest = PathBuf::from(text(value, "manifest_path")?);
        let folder = manifest
            .parent()
            .and_then(|folder| folder.strip_prefix(root).ok())
            .ok_or_else(|| format!("{} lies outside the workspace", manifest.display()))?;
        let mut test_binaries = Vec::new();
        for target in list(value, "targets")? {
            if list(target, "kind")?.iter().any(|kind| kind == "test") {
                test_binaries.push(text(target, "name")?.to_owned());
            }
        }
        Ok(Self {
            name: text(value, "name")?.to_owned(),
            folder: folder.to_string_lossy().replace('\\', "/"),
            dependencies: list(value, "dependencies")?
                .iter()
                .map(Dependency::parse)
                .collect::<Result<_, _>>()?,
            test_binaries,
        })
    }
}

impl Dependency {
    fn parse(value: &Value) -> Result<Self, String> {
        let kind = match value.get("kind").and_then(Value::as_str) {
            None => Kind::Normal,
            Some("build") => Kind::Build,
            Some("dev") => Kind::Dev,
            Some(other) => {
                return Err(format!("cargo metadata has a dependency of kind `{other}`"));
            }
        };
        Ok(Self {
            name: text(value, "name")?.to_owned(),
            kind,
            is_local: value.get("path").is_some_and(Value::is_string),
        })
    }
}

fn text<'a>(value: &'a Value, field: &str) -> Result<&'a str, String> {
    value
        .get(field)
        .and_then(Value::as_str)
        .ok_or_else(|| format!("cargo metadata lacks the text `{field}`"))
}

fn list<'a>(value: &'a Value, field: &str) -> Result<&'a [Value], String> {
    value
        .get(field)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .ok_or_else(|| format!("cargo metadata lacks the list `{field}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_becomes_folders_kinds_and_test_binaries() {
        let json = r#"{"workspace_root": "/r", "target_directory": "/t", "packages": [{
            "name": "a", "manifest_path": "/r/crates/a/Cargo.toml",
            "dependencies": [
                {"name": "b", "kind": null, "path": "/r/crates/b"},
                {"name": "c", "kind": "dev"},
                {"name": "d", "kind": "build"}],
            "targets": [{"kind": ["lib"], "name": "a"}, {"kind": ["test"], "name": "spec"}]}]}"#;
        let workspace = Workspace::parse(json).unwrap();
        assert!(workspace.has("a") && !workspace.has("b"));
        let package = &workspace.packages[0];
        assert_eq!(package.folder, "crates/a");
        assert_eq!(package.test_binaries, ["spec"]);
        let seen: Vec<_> = package
            .dependencies
            .iter()
            .map(|d| (d.name.as_str(), d.kind, d.is_local))
            .collect();
        assert_eq!(
            seen,
            [
                ("b", Kind::Normal, true),
                ("c", Kind::Dev, false),
                ("d", Kind::Build, false)
            ]
        );
    }

    #[test]
    fn what_cargo_would_never_say_is_an_error() {
        for json in ["", "{}", r#"{"workspace_root": 3}"#] {
            assert!(Workspace::parse(json).is_err(), "{json}");
        }
    }
}

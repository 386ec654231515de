//! Which crates a release is made of, as CycloneDX, with their checksums and licences.
//!
//! `cargo tree` says what is linked for a target: `cargo metadata` switches on features of all members of the workspace together,
//! and names crates that no release has. Must not know: where the bill goes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::process::{capture, cargo};

/// The package that has the program.
const ROOT: &str = "tollgate-cli";

/// Everything that is linked into the program, by name and version.
pub(crate) struct BillOfMaterials {
    /// The version of glibc, if the program was linked with it just now.
    pub(crate) glibc: Option<String>,
    packages: BTreeMap<NameAndVersion, LinkedPackage>,
}

type NameAndVersion = (String, String);

#[derive(Debug, Default)]
struct LinkedPackage {
    licence: Option<String>,
    /// The SHA-256 in the lock file; none for packages of this repository.
    checksum: Option<String>,
    folder: PathBuf,
    dependencies: BTreeSet<NameAndVersion>,
}

impl BillOfMaterials {
    /// Asks cargo.
    pub(crate) fn load(repository: &Path, target: &str) -> Result<Self, String> {
        let (tree, _) = capture(
            cargo()
                .args(["tree", "--locked", "--package", ROOT, "--target", target])
                .args(["--edges", "normal", "--prefix", "none", "--format", "{p}"]),
        )?;
        let (metadata, _) = capture(
            cargo()
                .args(["metadata", "--locked", "--format-version", "1"])
                .args(["--filter-platform", target]),
        )?;
        let lock = repository.join("Cargo.lock");
        let lock = fs::read_to_string(&lock).map_err(|error| format!("Cargo.lock: {error}"))?;
        Self::parse(&tree, &metadata, &lock)
    }

    fn parse(tree: &str, metadata: &str, lock: &str) -> Result<Self, String> {
        let metadata: Value = serde_json::from_str(metadata)
            .map_err(|error| format!("cargo metadata is not JSON: {error}"))?;
        let linked: BTreeSet<NameAndVersion> = tree.lines().filter_map(tree_line).collect();
        let checksums = checksums(lock);
        let mut names = BTreeMap::new();
        let mut packages = BTreeMap::new();
        for package in list(&metadata, &["packages"]) {
            let key = (text(package, "name"), text(package, "version"));
            if !linked.contains(&key) {
                continue;
            }
            names.insert(text(package, "id"), key.clone());
            let manifest = PathBuf::from(text(package, "manifest_path"));
            let found = LinkedPackage {
                licence: package
                    .get("license")
                    .and_then(Value::as_str)
                    .map(spdx_expression),
                checksum: checksums.get(&key).cloned(),
                folder: manifest.parent().map(PathBuf::from).unwrap_or_default(),
                dependencies: BTreeSet::new(),
            };
            packages.insert(key, found);
        }
        if let Some((name, version)) = linked.iter().find(|key| !packages.contains_key(*key)) {
            return Err(format!("cargo metadata does not know {name} {version}"));
        }
        for node in list(&metadata, &["resolve", "nodes"]) {
            let Some(package) = names
                .get(&text(node, "id"))
                .and_then(|key| packages.get_mut(key))
            else {
                continue;
            };
            let of = list(node, &["dependencies"]);
            let of = of.iter().filter_map(|id| names.get(id.as_str()?));
            package.dependencies.extend(of.cloned());
        }
        Ok(Self {
            glibc: None,
            packages,
        })
    }

    /// The bill in CycloneDX 1.5. It has no time and no serial number: the same sources give the same bill.
    pub(crate) fn render(&self) -> Result<String, String> {
        let is_root = |key: &&NameAndVersion| key.0 == ROOT;
        let root = self.packages.keys().find(is_root);
        let root = root.ok_or_else(|| format!("{ROOT} is not linked"))?;
        let glibc = self.glibc.iter().map(|version| {
            let licences = json!([{"expression": "LGPL-2.1-or-later"}]);
            json!({"type": "library", "bom-ref": "glibc", "name": "glibc", "version": version, "licenses": licences})
        });
        let components: Vec<Value> = self
            .packages
            .iter()
            .filter(|(key, _)| *key != root)
            .map(|(key, package)| component(key, package, "library"))
            .chain(glibc)
            .collect();
        let dependencies: Vec<Value> = self
            .packages
            .iter()
            .map(|(key, package)| {
                let on: Vec<String> = package.dependencies.iter().map(package_url).collect();
                json!({"ref": package_url(key), "dependsOn": on})
            })
            .collect();
        let program = self
            .packages
            .get(root)
            .map(|package| component(root, package, "application"));
        let bill = json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {"component": program},
            "components": components,
            "dependencies": dependencies,
        });
        let text = serde_json::to_string_pretty(&bill).map_err(|error| error.to_string())?;
        Ok(text + "\n")
    }

    /// The licence texts that come with each crate of others.
    pub(crate) fn licence_files(&self) -> Result<Vec<(String, Vec<PathBuf>)>, String> {
        let mut found = Vec::new();
        for ((name, version), package) in &self.packages {
            if package.checksum.is_none() {
                continue;
            }
            let entries = fs::read_dir(&package.folder)
                .map_err(|error| format!("{}: {error}", package.folder.display()))?;
            let mut files = Vec::new();
            for entry in entries {
                let path = entry.map_err(|error| error.to_string())?.path();
                let is_licence = path.file_name().is_some_and(|name| {
                    let name = name.to_string_lossy().to_uppercase();
                    [
                        "LICENSE",
                        "LICENCE",
                        "COPYING",
                        "COPYRIGHT",
                        "NOTICE",
                        "UNLICENSE",
                    ]
                    .iter()
                    .any(|start| name.starts_with(start))
                });
                if is_licence && path.is_file() {
                    files.push(path);
                }
            }
            found.push((format!("{name}-{version}"), files));
        }
        Ok(found)
    }
}

/// The name and version in a line such as `ring v0.17.14` or `serde_derive v1.0.0 (proc-macro) (*)`.
fn tree_line(line: &str) -> Option<NameAndVersion> {
    let mut words = line.split(' ');
    let name = words.next()?;
    let version = words.next()?.strip_prefix('v')?;
    Some((name.to_owned(), version.to_owned()))
}

/// The checksums in a lock file.
fn checksums(lock: &str) -> BTreeMap<NameAndVersion, String> {
    let field = |block: &str, name: &str| {
        let start = format!("{name} = \"");
        let line = block.lines().find_map(|line| line.strip_prefix(&start))?;
        line.strip_suffix('"').map(str::to_owned)
    };
    lock.split("[[package]]")
        .filter_map(|block| {
            let key = (field(block, "name")?, field(block, "version")?);
            Some((key, field(block, "checksum")?))
        })
        .collect()
}

/// Old crates write `MIT/Apache-2.0`, which SPDX does not know.
fn spdx_expression(licence: &str) -> String {
    let names: Vec<&str> = licence.split('/').map(str::trim).collect();
    names.join(" OR ")
}

fn package_url((name, version): &NameAndVersion) -> String {
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

fn component(key: &NameAndVersion, package: &LinkedPackage, kind: &str) -> Value {
    let url = package_url(key);
    let mut component = json!({
        "type": kind, "bom-ref": url, "purl": url, "name": key.0, "version": key.1,
    });
    let more = [
        (
            "licenses",
            package
                .licence
                .as_ref()
                .map(|licence| json!([{"expression": licence}])),
        ),
        (
            "hashes",
            package
                .checksum
                .as_ref()
                .map(|sum| json!([{"alg": "SHA-256", "content": sum}])),
        ),
    ];
    if let Some(fields) = component.as_object_mut() {
        let more = more.into_iter();
        fields.extend(more.filter_map(|(name, value)| Some((name.to_owned(), value?))));
    }
    component
}

fn text(value: &Value, field: &str) -> String {
    let text = value.get(field).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

fn list<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    let found = path.iter().try_fold(value, |value, field| value.get(field));
    found.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str =
        "tollgate-cli v0.1.0 (/r/crates/cli)\nring v0.17.14\nfnv v1.0.7+x\nring v0.17.14 (*)\n";
    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"fnv\"\nversion = \"1.0.7+x\"\nchecksum = \"3f\"\n\n\
                        [[package]]\nname = \"ring\"\nversion = \"0.17.14\"\nchecksum = \"a4\"\n\n\
                        [[package]]\nname = \"tollgate-cli\"\nversion = \"0.1.0\"\n";

    fn metadata() -> String {
        let package = |name: &str, version: &str, licence: &str| {
            json!({"id": name, "name": name, "version": version, "license": licence,
                   "manifest_path": format!("/r/{name}/Cargo.toml")})
        };
        json!({
            "packages": [
                package("tollgate-cli", "0.1.0", "MIT OR Apache-2.0"),
                package("ring", "0.17.14", "Apache-2.0 AND ISC"),
                package("fnv", "1.0.7+x", "Apache-2.0 / MIT"),
                package("proptest", "1.0.0", "MIT"),
            ],
            "resolve": {"nodes": [
                {"id": "tollgate-cli", "dependencies": ["ring", "fnv", "proptest"]},
            ]},
        })
        .to_string()
    }

    #[test]
    fn the_bill_names_what_is_linked_with_licence_and_checksum() {
        let mut bill = BillOfMaterials::parse(TREE, &metadata(), LOCK).unwrap();
        assert!(!bill.render().unwrap().contains("glibc"));
        bill.glibc = Some("2.36".to_owned());
        let rendered = bill.render().unwrap();
        assert!(!rendered.contains("proptest"), "only tests use it");
        let bill: Value = serde_json::from_str(&rendered).unwrap();
        assert_eq!(bill["metadata"]["component"]["name"], "tollgate-cli");
        assert_eq!(
            bill["components"][0],
            json!({"type": "library", "name": "fnv", "version": "1.0.7+x",
                   "purl": "pkg:cargo/fnv@1.0.7%2Bx", "bom-ref": "pkg:cargo/fnv@1.0.7%2Bx",
                   "licenses": [{"expression": "Apache-2.0 OR MIT"}],
                   "hashes": [{"alg": "SHA-256", "content": "3f"}]})
        );
        assert_eq!(bill["components"][2]["name"], "glibc");
        assert_eq!(
            bill["dependencies"][2],
            json!({"ref": "pkg:cargo/tollgate-cli@0.1.0",
                   "dependsOn": ["pkg:cargo/fnv@1.0.7%2Bx", "pkg:cargo/ring@0.17.14"]})
        );
    }

    #[test]
    fn a_crate_that_metadata_does_not_know_is_an_error() {
        let tree = format!("{TREE}serde v9.9.9\n");
        let bill = BillOfMaterials::parse(&tree, &metadata(), LOCK).map(drop);
        assert!(bill.unwrap_err().contains("serde 9.9.9"));
        assert!(BillOfMaterials::parse("", "", LOCK).is_err());
        let empty = BillOfMaterials::parse("", &metadata(), LOCK).unwrap();
        assert!(empty.render().is_err(), "a release without its program");
    }
}

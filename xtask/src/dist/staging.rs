//! The files of a release, laid out as they lie under `/usr`.
//!
//! Asks the program itself for its manual pages and completions, so that they cannot be of another version. Must not know: how the
//! archive is made.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::bill_of_materials::BillOfMaterials;
use crate::process::{capture, run};

/// The program.
pub(crate) const PROGRAM: &str = "bin/tollgate";
/// What is to be read: this project's documents, licences, and the bill of materials.
pub(crate) const DOCUMENTS: &str = "share/doc/tollgate";
/// One page for each command.
const MANUAL: &str = "share/man/man1";

/// Files of the repository, and where each goes.
pub(crate) const FILES: &[(&str, &str)] = &[
    ("packaging/NOTICE", "share/doc/tollgate/NOTICE"),
    (
        "packaging/systemd/tollgate.service",
        "lib/systemd/system/tollgate.service",
    ),
    ("README.md", "share/doc/tollgate/README.md"),
    ("CHANGELOG.md", "share/doc/tollgate/CHANGELOG.md"),
    ("SECURITY.md", "share/doc/tollgate/SECURITY.md"),
    ("LICENSE-APACHE", "share/doc/tollgate/LICENSE-APACHE"),
    ("LICENSE-MIT", "share/doc/tollgate/LICENSE-MIT"),
    ("policies/demo.yaml", "share/doc/tollgate/policy.yaml"),
    (
        "examples/prometheus/alerts.yml",
        "share/doc/tollgate/prometheus/alerts.yml",
    ),
];

/// Shells, and where each looks for completions.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "share/bash-completion/completions/tollgate"),
    ("fish", "share/fish/vendor_completions.d/tollgate.fish"),
    ("zsh", "share/zsh/site-functions/_tollgate"),
];

/// Lays out everything anew in `folder`.
pub(crate) fn stage(
    repository: &Path,
    folder: &Path,
    binary: &Path,
    bill: &BillOfMaterials,
) -> Result<(), String> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| failed(folder, &error))?;
    }
    let program = folder.join(PROGRAM);
    copy(binary, &program)?;
    for (from, to) in FILES {
        copy(&repository.join(from), &folder.join(to))?;
    }
    for (shell, to) in COMPLETIONS {
        let (script, _) = capture(Command::new(&program).args(["completions", shell]))?;
        write(&folder.join(to), &script)?;
    }
    let manual = folder.join(MANUAL);
    fs::create_dir_all(&manual).map_err(|error| failed(&manual, &error))?;
    run(Command::new(&program).arg("man").arg(&manual))?;
    let documents = folder.join(DOCUMENTS);
    write(&documents.join("sbom.cdx.json"), &bill.render()?)?;
    for (name, files) in bill.licence_files()? {
        for file in files {
            let to = documents.join("licenses").join(&name);
            copy(&file, &to.join(file.file_name().unwrap_or_default()))?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let bytes = fs::read(from).map_err(|error| failed(from, &error))?;
    make_parent(to)?;
    fs::write(to, bytes).map_err(|error| failed(to, &error))?;
    let is_program = to.ends_with(PROGRAM);
    set_mode(to, if is_program { 0o755 } else { 0o644 })
}

fn write(to: &Path, text: &str) -> Result<(), String> {
    make_parent(to)?;
    fs::write(to, text).map_err(|error| failed(to, &error))
}

fn make_parent(of: &Path) -> Result<(), String> {
    let parent = of.parent().map(PathBuf::from).unwrap_or_default();
    fs::create_dir_all(&parent).map_err(|error| failed(&parent, &error))
}

#[cfg(unix)]
fn set_mode(of: &Path, mode: u32) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(of, fs::Permissions::from_mode(mode)).map_err(|error| failed(of, &error))
}

#[cfg(not(unix))]
fn set_mode(_of: &Path, _mode: u32) -> Result<(), String> {
    Ok(())
}

fn failed(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

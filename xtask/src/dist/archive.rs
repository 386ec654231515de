//! The archive of a release, its checksum, and a look at both as someone who installs them.
//!
//! Uses GNU tar, gzip and sha256sum: the same files give the same bytes. Must not know: which files a release has.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::staging::{DOCUMENTS, PROGRAM};
use crate::process::{capture, run, succeeds};

/// The time of every file, unless `SOURCE_DATE_EPOCH` says another: the first that every archive format can name.
const TIME: &str = "315532800";

/// What someone who installs a release looks for.
const EXPECTED: &[&str] = &[
    PROGRAM,
    "lib/systemd/system/tollgate.service",
    "share/bash-completion/completions/tollgate",
    "share/doc/tollgate/LICENSE-APACHE",
    "share/doc/tollgate/LICENSE-MIT",
    "share/doc/tollgate/README.md",
    "share/doc/tollgate/sbom.cdx.json",
    "share/fish/vendor_completions.d/tollgate.fish",
    "share/man/man1/tollgate-serve.1",
    "share/man/man1/tollgate.1",
    "share/zsh/site-functions/_tollgate",
];

/// Packs a folder under another name, and writes the checksum of the archive beside it.
pub(crate) fn pack(staged: &Path, folder: &Path, name: &str) -> Result<PathBuf, String> {
    let tar = folder.join(format!("{name}.tar"));
    let time = std::env::var("SOURCE_DATE_EPOCH").unwrap_or_else(|_unset| TIME.to_owned());
    run(Command::new("tar")
        .args([
            "--create",
            "--format=ustar",
            "--sort=name",
            "--mode=u=rwX,go=rX",
        ])
        .args(["--owner=0", "--group=0", "--numeric-owner"])
        .arg(format!("--mtime=@{time}"))
        .arg(format!("--transform=s,^\\.,{name},"))
        .arg("--file")
        .arg(&tar)
        .arg("--directory")
        .arg(staged)
        .arg("."))?;
    run(Command::new("gzip")
        .args(["--no-name", "--best", "--force"])
        .arg(&tar))?;
    let archive = folder.join(format!("{name}.tar.gz"));
    let line = format!("{}  {name}.tar.gz\n", checksum(&archive)?);
    let beside = checksum_file(&archive);
    fs::write(&beside, line).map_err(|error| format!("{}: {error}", beside.display()))?;
    Ok(archive)
}

/// The SHA-256 of a file.
pub(crate) fn checksum(of: &Path) -> Result<String, String> {
    let (line, _) = capture(Command::new("sha256sum").arg(of))?;
    let digest = line.split(' ').next().unwrap_or_default();
    Ok(digest.to_owned())
}

/// Does what someone who installs the release does: compares the checksum, unpacks, runs the program. Then it damages the archive
/// and removes it.
pub(crate) fn verify(archive: &Path, unpacked: &Path, version: &str) -> Result<(), String> {
    let folder = archive.parent().unwrap_or(archive);
    let sums = checksum_file(archive);
    run(Command::new("sha256sum")
        .arg("--check")
        .arg(&sums)
        .current_dir(folder))?;
    if unpacked.exists() {
        fs::remove_dir_all(unpacked).map_err(|error| format!("{}: {error}", unpacked.display()))?;
    }
    fs::create_dir_all(unpacked).map_err(|error| format!("{}: {error}", unpacked.display()))?;
    // As the guide says, only not into /usr.
    run(Command::new("tar")
        .arg("-xzf")
        .arg(archive)
        .arg("-C")
        .arg(unpacked)
        .arg("--strip-components=1"))?;
    if let Some(missing) = EXPECTED.iter().find(|file| !unpacked.join(file).is_file()) {
        return Err(format!("the archive lacks {missing}"));
    }
    let (said, _) = capture(Command::new(unpacked.join(PROGRAM)).arg("--version"))?;
    if said.trim() != format!("tollgate {version}") {
        return Err(format!("the program says `{}`, not {version}", said.trim()));
    }
    verify_bill(&unpacked.join(DOCUMENTS).join("sbom.cdx.json"))?;
    // A checker that cannot fail proves nothing: another byte must be noticed.
    let mut bytes = fs::read(archive).map_err(|error| error.to_string())?;
    bytes.push(0);
    fs::write(archive, bytes).map_err(|error| error.to_string())?;
    let is_accepted = succeeds(
        Command::new("sha256sum")
            .arg("--check")
            .arg(&sums)
            .current_dir(folder),
    );
    fs::remove_file(archive).map_err(|error| error.to_string())?;
    match is_accepted {
        true => Err("the checksum of a damaged archive is accepted".to_owned()),
        false => Ok(()),
    }
}

/// The bill names what is linked into the program, and nothing that only tests use.
fn verify_bill(path: &Path) -> Result<(), String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let bill: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let components = bill.get("components").and_then(Value::as_array);
    let names: Vec<&str> = components
        .into_iter()
        .flatten()
        .filter_map(|component| component.get("name")?.as_str())
        .collect();
    for (name, is_linked) in [("tollgate-core", true), ("ring", true), ("proptest", false)] {
        if names.contains(&name) != is_linked {
            return Err(format!("the bill of materials is wrong about {name}"));
        }
    }
    println!("{} components", names.len());
    Ok(())
}

fn checksum_file(archive: &Path) -> PathBuf {
    let mut name = archive.as_os_str().to_owned();
    name.push(".sha256");
    PathBuf::from(name)
}

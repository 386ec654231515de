//! Reading the repository's text files.
//!
//! Leaves out what is built, what is hidden and what is not text. Works without git, so that an unpacked archive can be
//! checked like a checkout.

use std::path::Path;

use super::File;

/// Folders that tools write. They are the ones in `.gitignore`.
const BUILT: &[&str] = &[
    "target",
    "artifacts",
    "coverage",
    "corpus",
    "mutants.out",
    "mutants.out.old",
];

/// Hidden folders that are ours.
const OURS: &[&str] = &[".cargo", ".ci", ".github"];

/// Larger than any text that people write; such a file is data.
const MOST_BYTES: u64 = 2 * 1024 * 1024;

pub(super) fn read(root: &Path) -> Result<Vec<File>, String> {
    let mut files = Vec::new();
    walk(root, "", &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn walk(folder: &Path, prefix: &str, files: &mut Vec<File>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", folder.display());
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        if kind.is_dir() && enters(&name) {
            walk(&entry.path(), &format!("{path}/"), files)?;
        } else if kind.is_file()
            && reads(&name)
            && entry.metadata().map_err(failed)?.len() <= MOST_BYTES
        {
            let bytes = std::fs::read(entry.path()).map_err(failed)?;
            files.extend(
                String::from_utf8(bytes)
                    .ok()
                    .map(|text| File { path, text }),
            );
        }
    }
    Ok(())
}

fn enters(folder: &str) -> bool {
    !BUILT.contains(&folder) && (!folder.starts_with('.') || OURS.contains(&folder))
}

/// Whether a file is a person's. `.git` is a file in a second work tree, and holds a path of the machine.
fn reads(name: &str) -> bool {
    name != ".git" && !name.starts_with("callgrind.out")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_and_foreign_hidden_folders_are_left_out() {
        assert!(enters("src") && enters(".ci") && enters(".github"));
        assert!(!enters("target") && !enters(".git") && !enters(".idea"));
        assert!(reads("Cargo.toml") && !reads(".git") && !reads("callgrind.out.77"));
    }

    #[test]
    fn this_file_is_found_under_its_own_name() {
        let files = read(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
        let this = files
            .iter()
            .find(|file| file.path == "src/conventions/files.rs")
            .unwrap();
        assert!(this.text.contains("this_file_is_found_under_its_own_name"));
    }
}

//! The house rules that clippy cannot see: sizes, headers, banned words, and documents that name what exists.
//!
//! Each rule is a function from files to complaints, so that it can be shown a bad file. Knows text, not Rust.

mod documents;
mod files;
mod source;

use crate::process;
use crate::workspace::Workspace;

/// A text file of the repository. The path is relative to the root, with forward slashes.
#[derive(Debug)]
struct File {
    path: String,
    text: String,
}

/// The command `check-house`.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    process::no_arguments("check-house", args)?;
    check_workspace()
}

/// Checks this repository and prints what was looked at, so that an empty check does not look like a passed one.
pub(crate) fn check_workspace() -> Result<(), String> {
    let files = files::read(&Workspace::load()?.root)?;
    let complaints = check(&files);
    if !complaints.is_empty() {
        return Err(format!(
            "{} house rules are broken:\n  {}",
            complaints.len(),
            complaints.join("\n  ")
        ));
    }
    let sources = files.iter().filter(|file| source::is_rust(file)).count();
    println!(
        "{sources} Rust files and {} others keep the house rules",
        files.len() - sources
    );
    Ok(())
}

fn check(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files {
        complaints.extend(source::check(file));
        complaints.extend(documents::machine_paths(file));
    }
    complaints.extend(documents::decisions_are_listed(files));
    complaints.extend(documents::named_tests_exist(files));
    complaints
}

#[cfg(test)]
fn file(path: &str, text: &str) -> File {
    File {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

//! `cargo xtask check-conventions`: the conventions that clippy cannot see. Sizes, headers, names, prose, and documents that name what exists.
//!
//! Each rule is a function from files to complaints, so that it can be shown a bad file. Knows text, not Rust.

mod documents;
mod files;
pub(crate) mod guarantees;
mod names;
mod source;

use crate::process;
use crate::workspace::Workspace;

/// A text file of the repository. The path is relative to the root, with forward slashes.
#[derive(Debug)]
struct File {
    path: String,
    text: String,
}

/// The command `check-conventions`.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    process::no_arguments("check-conventions", args)?;
    check_workspace()
}

/// Checks this repository and prints what was looked at, so that an empty check does not look like a passed one.
pub(crate) fn check_workspace() -> Result<(), String> {
    let files = files::read(&Workspace::load()?.root)?;
    let complaints = check(&files);
    if !complaints.is_empty() {
        return Err(format!(
            "{} conventions are broken:\n  {}",
            complaints.len(),
            complaints.join("\n  ")
        ));
    }
    let sources = files.iter().filter(|file| source::is_rust(file)).count();
    println!(
        "{sources} Rust files and {} others keep the conventions",
        files.len() - sources
    );
    Ok(())
}

fn check(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files {
        complaints.extend(source::check(file));
        complaints.extend(documents::machine_paths(file));
        complaints.extend(names::private_words(file));
        complaints.extend(names::riddles(file));
    }
    complaints.extend(documents::decisions_are_listed(files));
    complaints.extend(documents::named_functions_exist(files));
    complaints.extend(names::repeated_types(files));
    complaints.extend(guarantees::check(files));
    complaints
}

#[cfg(test)]
fn file(path: &str, text: &str) -> File {
    File {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

//! `cargo xtask book`: builds the guide in `docs/` with mdbook into cargo's target folder.
//!
//! Checks links (`links.rs`) and quoted messages (`quotes.rs`) first, installs a pinned mdbook on demand, and builds from a copy in which links out of `docs/`
//! lead to the repository. Must not know: what the pages say.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::links::{self, Document, relative_links, resolve};
use crate::process::{self, cargo};
use crate::quotes;
use crate::workspace::Workspace;

const MDBOOK_VERSION: &str = "0.5.4";
const SETTINGS: &str = "docs/book.toml";
/// The line of the settings that names the repository.
const REPOSITORY: &str = "git-repository-url = ";

/// The command `book`.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    process::no_arguments("book", args)?;
    links::check_workspace()?;
    quotes::check_workspace()?;
    let workspace = Workspace::load()?;
    let mdbook = ensure_mdbook(&workspace.target)?;
    let source = workspace.target.join("book-source");
    let book = workspace.target.join("book");
    write_source(&workspace.root, &source)?;
    process::run(
        Command::new(mdbook)
            .arg("build")
            .arg(&source)
            .arg("--dest-dir")
            .arg(&book),
    )?;
    println!("the guide is in {}", book.join("index.html").display());
    Ok(())
}

/// The pinned mdbook, installed under the target folder if it is not there yet.
fn ensure_mdbook(target: &Path) -> Result<PathBuf, String> {
    let tools = target.join("tools");
    let program = tools.join("bin/mdbook");
    let mut version = Command::new(&program);
    let installed = process::capture(version.arg("--version"));
    if installed.is_ok_and(|(version, _)| version.trim().ends_with(MDBOOK_VERSION)) {
        return Ok(program);
    }
    let mut install = cargo();
    install
        .args(["install", "mdbook", "--version", MDBOOK_VERSION, "--locked"])
        .args(["--no-default-features", "--features", "search", "--force"])
        .arg("--root")
        .arg(&tools)
        .arg("--target-dir")
        .arg(tools.join("build"));
    process::run(&mut install)
        .map_err(|error| format!("mdbook {MDBOOK_VERSION} is missing: {error}"))?;
    Ok(program)
}

/// Copies the pages and settings of the guide, with links that mdbook can follow.
fn write_source(root: &Path, source: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot write {}: {error}", source.display());
    if source.exists() {
        std::fs::remove_dir_all(source).map_err(failed)?;
    }
    let settings = std::fs::read_to_string(root.join(SETTINGS))
        .map_err(|error| format!("cannot read {SETTINGS}: {error}"))?;
    let repository = repository(&settings)?;
    let mut files = vec![("book.toml".to_owned(), settings.clone())];
    for page in links::read_documents(root)? {
        if let Some(name) = page.path.strip_prefix("docs/") {
            files.push((as_index(name), with_book_links(&page, repository)));
        }
    }
    for (name, text) in files {
        let path = source.join(name);
        let folder = path.parent().unwrap_or(source);
        std::fs::create_dir_all(folder).map_err(failed)?;
        std::fs::write(&path, text).map_err(failed)?;
    }
    Ok(())
}

/// The address of the repository in the settings of the book.
fn repository(settings: &str) -> Result<&str, String> {
    let line = settings
        .lines()
        .find_map(|line| line.strip_prefix(REPOSITORY));
    line.map(|address| address.trim_matches('"'))
        .ok_or_else(|| format!("{SETTINGS} has no line `{REPOSITORY}\"…\"`"))
}

/// The page with links that work in the book: those to something that is no page of the guide lead to the repository.
fn with_book_links(page: &Document, repository: &str) -> String {
    let mut text = page.text.clone();
    for (_, target) in relative_links(&page.text) {
        let Some(path) = resolve(&page.path, &target) else {
            continue;
        };
        let is_page = path.starts_with("docs/") && path.split('#').next().is_some_and(is_markdown);
        let link = if is_page || target.starts_with('#') {
            as_index(&target)
        } else {
            format!("{repository}/blob/main/{path}")
        };
        text = text.replace(&format!("]({target})"), &format!("]({link})"));
    }
    text
}

/// mdbook writes `README.md` as `index.html` and leaves links to it as they are, so pages are called `index.md`.
fn as_index(path: &str) -> String {
    path.replace("README.md", "index.md")
}

fn is_markdown(path: &str) -> bool {
    path.ends_with(".md")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(text: &str) -> String {
        let page = Document {
            path: "docs/adr/page.md".to_owned(),
            text: text.to_owned(),
        };
        with_book_links(&page, "https://example.com/r")
    }

    #[test]
    fn links_out_of_the_guide_lead_to_the_repository_and_others_stay() {
        assert_eq!(
            rewritten("[a](../../examples/nginx) [b](../../README.md#x)"),
            "[a](https://example.com/r/blob/main/examples/nginx) [b](https://example.com/r/blob/main/README.md#x)"
        );
        assert_eq!(
            rewritten("[schema](../policy.schema.json)"),
            "[schema](https://example.com/r/blob/main/docs/policy.schema.json)"
        );
        assert_eq!(rewritten("[a](README.md#x)"), "[a](index.md#x)");
        for same in [
            "[a](other.md#x) [b](#here) [c](../http.md)",
            "[a](https://example.com/)",
            "```\n[a](../../examples)\n```",
        ] {
            assert_eq!(rewritten(same), same);
        }
    }

    #[test]
    fn the_repository_is_read_from_the_settings() {
        let settings = "[output.html]\ngit-repository-url = \"https://example.com/r\"\n";
        assert_eq!(repository(settings), Ok("https://example.com/r"));
        assert!(repository("[book]\n").is_err());
    }
}

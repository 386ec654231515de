//! Checks that messages that the guide quotes are really printed: each stands in a text literal of the product code.
//!
//! A quoted message is a line `Message: ` and a code span, in `docs/troubleshooting.md`. `…` stands for anything. Must not
//! know: which part of the product prints a message.

use std::path::Path;

use crate::workspace::Workspace;

const PAGE: &str = "docs/troubleshooting.md";
const MARK: &str = "Message: `";

/// Checks the page against the sources of all crates.
pub(crate) fn check_workspace() -> Result<(), String> {
    let root = Workspace::load()?.root;
    let failed = |error: std::io::Error| format!("cannot read {PAGE}: {error}");
    let page = std::fs::read_to_string(root.join(PAGE)).map_err(failed)?;
    let mut code = String::new();
    collect_code(&root.join("crates"), &mut code)?;
    let complaints = check(&page, &code);
    if complaints.is_empty() {
        println!("{} quoted messages are printed", quotes(&page).len());
        return Ok(());
    }
    Err(format!("no code prints:\n  {}", complaints.join("\n  ")))
}

fn check(page: &str, code: &str) -> Vec<String> {
    let code = joined_literals(code);
    quotes(page)
        .into_iter()
        .filter(|(_, quote)| !quote.split('…').all(|piece| code.contains(piece.trim())))
        .map(|(line, quote)| format!("{PAGE}:{line}: `{quote}`"))
        .collect()
}

/// The quoted messages of a page, each with its line, counted from 1.
fn quotes(page: &str) -> Vec<(usize, &str)> {
    (1..)
        .zip(page.lines())
        .filter_map(|(number, line)| {
            let (_, rest) = line.split_once(MARK)?;
            let (quote, _) = rest.split_once('`')?;
            Some((number, quote))
        })
        .collect()
}

/// Source code with text literals that go on in the next line made one line, and escaped quotes made plain.
fn joined_literals(code: &str) -> String {
    let mut out = String::with_capacity(code.len());
    for line in code.lines() {
        match line.strip_suffix('\\') {
            Some(begun) if out.ends_with('\u{1}') => {
                out.pop();
                out.push_str(begun.trim_start());
                out.push('\u{1}');
            }
            Some(begun) => {
                out.push_str(begun);
                out.push('\u{1}');
            }
            None if out.ends_with('\u{1}') => {
                out.pop();
                out.push_str(line.trim_start());
                out.push('\n');
            }
            None => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out.replace("\\\"", "\"")
}

/// The Rust sources of all crates but their tests.
fn collect_code(folder: &Path, code: &mut String) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", folder.display());
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && name != "tests" {
            collect_code(&path, code)?;
        } else if name.ends_with(".rs") && name != "tests.rs" {
            code.push_str(&std::fs::read_to_string(&path).map_err(failed)?);
            code.push('\n');
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "warn!(part, \"the store is away: \\\n         decided here\");\nformat!(\"no limit \\\"{name}\\\" here\")";

    #[test]
    fn messages_that_are_printed_pass() {
        for quote in [
            "the store is away: decided here",
            "store is away",
            "no limit \"…\" here",
        ] {
            let page = format!("text\nMessage: `{quote}` at the start.\n");
            assert_eq!(check(&page, CODE), Vec::<String>::new(), "{quote}");
        }
        assert_eq!(
            check("A `code span` is no message.", CODE),
            Vec::<String>::new()
        );
    }

    #[test]
    fn control_a_message_that_nothing_prints_is_caught_with_its_line() {
        for quote in ["the store is gone", "no limit \"…\" there"] {
            let page = format!("text\nMessage: `{quote}`\n");
            let complaints = check(&page, CODE).concat();
            assert!(complaints.contains(":2: "), "{quote}: {complaints}");
        }
    }
}

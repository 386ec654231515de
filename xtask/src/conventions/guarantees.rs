//! `cargo xtask guarantees`: the lists of tests in docs/guarantees.md, generated from the names of the tests.
//!
//! A test proves a promise if its name begins with the promise's id: `i01_` for I-01, `s_08_` for S-08, several ids in a row for
//! several promises. The document marks where a list stands and which ids it shows. Reads text, not Rust syntax.

use std::collections::BTreeSet;

use super::{File, files};
use crate::process;
use crate::workspace::Workspace;

const DOCUMENT: &str = "docs/guarantees.md";
const BEGIN: &str = "<!-- tests ";
const END: &str = "<!-- /tests -->";

/// The command `guarantees`.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    process::no_arguments("guarantees", args)?;
    let root = Workspace::load()?.root;
    let files = files::read(&root)?;
    let document = document(&files).ok_or_else(|| format!("{DOCUMENT} is missing"))?;
    let text =
        render(&document.text, &tests(&files)).map_err(|complaints| complaints.join("\n"))?;
    std::fs::write(root.join(DOCUMENT), text)
        .map_err(|error| format!("cannot write {DOCUMENT}: {error}"))
}

/// Whether the document is what its tests make of it, and shows every test that has an id.
pub(super) fn check(files: &[File]) -> Vec<String> {
    let Some(document) = document(files) else {
        return vec![format!("{DOCUMENT} is missing")];
    };
    let tests = tests(files);
    match render(&document.text, &tests) {
        Err(complaints) => complaints,
        Ok(text) if text != document.text => {
            vec![format!(
                "{DOCUMENT} does not list the tests as they are named: run `cargo xtask guarantees`"
            )]
        }
        Ok(text) => unlisted(&text, &tests),
    }
}

fn document(files: &[File]) -> Option<&File> {
    files.iter().find(|file| file.path == DOCUMENT)
}

/// A test whose name begins with ids.
#[derive(Debug)]
struct Test {
    ids: BTreeSet<String>,
    sentence: String,
    path: String,
}

fn tests(files: &[File]) -> Vec<Test> {
    let sources = files.iter().filter(|file| super::source::is_rust(file));
    sources
        .flat_map(|file| {
            let functions = file.text.lines().filter_map(|line| {
                let line = line.trim_start();
                let line = line.strip_prefix("async ").unwrap_or(line);
                line.strip_prefix("fn ")?.split(['(', '<']).next()
            });
            functions.filter_map(|name| test(name, &file.path))
        })
        .collect()
}

fn test(name: &str, path: &str) -> Option<Test> {
    let mut ids = BTreeSet::new();
    let mut rest = name;
    while let Some((id, after)) = leading_id(rest) {
        ids.insert(id);
        rest = after;
    }
    let mut sentence = rest.replace('_', " ");
    if ids.is_empty() || sentence.is_empty() {
        return None;
    }
    if let Some(first) = sentence.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    Some(Test {
        ids,
        sentence,
        path: path.to_owned(),
    })
}

/// Splits `i01_rest`, `s08_rest` or `s_08_rest` into the id and the remaining name.
fn leading_id(name: &str) -> Option<(String, &str)> {
    let (letter, rest) = match name.strip_prefix('i') {
        Some(rest) => ('I', rest),
        None => ('S', name.strip_prefix('s')?.trim_start_matches('_')),
    };
    let (digits, rest) = rest.split_once('_')?;
    let is_number = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| (format!("{letter}-{digits}"), rest))
}

/// The document with every list replaced by what the tests are named.
fn render(document: &str, tests: &[Test]) -> Result<String, Vec<String>> {
    let mut text = String::new();
    let mut complaints = Vec::new();
    let mut in_list = false;
    for line in document.lines() {
        if line == END {
            in_list = false;
        }
        if !in_list {
            text.push_str(line);
            text.push('\n');
        }
        if let Some(ids) = marker(line) {
            in_list = true;
            let listed: Vec<&Test> = tests
                .iter()
                .filter(|test| ids.iter().any(|id| test.ids.contains(*id)))
                .collect();
            if listed.is_empty() {
                complaints.push(format!(
                    "{DOCUMENT}: no test is named after {}",
                    ids.join(" or ")
                ));
            }
            text.push('\n');
            for test in listed {
                text.push_str(&format!("- {} (`{}`)\n", test.sentence, test.path));
            }
            text.push('\n');
        }
    }
    if in_list {
        complaints.push(format!("{DOCUMENT}: a list of tests has no `{END}`"));
    }
    if complaints.is_empty() {
        Ok(text)
    } else {
        Err(complaints)
    }
}

/// The ids of the list that begins with this line.
fn marker(line: &str) -> Option<Vec<&str>> {
    Some(
        line.strip_prefix(BEGIN)?
            .strip_suffix("-->")?
            .split_whitespace()
            .collect(),
    )
}

/// Tests whose ids no list of the document shows.
fn unlisted(document: &str, tests: &[Test]) -> Vec<String> {
    let shown: BTreeSet<&str> = document.lines().filter_map(marker).flatten().collect();
    let ids: BTreeSet<&str> = tests
        .iter()
        .flat_map(|test| test.ids.iter().map(String::as_str))
        .collect();
    ids.difference(&shown)
        .map(|id| format!("{DOCUMENT}: tests are named after {id}, which no list shows"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn with(document: &str) -> Vec<String> {
        let code = "fn i01_s_08_it_holds() {}\n    async fn i02_nothing_is_spent_twice<T>() {}\nfn idle() {}\nfn s_of() {}\n";
        check(&[file(DOCUMENT, document), file("crates/a/src/b.rs", code)])
    }

    const RIGHT: &str = "<!-- tests I-01 -->\n\n- It holds (`crates/a/src/b.rs`)\n\n<!-- /tests -->\n\
        <!-- tests S-08 I-02 -->\n\n- It holds (`crates/a/src/b.rs`)\n- Nothing is spent twice (`crates/a/src/b.rs`)\n\n<!-- /tests -->\n";

    #[test]
    fn a_document_that_lists_the_tests_as_they_are_named_passes() {
        assert_eq!(with(RIGHT), Vec::<String>::new());
    }

    #[test]
    fn a_list_that_is_out_of_date_is_caught() {
        assert_eq!(with(&RIGHT.replace("- It holds", "- It held")).len(), 1);
        assert_eq!(with("<!-- tests I-01 -->\n").len(), 1, "no end");
    }

    #[test]
    fn a_promise_without_a_test_and_a_test_without_a_promise_are_caught() {
        assert_eq!(with(&RIGHT.replace("tests I-01", "tests I-09")).len(), 1);
        assert_eq!(
            with(&RIGHT.replace(
                "tests S-08 I-02 -->\n\n- It holds (`crates/a/src/b.rs`)\n",
                "tests I-02 -->\n\n"
            ))
            .len(),
            1
        );
    }
}

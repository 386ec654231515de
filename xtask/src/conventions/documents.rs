//! Rules for documents: no machine's own paths, every decision listed, every named test there.
//!
//! Reads text. A document that names a test is a promise, and this is what keeps it.

use super::File;

/// Beginnings of paths that exist on one person's machine only. In halves, so that this file keeps its own rule.
const MACHINE_PATHS: &[&str] = &[
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
];

const DECISIONS: &str = "docs/adr/";
const DECISIONS_LIST: &str = "docs/adr/README.md";
/// The document that names functions of ours.
const MAP: &str = "ARCHITECTURE.md";

/// Paths of somebody's machine, in any text file.
pub(super) fn machine_paths(file: &File) -> Vec<String> {
    let mut complaints = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for start in MACHINE_PATHS {
            if line
                .match_indices(start)
                .any(|(at, _)| is_absolute(line, at, start.len()))
            {
                complaints.push(format!(
                    "{}:{}: a path of one machine, `{start}…`",
                    file.path,
                    index + 1
                ));
            }
        }
    }
    complaints
}

/// A name before the first slash makes it the end of another path or address; no name after it makes it no path.
fn is_absolute(line: &str, at: usize, len: usize) -> bool {
    let is_name = |letter: char| letter.is_alphanumeric() || "_-.~*})".contains(letter);
    let before = line.get(..at).and_then(|text| text.chars().next_back());
    let after = line.get(at + len..).and_then(|text| text.chars().next());
    !before.is_some_and(is_name) && after.is_some_and(is_name)
}

/// Every decision record must be in the list that people read.
pub(super) fn decisions_are_listed(files: &[File]) -> Vec<String> {
    let list = files
        .iter()
        .find(|file| file.path == DECISIONS_LIST)
        .map_or("", |file| file.text.as_str());
    files
        .iter()
        .filter_map(|file| file.path.strip_prefix(DECISIONS))
        .filter(|name| {
            name.ends_with(".md") && *name != "README.md" && !list.contains(&format!("({name})"))
        })
        .map(|name| format!("{DECISIONS}{name}: not linked from {DECISIONS_LIST}"))
        .collect()
}

/// Every `path.rs::function` in the map must exist.
pub(super) fn named_functions_exist(files: &[File]) -> Vec<String> {
    match files.iter().find(|file| file.path == MAP) {
        Some(map) => named_in(map, files),
        None => vec![format!("{MAP} is missing")],
    }
}

fn named_in(map: &File, files: &[File]) -> Vec<String> {
    let path = &map.path;
    let mut complaints = Vec::new();
    for (index, line) in map.text.lines().enumerate() {
        let tests: Vec<(&str, &str)> = line
            .split('`')
            .skip(1)
            .step_by(2)
            .filter_map(named_test)
            .collect();
        complaints.extend(
            tests
                .iter()
                .filter(|(file, function)| !exists(files, file, function))
                .map(|(file, function)| {
                    format!("{path}:{}: there is no `{file}::{function}`", index + 1)
                }),
        );
    }
    complaints
}

/// Splits `path.rs::function` or `path.rs::module::function`.
fn named_test(code: &str) -> Option<(&str, &str)> {
    let (path, names) = code.split_once(".rs::")?;
    let function = names.rsplit("::").next()?;
    Some((code.get(..path.len() + ".rs".len())?, function))
}

fn exists(files: &[File], path: &str, function: &str) -> bool {
    let declared = |text: &str, end: char| text.contains(&format!("fn {function}{end}"));
    files
        .iter()
        .any(|file| file.path == path && (declared(&file.text, '(') || declared(&file.text, '<')))
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn a_path_of_one_machine_is_caught_and_an_address_is_not() {
        for start in MACHINE_PATHS {
            let count = |text: String| machine_paths(&file("notes.md", &text)).len();
            assert_eq!(count(format!("see {start}ann/x")), 1, "{start}");
            assert_eq!(count(format!("\"{start}ann\"\n`{start}bob`")), 2, "{start}");
            assert_eq!(
                count(format!("https://example.com{start}page")),
                0,
                "{start}"
            );
            assert_eq!(count(format!("any {start} at all")), 0, "{start}");
        }
    }

    #[test]
    fn a_decision_that_is_not_listed_is_caught() {
        let list = file("docs/adr/README.md", "- [One](0001-one.md)");
        let (one, two) = (
            file("docs/adr/0001-one.md", ""),
            file("docs/adr/0002-two.md", ""),
        );
        let complaints = decisions_are_listed(&[list, one, two]);
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        assert!(complaints.concat().contains("0002-two.md"));
        assert_eq!(
            decisions_are_listed(&[file("docs/adr/0001-one.md", "")]).len(),
            1,
            "no list at all"
        );
    }

    fn with_map(map: &str) -> Vec<String> {
        let code = file(
            "crates/a/src/b.rs",
            "fn holds() {}\nfn generic<T>() {}\nfn holds_not_quite() {}\n",
        );
        named_functions_exist(&[file(MAP, map), code])
    }

    #[test]
    fn tests_that_exist_pass() {
        let none = Vec::<String>::new();
        assert_eq!(
            with_map("| I-01 | the bound | `crates/a/src/b.rs::holds` |"),
            none
        );
        assert_eq!(
            with_map("| I-01 | the bound | `crates/a/src/b.rs::tests::generic` |"),
            none
        );
        assert_eq!(
            with_map("In prose, I-01 needs none, and `b.rs` is no test."),
            none
        );
    }

    #[test]
    fn a_test_that_does_not_exist_is_caught_anywhere_in_the_map() {
        for map in [
            "| I-01 | the bound | `crates/a/src/b.rs::hold` |",
            "| I-01 | the bound | `crates/a/src/c.rs::holds` |",
            "See `crates/a/src/b.rs::gone`.",
            "| I-01 | two | `crates/a/src/b.rs::holds`, `crates/a/src/b.rs::gone` |",
        ] {
            assert_eq!(with_map(map).len(), 1, "{map}");
        }
    }

    #[test]
    fn a_missing_map_is_caught() {
        assert_eq!(named_functions_exist(&[]).len(), 1);
    }
}

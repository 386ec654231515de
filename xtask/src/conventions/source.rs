//! Rules for Rust files: size, header, words that must not stay, and no sleeping in tests.
//!
//! Reads lines. rustfmt has already put items at the left edge, so no parser is needed.

use super::File;

/// Above this a file holds more than one idea, or more than one story of tests. Aim at 400; this leaves slack for a last change.
const MAX_LINES: usize = 450;

/// Spelled in two halves, so that this file does not break its own rule.
const UNFINISHED: &[&str] = &[
    concat!("todo", "!"),
    concat!("unimplemented", "!"),
    concat!("#[ign", "ore"),
];
const SLEEPS: &[&str] = &[concat!("thread::", "sleep"), concat!("time::", "sleep")];

pub(super) fn is_rust(file: &File) -> bool {
    file.path.ends_with(".rs")
}

pub(super) fn check(file: &File) -> Vec<String> {
    if !is_rust(file) {
        return Vec::new();
    }
    let lines: Vec<&str> = file.text.lines().collect();
    let product = lines_before_tests(&lines);
    let mut complaints = Vec::new();
    complaints.extend(check_size(file, product));
    complaints.extend(check_header(
        file,
        lines.first().copied().unwrap_or_default(),
    ));
    for (index, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        if code.starts_with("//") {
            continue;
        }
        let in_tests = is_test_code(file) || index >= product;
        let banned = UNFINISHED.iter().chain(SLEEPS.iter().filter(|_| in_tests));
        complaints.extend(
            banned
                .filter(|word| code.contains(**word))
                .map(|word| format!("{}:{}: `{word}` {}", file.path, index + 1, advice(word))),
        );
    }
    complaints
}

fn advice(word: &str) -> &'static str {
    if SLEEPS.contains(&word) {
        "in a test: hand the time in, or wait for the event itself"
    } else {
        "must not stay: finish it, or leave it out"
    }
}

fn check_size(file: &File, product: usize) -> Option<String> {
    (product > MAX_LINES).then(|| {
        format!(
            "{}: {product} lines without its tests, at most {MAX_LINES}: split it by idea or story",
            file.path
        )
    })
}

fn check_header(file: &File, first: &str) -> Option<String> {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    let in_src = file.path.split('/').any(|part| part == "src");
    let is_program = name == "main.rs" || name == "build.rs";
    let has_header = first.starts_with("//!") || (is_program && first.starts_with("//"));
    ((in_src || name == "build.rs") && !has_header).then(|| {
        format!(
            "{}: must begin with `//!` and say what it is for",
            file.path
        )
    })
}

/// Whether the whole file is for tests or measurements.
fn is_test_code(file: &File) -> bool {
    file.path
        .split('/')
        .any(|part| ["tests", "benches", "fuzz", "testdata", "tests.rs"].contains(&part))
}

/// How many lines come before a test module that ends the file.
fn lines_before_tests(lines: &[&str]) -> usize {
    let Some(start) = lines.iter().rposition(|line| *line == "#[cfg(test)]") else {
        return lines.len();
    };
    let block = lines.get(start..).unwrap_or_default();
    let opens = block.iter().find(|line| !line.starts_with("#["));
    let is_module = opens.is_some_and(|line| line.starts_with("mod "));
    let ends = block.iter().position(|line| *line == "}").unwrap_or(0);
    let is_last = block
        .iter()
        .skip(ends + 1)
        .all(|line| line.trim().is_empty());
    if is_module && is_last {
        start
    } else {
        lines.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn long(lines: usize, tail: &str) -> String {
        format!(
            "//! Long.\n{}{tail}",
            "const A: u8 = 0;\n".repeat(lines - 1)
        )
    }

    fn complaints(path: &str, text: &str) -> usize {
        check(&file(path, text)).len()
    }

    #[test]
    fn a_file_at_the_limit_passes_and_one_line_more_is_caught() {
        assert_eq!(complaints("crates/a/src/b.rs", &long(450, "")), 0);
        assert_eq!(complaints("crates/a/src/b.rs", &long(451, "")), 1);
    }

    #[test]
    fn a_test_module_at_the_end_does_not_count_and_one_in_the_middle_does() {
        let tests = "#[cfg(test)]\n#[allow(unused)]\nmod tests {\n    fn a() {}\n}\n";
        assert_eq!(complaints("src/a.rs", &long(450, tests)), 0);
        assert_eq!(
            complaints("src/a.rs", &long(450, &format!("{tests}fn b() {{}}\n"))),
            1
        );
        assert_eq!(
            complaints("src/a.rs", &long(450, "#[cfg(test)]\nfn a() {\n}\n")),
            1
        );
    }

    #[test]
    fn a_long_test_file_is_caught() {
        for path in [
            "crates/a/tests/b.rs",
            "fuzz/c.rs",
            "crates/a/src/b/tests.rs",
        ] {
            assert_eq!(complaints(path, &long(451, "")), 1, "{path}");
        }
    }

    #[test]
    fn a_missing_header_is_caught() {
        assert_eq!(complaints("crates/a/src/b.rs", "use c;\n"), 1);
        assert_eq!(complaints("crates/a/src/b.rs", ""), 1);
        assert_eq!(complaints("crates/a/build.rs", "fn main() {}\n"), 1);
        assert_eq!(
            complaints("crates/a/build.rs", "// Finds the library.\n"),
            0
        );
        assert_eq!(complaints("crates/a/tests/b.rs", "use c;\n"), 0);
        assert_eq!(complaints("crates/a/tests/b/main.rs", "use c;\n"), 0);
        assert_eq!(complaints("crates/a/src/main.rs", "use c;\n"), 1);
        assert_eq!(complaints("README.md", "no header\n"), 0);
    }

    #[test]
    fn unfinished_code_is_caught_and_talk_about_it_is_not() {
        for word in UNFINISHED {
            assert_eq!(
                complaints("src/a.rs", &format!("//! A.\n    {word}\n")),
                1,
                "{word}"
            );
            assert_eq!(
                complaints("src/a.rs", &format!("//! No {word} here.\n")),
                0,
                "{word}"
            );
        }
    }

    #[test]
    fn sleeping_is_caught_in_tests_wherever_they_are() {
        for word in SLEEPS {
            let call = format!("{word}(d);\n");
            assert_eq!(complaints("crates/a/tests/b.rs", &call), 1, "{word}");
            assert_eq!(
                complaints("src/a.rs", &format!("//! A.\n{call}")),
                0,
                "{word}"
            );
            let inside = format!("//! A.\n#[cfg(test)]\nmod tests {{\n    {call}}}\n");
            assert_eq!(complaints("src/a.rs", &inside), 1, "{word}");
        }
    }
}

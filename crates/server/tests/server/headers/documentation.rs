//! `docs/headers.md` shows the fields of a policy, and every setting of header fields.

use super::{app, check, header_fields};

const PAGE: &str = include_str!("../../../../../docs/headers.md");

/// The first code block of this kind in the section about settings.
fn block(kind: &str) -> &'static str {
    let mut sections = PAGE.split("\n## ");
    let section = sections.find(|section| section.starts_with("How do I choose the fields?"));
    let mut blocks = section.unwrap().split("```").skip(1).step_by(2);
    let block = blocks.find_map(|block| block.strip_prefix(kind)?.strip_prefix('\n'));
    block.unwrap_or_else(|| panic!("there is no block of {kind}"))
}

/// Replaces every digest by one character, after checking its documented length.
fn without_digests(value: &str) -> String {
    let mut parts = value.split("pk=:");
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |all, part| {
        let (digest, rest) = part.split_once(':').unwrap();
        assert_eq!(digest.len(), 16);
        format!("{all}pk=:…:{rest}")
    })
}

#[test]
fn the_documented_policy_gives_the_documented_fields() {
    let (app, _clock) = app(block("yaml"));
    let says = [
        ("header.x-api-key", "carol"),
        ("header.x-plan", "pro"),
        ("header.content-length", "1024"),
    ];
    let shown: Vec<(String, String)> = block("http")
        .lines()
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let written: Vec<(String, String)> = header_fields(&app, &check(&app, &says, None))
        .into_iter()
        .map(|(name, value)| (name.to_owned(), without_digests(&value)))
        .collect();
    assert_eq!(shown, written);
}

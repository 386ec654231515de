//! Rules for names and prose: no file named by a private word, one meaning for each public type name, no riddles in prose.
//!
//! The words come from the project's naming rules (CONTRIBUTING.md, "Names and prose"). Reads paths and lines, not Rust syntax.

use std::collections::{BTreeMap, BTreeSet};

use super::File;

/// Words that name nothing a stranger could search for: participles, pronouns, adverbs and metaphors.
const PRIVATE_WORDS: &[&str] = &[
    "afterwards",
    "aftermath",
    "alone",
    "asked",
    "asks",
    "away",
    "beside",
    "brisk",
    "chapter",
    "counted",
    "crew",
    "crowded",
    "decided",
    "desk",
    "dice",
    "dying",
    "errand",
    "errands",
    "explained",
    "found",
    "handmade",
    "here",
    "house",
    "kept",
    "known",
    "lately",
    "lender",
    "lent",
    "lots",
    "meddle",
    "moody",
    "owed",
    "patient",
    "plainly",
    "rig",
    "said",
    "seen",
    "served",
    "shelf",
    "spoken",
    "stance",
    "standing",
    "surroundings",
    "tending",
    "told",
    "together",
    "turn",
    "vessel",
    "vigil",
    "without",
    "words",
    "worth",
];

/// Names that every crate may define: their crate tells them apart.
const COMMON_TYPES: &[&str] = &["Builder", "Error", "Options"];

/// Folders that mirror a foreign protocol and use its names.
const WIRE_FOLDERS: &[&str] = &["/wire/", "/proto/", "/protobuf/"];

/// Phrases that leave open who does what.
const RIDDLES: &[&str] = &[
    "whoever",
    "whomever",
    "so many are",
    "what is said",
    "what was said",
    "that which",
    "those that are told",
];

/// Files and folders named by a private word, alone or as a part of the name.
pub(super) fn private_words(file: &File) -> Vec<String> {
    let ours = ["crates/", "testkit/", "bench/", "xtask/", "docs/", "fuzz/"];
    if !ours.iter().any(|folder| file.path.starts_with(folder)) {
        return Vec::new();
    }
    let parts = file
        .path
        .split('/')
        .flat_map(|name| name.split('.').next())
        .filter(|name| !is_decision(name))
        .flat_map(|name| name.split('_'));
    parts
        .filter(|part| PRIVATE_WORDS.contains(part))
        .map(|part| {
            format!(
                "{}: `{part}` is a private word; name the file after the type or job in it",
                file.path
            )
        })
        .collect()
}

/// A decision record is named by its title, which is a sentence.
fn is_decision(name: &str) -> bool {
    name.len() > 5 && name.bytes().take(4).all(|byte| byte.is_ascii_digit())
}

/// Public type names that more than one crate defines.
pub(super) fn repeated_types(files: &[File]) -> Vec<String> {
    let mut crates: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for file in files {
        let Some((krate, _)) = file
            .path
            .strip_prefix("crates/")
            .and_then(|path| path.split_once("/src/"))
        else {
            continue;
        };
        if !super::source::is_rust(file)
            || WIRE_FOLDERS.iter().any(|folder| file.path.contains(folder))
        {
            continue;
        }
        let mut before = "";
        for line in file.text.lines() {
            let is_deprecated = before.trim_start().starts_with("#[deprecated");
            if let Some(name) = public_type(line)
                && !is_deprecated
                && !COMMON_TYPES.contains(&name)
            {
                crates.entry(name).or_default().insert(krate);
            }
            before = line;
        }
    }
    crates
        .iter()
        .filter(|(_, crates)| crates.len() > 1)
        .map(|(name, crates)| {
            let list: Vec<&str> = crates.iter().copied().collect();
            format!(
                "`{name}` is a public type of {}: one name has one meaning",
                list.join(" and ")
            )
        })
        .collect()
}

/// The name of the public type that a line defines.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub ")?;
    let (keyword, rest) = rest.split_once(' ')?;
    if !["struct", "enum", "trait", "type", "union"].contains(&keyword) {
        return None;
    }
    rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .next()
}

/// Riddles in the prose of documents and comments.
pub(super) fn riddles(file: &File) -> Vec<String> {
    let is_document = file.path.ends_with(".md");
    if !is_document && !super::source::is_rust(file) || file.path.ends_with(file!()) {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    let mut in_code = false;
    for (index, line) in file.text.lines().enumerate() {
        let text = line.trim_start();
        if is_document && text.starts_with("```") {
            in_code = !in_code;
        }
        if in_code || (!is_document && !text.starts_with("//")) {
            continue;
        }
        let lower = text.to_lowercase();
        complaints.extend(
            RIDDLES
                .iter()
                .filter(|riddle| lower.contains(**riddle))
                .map(|riddle| {
                    format!("{}:{}: `{riddle}`: say who does what", file.path, index + 1)
                }),
        );
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn a_file_named_by_a_private_word_is_caught() {
        for path in [
            "crates/a/src/told.rs",
            "crates/a/src/words_for.rs",
            "crates/a/tests/a/words/x.rs",
            "docs/desk.md",
        ] {
            assert_eq!(private_words(&file(path, "")).len(), 1, "{path}");
        }
        for path in [
            "crates/a/src/header_fields.rs",
            "docs/adr/0013-what-is-told-once.md",
            "policies/words.yaml",
        ] {
            assert_eq!(
                private_words(&file(path, "")),
                Vec::<String>::new(),
                "{path}"
            );
        }
    }

    #[test]
    fn a_public_type_of_two_crates_is_caught() {
        let one = file(
            "crates/one/src/lib.rs",
            "pub struct Answer {\n}\npub(crate) struct Plan;\n",
        );
        let two = file(
            "crates/two/src/x.rs",
            "    pub enum Answer<'a> {}\npub struct Plan;\npub struct Options;\n",
        );
        let complaints = repeated_types(&[one, two]);
        assert_eq!(
            complaints,
            ["`Answer` is a public type of one and two: one name has one meaning"]
        );
    }

    #[test]
    fn common_wire_and_deprecated_names_may_repeat() {
        let one = file(
            "crates/one/src/lib.rs",
            "pub struct Options;\npub struct Value;\npub struct Key;\n",
        );
        let two = file("crates/two/src/wire/x.rs", "pub struct Value;\n");
        let three = file(
            "crates/two/src/lib.rs",
            "pub struct Options;\n#[deprecated]\npub type Key = Other;\n",
        );
        assert_eq!(repeated_types(&[one, two, three]), Vec::<String>::new());
    }

    #[test]
    fn a_riddle_is_caught_in_documents_and_comments_but_not_in_code() {
        assert_eq!(
            riddles(&file("docs/a.md", "Whoever asks is told.\n")).len(),
            1
        );
        assert_eq!(
            riddles(&file("crates/a/src/b.rs", "/// So many are admitted.\n")).len(),
            1
        );
        assert_eq!(
            riddles(&file("docs/a.md", "```text\nwhoever\n```\n")),
            Vec::<String>::new()
        );
        assert_eq!(
            riddles(&file("crates/a/src/b.rs", "let whoever = 1;\n")),
            Vec::<String>::new()
        );
    }
}

//! Policies that must be refused, each with the exact words, and policies that must be accepted. Only for tests.
//!
//! `corpus/wrong/NAME.yaml` (or `.toml`, `.json`) is refused with the text in `NAME.expected` beside it. After changing
//! a message run the tests with `TOLLGATE_UPDATE_CORPUS=1` and read the difference. Must not know: what the words mean.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::model::Algorithm;
use crate::read::FieldDefault;
use crate::source::SourceFormat;
use crate::{load, load_path};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

/// The files of a folder that say a policy, in order of their names.
fn policies(folder: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| SourceFormat::from_path(path).is_some())
        // Tests of policies stand beside them.
        .filter(|path| !name_of(path).contains(".test."))
        .collect();
    files.sort();
    files
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// What is said about a file, under its bare name, so that it does not matter where the repository lies.
fn verdict(path: &Path) -> Result<crate::model::Policy, String> {
    let text = std::fs::read_to_string(path).unwrap();
    load(
        &text,
        &name_of(path),
        SourceFormat::from_path(path).unwrap(),
    )
    .map_err(|problems| problems.to_string())
}

#[test]
fn every_wrong_policy_is_refused_with_exactly_its_words() {
    let update = std::env::var_os("TOLLGATE_UPDATE_CORPUS").is_some();
    let files = policies(&root().join("corpus/wrong"));
    assert!(
        files.len() >= 60,
        "the corpus has only {} files",
        files.len()
    );
    let mut complaints = Vec::new();
    for path in &files {
        let expected_path = path.with_extension("expected");
        let said = match verdict(path) {
            Ok(_) => {
                complaints.push(format!("{} is accepted", name_of(path)));
                continue;
            }
            Err(said) => said,
        };
        if update {
            std::fs::write(&expected_path, &said).unwrap();
            continue;
        }
        let expected = std::fs::read_to_string(&expected_path).unwrap_or_default();
        if said != expected {
            complaints.push(format!(
                "{} says:\n{said}\nexpected:\n{expected}",
                name_of(path)
            ));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
}

#[test]
fn control_a_changed_word_or_an_accepted_policy_would_be_noticed() {
    let path = root().join("corpus/wrong/rate_without_period.yaml");
    let said = verdict(&path).unwrap_err();
    let expected = std::fs::read_to_string(path.with_extension("expected")).unwrap();
    assert_eq!(said, expected);
    assert_ne!(said, expected.replace("per what", "for what"));
    assert!(
        load(
            "limits: [{ name: a, rate: 100/s }]",
            "a.yaml",
            SourceFormat::Yaml
        )
        .is_ok()
    );
}

#[test]
fn every_expectation_belongs_to_a_policy() {
    for entry in std::fs::read_dir(root().join("corpus/wrong")).unwrap() {
        let path = entry.unwrap().path();
        let known = ["yaml", "toml", "json"]
            .iter()
            .any(|ending| path.with_extension(ending).exists());
        assert!(known, "{} has no policy beside it", path.display());
    }
}

/// The sentences that product code of these folders can put into a problem: every text literal with two words or more,
/// as the pieces between its placeholders.
fn sentences() -> Vec<(String, Vec<String>)> {
    let mut all = Vec::new();
    for folder in ["src/read", "src/check", "src/words"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let file = format!("{folder}/{}", name_of(&path));
            if file.ends_with("tests.rs") || path.is_dir() {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let product = text.split("#[cfg(test)]\nmod tests").next().unwrap();
            let code: Vec<&str> = product
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"))
                .collect();
            for literal in literals(&code.join("\n")) {
                let pieces = pieces(&literal);
                // Maps that show how something is written, and what describes a field, are not about a mistake.
                let is_example = literal.starts_with("{ ") || literal.contains(": {");
                // No number of a policy may be zero; those of files of tests may, and are tested there.
                let is_elsewhere = literal == "write a number up to {most}";
                let is_example = is_example || is_elsewhere || is_description(&literal);
                if !is_example && pieces.iter().any(|piece| piece.trim().contains(' ')) {
                    all.push((format!("{file}: {literal:?}"), pieces));
                }
            }
        }
    }
    all
}

/// Whether a text describes a field, in the schema or in docs/policy.md.
fn is_description(literal: &str) -> bool {
    static SCHEMA: LazyLock<String> = LazyLock::new(crate::schema::text);
    let tables = crate::read::tables();
    let mut fields = tables.iter().flat_map(|(_, fields)| fields);
    let whole = serde_json::Value::from(literal).to_string();
    SCHEMA.contains(&whole)
        || fields.any(
            |field| matches!(field.default, FieldDefault::Description(words) if words == literal),
        )
}

/// The text literals of a piece of Rust.
fn literals(code: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut rest = code.chars();
    let mut before = ' ';
    while let Some(character) = rest.next() {
        // A quote inside of a character literal opens no text.
        if character == '"' && before != '\'' {
            let mut literal = String::new();
            while let Some(inside) = rest.next() {
                match inside {
                    '"' => break,
                    '\\' => literal.extend(rest.next()),
                    other => literal.push(other),
                }
            }
            all.push(literal);
        }
        before = character;
    }
    all
}

/// What stands between the placeholders of a format. `{{` is a brace.
fn pieces(literal: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut rest = literal.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '{' | '}' if rest.peek() == Some(&character) => {
                rest.next();
                all.last_mut().unwrap().push(character);
            }
            // A placeholder is empty or a name; any other brace is one that the text shows.
            '{' if is_placeholder(rest.clone()) => {
                rest.by_ref().find(|end| *end == '}');
                all.push(String::new());
            }
            other => all.last_mut().unwrap().push(other),
        }
    }
    all
}

fn is_placeholder(rest: impl Iterator<Item = char>) -> bool {
    let inside: String = rest.take_while(|end| *end != '}').collect();
    inside
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "_:?".contains(c))
}

/// Whether a text has all pieces of a sentence, in order.
fn contains_in_order(text: &str, pieces: &[String]) -> bool {
    let mut rest = text;
    pieces.iter().all(|piece| match rest.split_once(&**piece) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

/// Every sentence that the source has about a mistake is said about a file of the corpus, so that each was read by
/// somebody at least once.
#[test]
fn every_message_has_a_wrong_policy_that_provokes_it() {
    let mut said = Vec::new();
    let mut add = |text: &str, name: &str| {
        let problems = load(
            text,
            name,
            SourceFormat::from_path(Path::new(name)).unwrap(),
        )
        .unwrap_err();
        for problem in problems.list {
            said.push(problem.message);
            said.extend(problem.help);
        }
    };
    for path in policies(&root().join("corpus/wrong")) {
        add(&std::fs::read_to_string(&path).unwrap(), &name_of(&path));
    }
    // Too long to be kept as a file.
    add(&format!("limits: [{}]", "{}, ".repeat(60_001)), "many.yaml");
    let mut all = sentences();
    assert!(all.len() > 300, "only {} sentences were found", all.len());
    let algorithms = Algorithm::BY_NAME.map(|(_, algorithm)| algorithm);
    for algorithm in algorithms.into_iter().chain([Algorithm::Concurrency]) {
        let properties = algorithm.properties();
        for reason in [properties.why_not_leased, properties.why_not_async]
            .into_iter()
            .flatten()
        {
            all.push((format!("{algorithm:?}: {reason}"), vec![reason.to_owned()]));
        }
    }
    let never: Vec<&str> = all
        .iter()
        .filter(|(_, pieces)| !said.iter().any(|text| contains_in_order(text, pieces)))
        .map(|(shown, _)| &**shown)
        .collect();
    assert!(
        never.is_empty(),
        "no wrong policy provokes:\n{}",
        never.join("\n")
    );
}

#[test]
fn every_right_policy_is_accepted() {
    let files = policies(&root().join("corpus/right"));
    assert!(files.len() >= 3);
    for path in files {
        if let Err(said) = verdict(&path) {
            panic!("{said}");
        }
    }
}

#[test]
fn every_right_policy_says_the_same_after_it_was_written_again() {
    let mut files = policies(&root().join("corpus/right"));
    files.extend(policies(&root().join("../../policies")));
    for path in files {
        let policy = verdict(&path).unwrap();
        let written = super::write_json::policy(&policy);
        let again = load(&written, "written.json", SourceFormat::Json)
            .unwrap_or_else(|said| panic!("{said}\n{written}"));
        assert_eq!(again, policy, "{}\n{written}", path.display());
    }
}

#[test]
fn every_right_policy_is_valid_by_the_schema() {
    let mut files = policies(&root().join("corpus/right"));
    files.extend(policies(&root().join("../../policies")));
    for path in files
        .iter()
        .filter(|path| SourceFormat::from_path(path) == Some(SourceFormat::Yaml))
    {
        let wrong = crate::schema::tests::wrong(&std::fs::read_to_string(path).unwrap());
        assert!(wrong.is_empty(), "{}: {wrong:#?}", path.display());
    }
}

#[test]
fn the_same_policy_says_the_same_in_yaml_toml_and_json() {
    let read = |ending| {
        verdict(
            &root()
                .join("corpus/right/everything")
                .with_extension(ending),
        )
        .unwrap()
    };
    let yaml = read("yaml");
    assert_eq!(yaml, read("toml"));
    assert_eq!(yaml, read("json"));
}

#[test]
fn the_policies_that_are_shipped_are_accepted() {
    let files = policies(&root().join("../../policies"));
    let names: Vec<String> = files.iter().map(|path| name_of(path)).collect();
    for expected in [
        "absence", "aws", "discord", "github", "layered", "login", "stripe",
    ] {
        assert!(
            names.contains(&format!("{expected}.yaml")),
            "{expected} is not among {names:?}"
        );
    }
    for path in files {
        if let Err(said) = load_path(&path) {
            panic!("{said}");
        }
    }
}

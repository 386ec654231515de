//! Policies that must be rejected with exact messages, and policies that must be accepted. Only for tests.
//!
//! `corpus/invalid/NAME.yaml` (or `.toml`, `.json`) is rejected with the text in `NAME.expected`. After a change to a
//! message run the tests with `TOLLGATE_UPDATE_CORPUS=1` and read the diff. Must not know: what the messages mean.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::model::Algorithm;
use crate::read::FieldDefault;
use crate::source::SourceFormat;
use crate::{load, load_path};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

/// The policy files of a folder, sorted by name.
fn policies(folder: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| SourceFormat::from_path(path).is_some())
        // Policy tests are in the same folder.
        .filter(|path| !name_of(path).contains(".test."))
        .collect();
    files.sort();
    files
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// Loads a file under its bare name, so that messages do not contain the path of the repository.
fn verdict(path: &Path) -> Result<crate::model::Policy, String> {
    let text = std::fs::read_to_string(path).unwrap();
    load(
        &text,
        &name_of(path),
        SourceFormat::from_path(path).unwrap(),
    )
    .map_err(|diagnostics| diagnostics.to_string())
}

#[test]
fn every_invalid_policy_has_its_expected_messages() {
    let update = std::env::var_os("TOLLGATE_UPDATE_CORPUS").is_some();
    let files = policies(&root().join("corpus/invalid"));
    assert!(
        files.len() >= 60,
        "the corpus has only {} files",
        files.len()
    );
    let mut complaints = Vec::new();
    for path in &files {
        let expected_path = path.with_extension("expected");
        let message = match verdict(path) {
            Ok(_) => {
                complaints.push(format!("{} is accepted", name_of(path)));
                continue;
            }
            Err(message) => message,
        };
        if update {
            std::fs::write(&expected_path, &message).unwrap();
            continue;
        }
        let expected = std::fs::read_to_string(&expected_path).unwrap_or_default();
        if message != expected {
            complaints.push(format!(
                "{}: actual:\n{message}\nexpected:\n{expected}",
                name_of(path)
            ));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
}

#[test]
fn control_a_changed_message_and_an_accepted_policy_are_detected() {
    let path = root().join("corpus/invalid/rate_without_period.yaml");
    let message = verdict(&path).unwrap_err();
    let expected = std::fs::read_to_string(path.with_extension("expected")).unwrap();
    assert_eq!(message, expected);
    assert_ne!(message, expected.replace("no period", "a period"));
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
    for entry in std::fs::read_dir(root().join("corpus/invalid")).unwrap() {
        let path = entry.unwrap().path();
        let known = ["yaml", "toml", "json"]
            .iter()
            .any(|ending| path.with_extension(ending).exists());
        assert!(known, "{} has no policy beside it", path.display());
    }
}

/// The messages in the product code of these folders: every string literal with at least two words, split at its
/// placeholders.
fn sentences() -> Vec<(String, Vec<String>)> {
    let mut all = Vec::new();
    for folder in ["src/read", "src/check", "src/grammar"] {
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
                // Example maps and field descriptions are not messages.
                let is_example = literal.starts_with("{ ") || literal.contains(": {");
                // No number in a policy may be zero. Test files have such numbers, and their tests cover the message.
                let is_elsewhere = literal == "write a number up to {max}";
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

/// The string literals of Rust code.
fn literals(code: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut rest = code.chars();
    let mut before = ' ';
    while let Some(character) = rest.next() {
        // A quote inside a character literal does not open a string.
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

/// Splits a format string at its placeholders. `{{` is a brace.
fn pieces(literal: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut rest = literal.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '{' | '}' if rest.peek() == Some(&character) => {
                rest.next();
                all.last_mut().unwrap().push(character);
            }
            // A placeholder is empty or a name; any other brace is part of the text.
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

/// Whether a text contains all pieces in order.
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

/// Every message in the source occurs in the corpus, so that somebody has read it at least once.
#[test]
fn every_message_has_an_invalid_policy_that_causes_it() {
    let mut message = Vec::new();
    let mut add = |text: &str, name: &str| {
        let diagnostics = load(
            text,
            name,
            SourceFormat::from_path(Path::new(name)).unwrap(),
        )
        .unwrap_err();
        for diagnostic in diagnostics.list {
            message.push(diagnostic.message);
            message.extend(diagnostic.help);
        }
    };
    for path in policies(&root().join("corpus/invalid")) {
        add(&std::fs::read_to_string(&path).unwrap(), &name_of(&path));
    }
    // Too long for a file.
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
        .filter(|(_, pieces)| !message.iter().any(|text| contains_in_order(text, pieces)))
        .map(|(shown, _)| &**shown)
        .collect();
    assert!(
        never.is_empty(),
        "no wrong policy provokes:\n{}",
        never.join("\n")
    );
}

#[test]
fn every_valid_policy_is_accepted() {
    let files = policies(&root().join("corpus/valid"));
    assert!(files.len() >= 3);
    for path in files {
        if let Err(message) = verdict(&path) {
            panic!("{message}");
        }
    }
}

#[test]
fn every_valid_policy_survives_a_round_trip() {
    let mut files = policies(&root().join("corpus/valid"));
    files.extend(policies(&root().join("../../policies")));
    for path in files {
        let policy = verdict(&path).unwrap();
        let written = super::write_json::policy(&policy);
        let again = load(&written, "written.json", SourceFormat::Json)
            .unwrap_or_else(|message| panic!("{message}\n{written}"));
        assert_eq!(again, policy, "{}\n{written}", path.display());
    }
}

#[test]
fn every_valid_policy_passes_the_schema() {
    let mut files = policies(&root().join("corpus/valid"));
    files.extend(policies(&root().join("../../policies")));
    for path in files
        .iter()
        .filter(|path| SourceFormat::from_path(path) == Some(SourceFormat::Yaml))
    {
        let errors = crate::schema::tests::schema_errors(&std::fs::read_to_string(path).unwrap());
        assert!(errors.is_empty(), "{}: {errors:#?}", path.display());
    }
}

#[test]
fn the_same_policy_in_yaml_toml_and_json_is_equal() {
    let read = |ending| {
        verdict(
            &root()
                .join("corpus/valid/everything")
                .with_extension(ending),
        )
        .unwrap()
    };
    let yaml = read("yaml");
    assert_eq!(yaml, read("toml"));
    assert_eq!(yaml, read("json"));
}

#[test]
fn the_shipped_policies_are_accepted() {
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
        if let Err(message) = load_path(&path) {
            panic!("{message}");
        }
    }
}

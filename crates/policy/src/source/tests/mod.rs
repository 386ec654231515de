//! What the three formats have in common, and what each rejects.
//!
//! Must not know: fields.

mod json;
mod toml;
mod yaml;

use std::fmt::Write as _;

use super::{
    MAX_BYTES, MAX_DEPTH, MapEntry, SourceFormat, SourceNode, SourceValue, find_duplicate_names,
    parse,
};

/// A tree as text with all locations, to compare whole trees.
fn node_text(node: &SourceNode) -> String {
    let mut out = String::new();
    write_node(node, &mut out);
    out
}

fn write_node(node: &SourceNode, out: &mut String) {
    let location = node.location;
    match &node.value {
        SourceValue::Null => out.push('-'),
        SourceValue::Scalar { text, quoted: true } => write!(out, "{text:?}").unwrap(),
        SourceValue::Scalar { text, .. } => out.push_str(text),
        SourceValue::List(values) => {
            out.push('[');
            for value in values {
                write_node(value, out);
                out.push(' ');
            }
            out.push(']');
        }
        SourceValue::Map(entries) => {
            out.push('{');
            for MapEntry { name, value } in entries {
                let at = name.location;
                write!(
                    out,
                    "{}@{}:{}+{} ",
                    name.value, at.line, at.column, at.width
                )
                .unwrap();
                write_node(value, out);
                out.push(' ');
            }
            out.push('}');
        }
    }
    write!(
        out,
        "@{}:{}+{}",
        location.line, location.column, location.width
    )
    .unwrap();
}

fn yaml(text: &str) -> String {
    node_text(&parse(text, SourceFormat::Yaml).unwrap())
}

/// The first diagnostic: `line:column+width message | help`.
fn first_error(text: &str, format: SourceFormat) -> String {
    let diagnostics = parse(text, format).expect_err(text);
    let first = &diagnostics[0];
    let location = first.location;
    format!(
        "{}:{}+{} {} | {}",
        location.line,
        location.column,
        location.width,
        first.message,
        first.help.as_deref().unwrap_or("-")
    )
}

fn assert_errors(format: SourceFormat, table: &[(&str, &str)]) {
    let mut different = String::new();
    for (text, expected) in table {
        let error = first_error(text, format);
        if !error.starts_with(expected) {
            writeln!(
                different,
                "{text:?}\n  actual   {error}\n  expected {expected}"
            )
            .unwrap();
        }
    }
    assert!(different.is_empty(), "{different}");
}

#[test]
fn an_empty_text_is_an_error() {
    for (text, format) in [
        ("", SourceFormat::Yaml),
        ("\u{feff}", SourceFormat::Yaml),
        ("# limits:\n\n", SourceFormat::Yaml),
        ("---\n...\n", SourceFormat::Yaml),
        ("~", SourceFormat::Yaml),
        ("{}", SourceFormat::Yaml),
        ("", SourceFormat::Toml),
        ("# x\n", SourceFormat::Toml),
        (" \n", SourceFormat::Json),
        ("null", SourceFormat::Json),
        ("{}", SourceFormat::Json),
        ("{\"$schema\": \"x\"}", SourceFormat::Json),
    ] {
        let error = first_error(text, format);
        assert!(
            error.starts_with("1:1+1 the file is empty"),
            "{text:?}: {error}"
        );
    }
}

#[test]
fn duplicate_names_are_reported_with_both_lines() {
    for (text, format) in [
        (
            "limits:\n- rate: 1\n  x: {rate: 2}\n  rate: 3\n",
            SourceFormat::Yaml,
        ),
        (
            "{\"limits\":\n[{\"rate\": 1,\n\"x\": {\"rate\": 2},\n\"rate\": 3}]}\n",
            SourceFormat::Json,
        ),
    ] {
        let duplicates = find_duplicate_names(&parse(text, format).unwrap());
        assert_eq!(duplicates.len(), 1, "{text}");
        assert_eq!(
            &*duplicates[0].message,
            "`rate` is given twice; first on line 2"
        );
        assert_eq!(duplicates[0].location.line, 4);
    }
    let once = parse("a: {x: 1}\nb: {x: 1}\n", SourceFormat::Yaml).unwrap();
    assert_eq!(find_duplicate_names(&once), []);
}

/// A text with lists nested this deep.
fn nested(depth: usize, format: SourceFormat) -> String {
    let lists = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    match format {
        SourceFormat::Toml => format!("a = {lists}\n"),
        _ => lists,
    }
}

#[test]
fn nesting_depth_is_bounded_in_every_format() {
    for format in [SourceFormat::Yaml, SourceFormat::Toml, SourceFormat::Json] {
        // In TOML the file itself is a table, which is the first level.
        let most = if format == SourceFormat::Toml {
            MAX_DEPTH - 1
        } else {
            MAX_DEPTH
        };
        parse(&nested(most, format), format).unwrap();
        for depth in [most + 1, 60, 1_000, 100_000] {
            let error = first_error(&nested(depth, format), format);
            assert!(error.contains("deep"), "{format:?} {depth}: {error}");
        }
    }
    let dashes = format!("{}1\n", "- ".repeat(40));
    assert!(first_error(&dashes, SourceFormat::Yaml).contains("deep"));
    let dots = format!("{}a = 1\n", "a.".repeat(50_000));
    assert!(first_error(&dots, SourceFormat::Toml).contains("deep"));
    let header = format!("[{}a]\n", "a.".repeat(40));
    assert!(first_error(&header, SourceFormat::Toml).contains("deep"));
}

#[test]
fn length_and_number_of_values_are_bounded() {
    let long = format!("a: {}\n", "x".repeat(MAX_BYTES));
    let many = format!("a: [{}1]\n", "1,".repeat(250_000));
    let json = format!("[{}1]", "1,".repeat(250_000));
    let toml = format!("a = [{}1]", "1,".repeat(250_000));
    assert!(first_error(&long, SourceFormat::Yaml).contains("bytes"));
    assert!(first_error(&many, SourceFormat::Yaml).contains("more than 200000 values"));
    assert!(first_error(&json, SourceFormat::Json).contains("more than 200000 values"));
    assert!(first_error(&toml, SourceFormat::Toml).contains("more than 200000 values"));
    parse(&format!("[{}1]", "1,".repeat(150_000)), SourceFormat::Json).unwrap();
}

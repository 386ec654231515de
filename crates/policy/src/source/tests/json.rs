//! JSON: locations, syntax errors, and a comparison with `serde_json`.

use proptest::prelude::*;

use super::{assert_errors, node_text, yaml};
use crate::source::{SourceFormat, SourceNode, SourceValue, parse};

#[test]
fn json_values_have_locations() {
    let text =
        "{ \"é\": [1, -2.5e3, true, null],\r\n  \"b\": {\"c\": \"x\\u00e9\\ud83d\\ude00\\n\"} }\n";
    assert_eq!(
        node_text(&parse(text, SourceFormat::Json).unwrap()),
        "{é@1:3+3 [1@1:9+1 -2.5e3@1:12+6 true@1:20+4 -@1:26+4 ]@1:8+23 b@2:3+3 \
         {c@2:9+3 \"xé😀\\n\"@2:14+23 }@2:8+30 }@1:1+31"
    );
}

#[test]
fn json_is_parsed_strictly_and_errors_have_readable_messages() {
    assert_errors(
        SourceFormat::Json,
        &[
            ("{\"a\": 1,}", "1:8+1 trailing comma"),
            ("{\"a\": 1} x", "1:10+1 unexpected text after the value"),
            ("{\"a\": 1 // no\n}", "1:9+1 JSON has no comments"),
            ("{'a': 1}", "1:2+1 JSON strings need double quotes"),
            ("{a: 1}", "1:2+1 expected a name in double quotes"),
            ("{\"a\" 1}", "1:6+1 expected `:`"),
            ("{\"a\": 10/s}", "1:7+4 `10/s` is not a JSON number"),
            ("{\"a\": 01}", "1:7+2 `01` is not a JSON number"),
            ("{\"a\": yes}", "1:7+3 `yes` is not a JSON value"),
            (
                "{\"a\": \"x\n\"}",
                "1:7+2 this text has no closing quote on its line",
            ),
            ("{\"a\": \"\\d\"}", "1:8+2 unknown escape"),
            ("{\"a\": \"\\ud800\"}", "1:8+6 invalid Unicode escape"),
            (
                "{\"a\": \"\t\"}",
                "1:8+1 the control character \\u{9} must be escaped",
            ),
            ("{\"a\": [1", "1:9+1 unexpected end of file"),
            ("[1 2]", "1:4+1 expected `,` or `]`"),
        ],
    );
}

#[test]
fn the_schema_property_of_json_is_ignored() {
    let tree = parse(
        "{\"$schema\": \"x\", \"a\": {\"$schema\": 1}}",
        SourceFormat::Json,
    )
    .unwrap();
    assert_eq!(
        node_text(&tree),
        "{a@1:18+3 {$schema@1:24+9 1@1:35+1 }@1:23+14 }@1:1+37"
    );
    assert!(yaml("$schema: x\n").contains("$schema"));
}

/// Compares a tree with the value of `serde_json`.
fn same(ours: &SourceNode, theirs: &serde_json::Value) -> bool {
    match (&ours.value, theirs) {
        (SourceValue::Null, serde_json::Value::Null) => true,
        (SourceValue::Scalar { text, quoted: true }, serde_json::Value::String(error)) => {
            **text == **error
        }
        (
            SourceValue::Scalar {
                text,
                quoted: false,
            },
            serde_json::Value::Bool(error),
        ) => **text == *error.to_string(),
        (
            SourceValue::Scalar {
                text,
                quoted: false,
            },
            serde_json::Value::Number(error),
        ) => text.parse::<f64>().ok() == error.as_f64(),
        (SourceValue::List(ours), serde_json::Value::Array(theirs)) => {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| same(a, b))
        }
        (SourceValue::Map(ours), serde_json::Value::Object(theirs)) => ours.iter().all(|entry| {
            // `serde_json` keeps the last of two equal names.
            let last = ours.iter().rfind(|other| other.name == entry.name);
            theirs
                .get(&*entry.name.value)
                .zip(last)
                .is_some_and(|(value, last)| same(&last.value, value))
        }),
        _ => false,
    }
}

/// Whether both parse a text to the same value, or both reject it.
fn agree(text: &str) -> bool {
    match (
        parse(text, SourceFormat::Json),
        serde_json::from_str::<serde_json::Value>(text),
    ) {
        (Ok(ours), Ok(theirs)) => same(&ours, &theirs),
        (Err(_), Err(_)) => true,
        // We keep numbers as written; `serde_json` rejects numbers out of the range of floats.
        (Ok(_), Err(error)) => error.to_string().contains("out of range"),
        (Err(diagnostics), Ok(_)) => diagnostics[0].message.contains("is empty"),
    }
}

#[test]
fn control_the_comparison_with_serde_json_detects_differences() {
    let ours = parse("{\"a\": [1, \"x\"]}", SourceFormat::Json).unwrap();
    for other in [
        "{\"a\": [1, \"y\"]}",
        "{\"a\": [1]}",
        "{\"b\": [1, \"x\"]}",
        "[1]",
    ] {
        assert!(
            !same(&ours, &serde_json::from_str(other).unwrap()),
            "{other}"
        );
    }
}

/// Texts, some of which need quotes and escapes, in lists and maps.
fn any_tree() -> impl Strategy<Value = serde_json::Value> {
    let text = || {
        prop_oneof![
            "[a-z]{1,5}",
            "[ -~]{0,12}",
            "\\PC{0,8}",
            Just("present".to_owned()),
            Just("~".to_owned()),
            Just("1e3".to_owned()),
            Just("x".repeat(900)),
        ]
    };
    let leaf = text().prop_map(serde_json::Value::from);
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            prop::collection::btree_map(text(), inner, 0..4)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn json_is_parsed_like_serde_json(
        pieces in prop::collection::vec(
            prop::sample::select(vec![
                "{", "}", "[", "]", ",", ":", "\"", "\"a\"", "\"b\":", "1", "0", "-", ".5", "e3", "true", "null",
                " ", "\n", "\t", "\\n", "\\u00e9", "\\ud83d\\ude00", "é", "/", "\u{1}", "[1,2]", "{\"a\":1}",
            ]),
            0..12,
        )
    ) {
        let text = pieces.concat();
        prop_assert!(agree(&text), "{text:?}");
        let wrapped = format!("[{text}]");
        prop_assert!(agree(&wrapped), "{wrapped:?}");
    }

    /// JSON with quoted texts is also YAML, so both parsers must return the same tree.
    #[test]
    fn quoted_texts_are_parsed_alike_as_yaml_and_as_json(tree in any_tree()) {
        let text = serde_json::Value::Array(vec![tree]).to_string();
        let yaml = parse(&text, SourceFormat::Yaml);
        let yaml = yaml.map_err(|diagnostics| TestCaseError::fail(format!("{diagnostics:?}\n{text}")))?;
        prop_assert!(same(&yaml, &serde_json::from_str(&text).unwrap()), "{text}");
        prop_assert_eq!(parse(&text, SourceFormat::Json).map(|json| node_text(&json)), Ok(node_text(&yaml)));
    }

    #[test]
    fn no_text_in_any_format_panics_the_parser(text in "[ -~\n\t\r\u{feff}é{}\\[\\]:,#&*!|>'\"%@-]{0,60}") {
        for format in [SourceFormat::Yaml, SourceFormat::Toml, SourceFormat::Json] {
            if let Err(diagnostics) = parse(&text, format) {
                prop_assert!(!diagnostics.is_empty());
                for diagnostic in diagnostics {
                    prop_assert!(diagnostic.location.line > 0 && diagnostic.location.column > 0 && diagnostic.location.width > 0);
                }
            }
        }
    }
}

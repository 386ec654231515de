//! What the three formats have in common, and where each is refused.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::{
    MAX_BYTES, MAX_DEPTH, MapEntry, SourceFormat, SourceNode, SourceValue, find_duplicate_names,
    parse,
};

/// A tree as a text with the place of everything, to compare whole trees at once.
fn shown(node: &SourceNode) -> String {
    let mut out = String::new();
    show(node, &mut out);
    out
}

fn show(node: &SourceNode, out: &mut String) {
    let place = node.location;
    match &node.value {
        SourceValue::Null => out.push('-'),
        SourceValue::Scalar { text, quoted: true } => write!(out, "{text:?}").unwrap(),
        SourceValue::Scalar { text, .. } => out.push_str(text),
        SourceValue::List(values) => {
            out.push('[');
            for value in values {
                show(value, out);
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
                show(value, out);
                out.push(' ');
            }
            out.push('}');
        }
    }
    write!(out, "@{}:{}+{}", place.line, place.column, place.width).unwrap();
}

fn yaml(text: &str) -> String {
    shown(&parse(text, SourceFormat::Yaml).unwrap())
}

/// The first problem: `line:column+width message | help`.
fn wrong(text: &str, format: SourceFormat) -> String {
    let problems = parse(text, format).expect_err(text);
    let first = &problems[0];
    let place = first.location;
    format!(
        "{}:{}+{} {} | {}",
        place.line,
        place.column,
        place.width,
        first.message,
        first.help.as_deref().unwrap_or("-")
    )
}

fn assert_wrong(format: SourceFormat, table: &[(&str, &str)]) {
    let mut different = String::new();
    for (text, expected) in table {
        let said = wrong(text, format);
        if !said.starts_with(expected) {
            writeln!(
                different,
                "{text:?}\n  said     {said}\n  expected {expected}"
            )
            .unwrap();
        }
    }
    assert!(different.is_empty(), "{different}");
}

#[test]
fn yaml_values_know_their_places() {
    assert_eq!(
        yaml("mode: shadow\nlimits:\n  - name: a\n    rate: \"10/s\"\n"),
        "{mode@1:1+4 shadow@1:7+6 limits@2:1+6 \
         [{name@3:5+4 a@3:11+1 rate@4:5+4 \"10/s\"@4:11+6 }@3:5+4 ]@3:3+1 }@1:1+4"
    );
    assert_eq!(
        yaml("é: [ü, {x: 'y'}] # no\n"),
        "{é@1:1+1 [ü@1:5+1 {x@1:9+1 \"y\"@1:12+3 }@1:8+8 ]@1:4+13 }@1:1+1"
    );
}

#[test]
fn yaml_places_do_not_move_with_a_byte_order_mark_or_other_line_ends() {
    let plain = yaml("a: 1\nb:\n  - x\n  - 'y'\n");
    for text in [
        "\u{feff}a: 1\nb:\n  - x\n  - 'y'\n",
        "a: 1\r\nb:\r\n  - x\r\n  - 'y'\r\n",
        "a: 1\rb:\r  - x\r  - 'y'\r",
        "a:\t1\nb:\n  -\tx\n  - 'y'\n",
    ] {
        assert_eq!(yaml(text), plain, "{text:?}");
    }
    // Negative control: the comparison sees places.
    assert_ne!(yaml("a: 1\nb:\n - x\n - 'y'\n"), plain);
}

#[test]
fn what_yaml_leaves_empty_is_nothing_and_stands_at_its_name() {
    assert_eq!(
        yaml("rate:\nburst: ~\nnull: NULL\ntext: \"\"\n"),
        "{rate@1:1+4 -@1:1+4 burst@2:1+5 -@2:8+1 null@3:1+4 -@3:7+4 text@4:1+4 \"\"@4:7+2 }@1:1+4"
    );
}

#[test]
fn numbers_and_words_stay_as_they_are_written() {
    assert_eq!(
        yaml("[1_000, 0x1F, 1.50, yes, 007, 10.0.0.0/8, '+02:00', \"a\\nb\"]"),
        "[1_000@1:2+5 0x1F@1:9+4 1.50@1:15+4 yes@1:21+3 007@1:26+3 10.0.0.0/8@1:31+10 \
         \"+02:00\"@1:43+8 \"a\\nb\"@1:53+6 ]@1:1+59"
    );
}

#[test]
fn block_texts_are_texts() {
    let tree = yaml("message: |\n  one\n  two\n");
    assert!(tree.contains("\"one\\ntwo\\n\""), "{tree}");
}

#[test]
fn yaml_that_says_more_than_it_shows_is_refused() {
    assert_wrong(
        SourceFormat::Yaml,
        &[
            ("a: &x 1\n", "1:4+2 `&x` is an anchor"),
            ("a: &x 1\nb: *x\n", "1:4+2 `&x` is an anchor"),
            (
                "host: *.example.com\n",
                "1:7+13 YAML reads `*.example.com` as an alias, and a policy has none | quote a text that begins with `*`: \"*.example.com\"",
            ),
            ("host: *\n", "1:7+1 a value that begins with `*`"),
            ("a: !!str 5\n", "1:4+5 YAML reads `!!str` as a tag"),
            ("a: !no x\n", "1:4+3 YAML reads `!no` as a tag"),
            ("a: 1\n<<: {b: 2}\n", "2:1+2 `<<` merges"),
            ("a: 1\n---\nb: 2\n", "2:1+3 a second document begins here"),
            (
                "? [a]\n: 1\n",
                "1:3+3 a list or a map stands here as a name",
            ),
            ("a: 1\n: 2\n", "2:1+1 a name is missing before this `:`"),
        ],
    );
    // Negative controls: the same texts in quotes, and one document with its line.
    for text in [
        "---\nhost: '*.example.com'\n",
        "'<<': 1\n...\n",
        "a: '&x'\n",
        "a: \"!no\"\n",
    ] {
        parse(text, SourceFormat::Yaml).expect(text);
    }
}

#[test]
fn everything_that_is_refused_is_told_at_once() {
    let problems = parse("a: &x 1\nb: !t 2\nc: *x\n", SourceFormat::Yaml).unwrap_err();
    let lines: Vec<_> = problems
        .iter()
        .map(|problem| problem.location.line)
        .collect();
    assert_eq!(lines, [1, 2, 3]);
}

#[test]
fn yaml_errors_are_told_in_plain_words() {
    assert_wrong(
        SourceFormat::Yaml,
        &[
            ("a:\n\tb: 1\n", "2:1+1 a tab stands where YAML wants spaces"),
            ("a: 'x\nb: 1\n", "2:1+1 a text in quotes goes on here"),
            ("a: \"x", "1:4+1 this text has no closing quote"),
            (
                "routes: [/v1/items/{id}]\n",
                "1:20+1 inside `[…]` a bracket ends a text",
            ),
            (
                "a: {route: /v1/{id}/x}\n",
                "1:16+1 inside `{…}` a bracket ends a text",
            ),
            ("a: [1, 2\nb: 3\n", "2:2+1 a `:` cannot stand here"),
            ("a: {b: 1\n", "1:4+1 this `{` is never closed"),
            ("a: [1}\n", "1:4+1 this `[` is closed by `}`"),
            ("a: 1]\nb: ]\n", "2:4+1 this bracket closes nothing"),
            ("a: @x\n", "1:4+1 a value cannot begin with `@`"),
            ("a: %5\n", "1:4+1 a value cannot begin with `%`"),
            ("a: b: c\n", "1:5+1 a `:` cannot stand here"),
            ("a: 1\n  b: 2\n", "2:4+1 a `:` cannot stand here"),
            (
                "  a: 1\n b: 2\n",
                "2:2+1 this does not belong to what stands above it",
            ),
            ("a: 1\nrate 5\nb: 2\n", "2:1+1 a `:` is missing"),
            ("a: 1\n- b\n", "2:1+1 a list and fields of a map"),
            ("a:\n  b: 1\n c: 2\n", "3:2+1 this line is indented"),
            ("a: 'x' y\n", "1:8+1 something follows a text in quotes"),
            ("a: \"\\d\"\n", "1:4+1 this text has an escape"),
        ],
    );
}

#[test]
fn toml_values_know_their_places_and_keep_their_order() {
    let text = "mode = \"off\"\n# é\n[[limits]]\nname = 'a'\nid = 1_000\nx.y = [true, 2.50]\n\n[fleet]\nnodes = 3\n";
    assert_eq!(
        shown(&parse(text, SourceFormat::Toml).unwrap()),
        "{mode@1:1+4 \"off\"@1:8+5 limits@3:3+6 [{name@4:1+4 \"a\"@4:8+3 id@5:1+2 1_000@5:6+5 \
         x@6:1+1 {y@6:3+1 [true@6:8+4 2.50@6:14+4 ]@6:7+12 }@6:1+1 }@3:1+10 ]@3:1+10 \
         fleet@8:2+5 {nodes@9:1+5 3@9:9+1 }@8:1+7 }@1:1+1"
    );
}

#[test]
fn toml_errors_name_both_places_and_speak_plainly() {
    assert_wrong(
        SourceFormat::Toml,
        &[
            (
                "a = 1\nb = { rate = 1 }\nrate = 2\n\"rate\" = 3\n",
                "4:1+6 `rate` is given twice; first on line 3",
            ),
            (
                "[[limits]]\nrate = 1\n[[limits]]\nrate = 2\nrate = 3\n",
                "5:1+4 `rate` is given twice; first on line 4",
            ),
            (
                "[fleet]\nnodes = 1\n[fleet]\nnodes = 2\n",
                "3:2+5 `fleet` is given twice; first on line 1",
            ),
            ("rate = 10/s\n", "1:"),
            ("rate\n", "1:"),
            ("a = [1\n", "1:"),
        ],
    );
    for text in ["rate = 10/s\n", "rate\n", "a = [1\n"] {
        assert!(
            wrong(text, SourceFormat::Toml).contains("this is not valid TOML"),
            "{text}"
        );
    }
}

#[test]
fn json_values_know_their_places() {
    let text =
        "{ \"é\": [1, -2.5e3, true, null],\r\n  \"b\": {\"c\": \"x\\u00e9\\ud83d\\ude00\\n\"} }\n";
    assert_eq!(
        shown(&parse(text, SourceFormat::Json).unwrap()),
        "{é@1:3+3 [1@1:9+1 -2.5e3@1:12+6 true@1:20+4 -@1:26+4 ]@1:8+23 b@2:3+3 \
         {c@2:9+3 \"xé😀\\n\"@2:14+23 }@2:8+30 }@1:1+31"
    );
}

#[test]
fn json_is_read_strictly_and_refused_in_plain_words() {
    assert_wrong(
        SourceFormat::Json,
        &[
            ("{\"a\": 1,}", "1:8+1 there is nothing after this comma"),
            (
                "{\"a\": 1} x",
                "1:10+1 the file goes on after its value has ended",
            ),
            ("{\"a\": 1 // no\n}", "1:9+1 JSON has no comments"),
            ("{'a': 1}", "1:2+1 JSON knows only double quotes"),
            ("{a: 1}", "1:2+1 a name should stand here"),
            ("{\"a\" 1}", "1:6+1 a `:` should stand here"),
            ("{\"a\": 10/s}", "1:7+4 `10/s` is not a JSON number"),
            ("{\"a\": 01}", "1:7+2 `01` is not a JSON number"),
            ("{\"a\": yes}", "1:7+3 `yes` is not a JSON value"),
            (
                "{\"a\": \"x\n\"}",
                "1:7+2 this text has no closing quote on its line",
            ),
            ("{\"a\": \"\\d\"}", "1:8+2 JSON does not know this escape"),
            (
                "{\"a\": \"\\ud800\"}",
                "1:8+6 this escape names no character",
            ),
            (
                "{\"a\": \"\t\"}",
                "1:8+1 the character \\u{9} may not stand",
            ),
            ("{\"a\": [1", "1:9+1 the file ends here"),
            ("[1 2]", "1:4+1 a `,` or `]` should stand here"),
        ],
    );
}

#[test]
fn a_text_that_says_nothing_is_never_a_policy_without_limits() {
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
        let said = wrong(text, format);
        assert!(
            said.starts_with("1:1+1 the file says nothing"),
            "{text:?}: {said}"
        );
    }
}

#[test]
fn what_json_tells_editors_is_not_part_of_the_policy() {
    let tree = parse(
        "{\"$schema\": \"x\", \"a\": {\"$schema\": 1}}",
        SourceFormat::Json,
    )
    .unwrap();
    assert_eq!(
        shown(&tree),
        "{a@1:18+3 {$schema@1:24+9 1@1:35+1 }@1:23+14 }@1:1+37"
    );
    assert!(yaml("$schema: x\n").contains("$schema"));
}

#[test]
fn names_that_stand_twice_are_told_with_both_lines() {
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
        let twice = find_duplicate_names(&parse(text, format).unwrap());
        assert_eq!(twice.len(), 1, "{text}");
        assert_eq!(&*twice[0].message, "`rate` is given twice; first on line 2");
        assert_eq!(twice[0].location.line, 4);
    }
    let once = parse("a: {x: 1}\nb: {x: 1}\n", SourceFormat::Yaml).unwrap();
    assert_eq!(find_duplicate_names(&once), []);
}

/// A text with lists so deep in each other.
fn nested(depth: usize, format: SourceFormat) -> String {
    let lists = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    match format {
        SourceFormat::Toml => format!("a = {lists}\n"),
        _ => lists,
    }
}

#[test]
fn depth_is_bounded_in_every_format_whatever_is_written() {
    for format in [SourceFormat::Yaml, SourceFormat::Toml, SourceFormat::Json] {
        // In TOML the file itself is a table, which is the first level.
        let most = if format == SourceFormat::Toml {
            MAX_DEPTH - 1
        } else {
            MAX_DEPTH
        };
        parse(&nested(most, format), format).unwrap();
        for depth in [most + 1, 60, 1_000, 100_000] {
            let said = wrong(&nested(depth, format), format);
            assert!(said.contains("deep"), "{format:?} {depth}: {said}");
        }
    }
    let dashes = format!("{}1\n", "- ".repeat(40));
    assert!(wrong(&dashes, SourceFormat::Yaml).contains("deep"));
    let dots = format!("{}a = 1\n", "a.".repeat(50_000));
    assert!(wrong(&dots, SourceFormat::Toml).contains("deep"));
    let header = format!("[{}a]\n", "a.".repeat(40));
    assert!(wrong(&header, SourceFormat::Toml).contains("deep"));
}

#[test]
fn length_and_number_of_values_are_bounded() {
    let long = format!("a: {}\n", "x".repeat(MAX_BYTES));
    let many = format!("a: [{}1]\n", "1,".repeat(250_000));
    let json = format!("[{}1]", "1,".repeat(250_000));
    let toml = format!("a = [{}1]", "1,".repeat(250_000));
    assert!(wrong(&long, SourceFormat::Yaml).contains("bytes"));
    assert!(wrong(&many, SourceFormat::Yaml).contains("more than 200000 values"));
    assert!(wrong(&json, SourceFormat::Json).contains("more than 200000 values"));
    assert!(wrong(&toml, SourceFormat::Toml).contains("more than 200000 values"));
    parse(&format!("[{}1]", "1,".repeat(150_000)), SourceFormat::Json).unwrap();
}

/// What the usual library makes of a JSON text, as far as it can be compared.
fn same(ours: &SourceNode, theirs: &serde_json::Value) -> bool {
    match (&ours.value, theirs) {
        (SourceValue::Null, serde_json::Value::Null) => true,
        (SourceValue::Scalar { text, quoted: true }, serde_json::Value::String(said)) => {
            **text == **said
        }
        (
            SourceValue::Scalar {
                text,
                quoted: false,
            },
            serde_json::Value::Bool(said),
        ) => **text == *said.to_string(),
        (
            SourceValue::Scalar {
                text,
                quoted: false,
            },
            serde_json::Value::Number(said),
        ) => text.parse::<f64>().ok() == said.as_f64(),
        (SourceValue::List(ours), serde_json::Value::Array(theirs)) => {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| same(a, b))
        }
        (SourceValue::Map(ours), serde_json::Value::Object(theirs)) => ours.iter().all(|entry| {
            // Of two with one name the library keeps the last.
            let last = ours.iter().rfind(|other| other.name == entry.name);
            theirs
                .get(&*entry.name.value)
                .zip(last)
                .is_some_and(|(value, last)| same(&last.value, value))
        }),
        _ => false,
    }
}

/// Whether both read a text alike, or both refuse it.
fn agree(text: &str) -> bool {
    match (
        parse(text, SourceFormat::Json),
        serde_json::from_str::<serde_json::Value>(text),
    ) {
        (Ok(ours), Ok(theirs)) => same(&ours, &theirs),
        (Err(_), Err(_)) => true,
        // Numbers are ours to keep as written; the library refuses what no float holds.
        (Ok(_), Err(error)) => error.to_string().contains("out of range"),
        (Err(problems), Ok(_)) => problems[0].message.contains("says nothing"),
    }
}

#[test]
fn the_comparison_with_the_usual_library_can_tell_a_difference() {
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

/// Texts that are plain, or such that only quotes and escapes keep them whole, in lists and maps.
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
    fn json_is_read_as_the_usual_library_reads_it(
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

    /// JSON whose texts are quoted is YAML too, so both readers must find the same tree in it.
    #[test]
    fn quoted_texts_are_read_alike_as_yaml_and_as_json(tree in any_tree()) {
        let text = serde_json::Value::Array(vec![tree]).to_string();
        let yaml = parse(&text, SourceFormat::Yaml);
        let yaml = yaml.map_err(|problems| TestCaseError::fail(format!("{problems:?}\n{text}")))?;
        prop_assert!(same(&yaml, &serde_json::from_str(&text).unwrap()), "{text}");
        prop_assert_eq!(parse(&text, SourceFormat::Json).map(|json| shown(&json)), Ok(shown(&yaml)));
    }

    #[test]
    fn no_text_in_any_format_does_harm(text in "[ -~\n\t\r\u{feff}é{}\\[\\]:,#&*!|>'\"%@-]{0,60}") {
        for format in [SourceFormat::Yaml, SourceFormat::Toml, SourceFormat::Json] {
            if let Err(problems) = parse(&text, format) {
                prop_assert!(!problems.is_empty());
                for problem in problems {
                    prop_assert!(problem.location.line > 0 && problem.location.column > 0 && problem.location.width > 0);
                }
            }
        }
    }
}

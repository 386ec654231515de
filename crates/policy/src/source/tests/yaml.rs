//! YAML: locations, rejected features and syntax errors.

use super::{assert_errors, yaml};
use crate::source::{MAX_DEPTH, SourceFormat, SourceValue, parse};

#[test]
fn yaml_values_have_locations() {
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
fn yaml_locations_do_not_depend_on_byte_order_marks_and_line_ends() {
    let plain = yaml("a: 1\nb:\n  - x\n  - 'y'\n");
    for text in [
        "\u{feff}a: 1\nb:\n  - x\n  - 'y'\n",
        "a: 1\r\nb:\r\n  - x\r\n  - 'y'\r\n",
        "a: 1\rb:\r  - x\r  - 'y'\r",
        "a:\t1\nb:\n  -\tx\n  - 'y'\n",
    ] {
        assert_eq!(yaml(text), plain, "{text:?}");
    }
    // Negative control: the comparison includes locations.
    assert_ne!(yaml("a: 1\nb:\n - x\n - 'y'\n"), plain);
}

#[test]
fn an_empty_yaml_value_is_null_at_the_location_of_its_name() {
    assert_eq!(
        yaml("rate:\nburst: ~\nnull: NULL\ntext: \"\"\n"),
        "{rate@1:1+4 -@1:1+4 burst@2:1+5 -@2:8+1 null@3:1+4 -@3:7+4 text@4:1+4 \"\"@4:7+2 }@1:1+4"
    );
}

#[test]
fn numbers_and_words_are_kept_as_written() {
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
fn tags_second_documents_and_texts_that_look_like_anchors_are_rejected() {
    assert_errors(
        SourceFormat::Yaml,
        &[
            (
                "host: *.example.com\n",
                "1:7+13 YAML reads `*.example.com` as an alias, and no value above has that anchor | quote a text that begins with `*`: \"*.example.com\"",
            ),
            ("b: *x\na: &x 1\n", "1:4+2 YAML reads `*x` as an alias"),
            (
                "word: &secret\n",
                "1:1+4 YAML reads a text that begins with `&` as an anchor, and no value follows it",
            ),
            (
                "a: &x [1, *x]\n",
                "1:11+2 this alias is inside the value that it stands for",
            ),
            (
                "a: &x [1]\n*x : 1\n",
                "2:1+2 a list or a map cannot be a name",
            ),
            ("host: *\n", "1:7+1 a value that begins with `*`"),
            ("a: !!str 5\n", "1:4+5 YAML reads `!!str` as a tag"),
            ("a: !no x\n", "1:4+3 YAML reads `!no` as a tag"),
            ("a: 1\n<<: 2\n", "2:5+1 `<<` is a merge key"),
            ("a: 1\n<<: [{b: 1}, 2]\n", "2:5+11 `<<` is a merge key"),
            ("a: 1\n---\nb: 2\n", "2:1+3 a second document begins here"),
            ("? [a]\n: 1\n", "1:3+3 a list or a map cannot be a name"),
            ("a: 1\n: 2\n", "2:1+1 a name is missing before this `:`"),
        ],
    );
    // Negative controls: the same texts in quotes, and one document with its marker.
    for text in [
        "---\nhost: '*.example.com'\n",
        "'<<': 1\n...\n",
        "a: '&x'\n",
        "a: \"!no\"\n",
    ] {
        parse(text, SourceFormat::Yaml).expect(text);
    }
}

/// Files of envoyproxy/ratelimit use anchors for limits that repeat. They were refused.
#[test]
fn an_alias_is_a_copy_of_the_value_with_its_anchor() {
    assert_eq!(
        yaml("a: &x [1, {b: 2}]\nc: *x\n&n name: &y text\n*n : *y\n"),
        "{a@1:1+1 [1@1:8+1 {b@1:12+1 2@1:15+1 }@1:11+6 ]@1:7+11 \
         c@2:1+1 [1@1:8+1 {b@1:12+1 2@1:15+1 }@1:11+6 ]@2:4+2 \
         name@3:4+4 text@3:13+4 name@4:1+2 text@4:6+2 }@1:1+1"
    );
    // A later anchor of the same name replaces the earlier one.
    assert_eq!(
        yaml("[&x 1, *x, &x 2, *x]"),
        "[1@1:5+1 1@1:8+2 2@1:15+1 2@1:18+2 ]@1:1+20"
    );
}

#[test]
fn a_merge_key_adds_the_names_that_a_map_does_not_have() {
    for all in [
        "{<<: [*one, *two], b: 0}",
        "{b: 0, <<: *one, <<: *two}",
        "{b: 0, <<: *one, c: 2}",
        "{b: 0, a: 1, c: 2}",
    ] {
        let text = format!("one: &one {{a: 1, b: 1}}\ntwo: &two {{b: 2, c: 2}}\nall: {all}\n");
        let SourceValue::Map(entries) = parse(&text, SourceFormat::Yaml).unwrap().value else {
            panic!("the file is a map");
        };
        let SourceValue::Map(all_entries) = &entries[2].value.value else {
            panic!("`all` is a map");
        };
        let mut pairs: Vec<(&str, &str)> = all_entries
            .iter()
            .map(|entry| match &entry.value.value {
                SourceValue::Scalar { text, .. } => (&*entry.name.value, &**text),
                other => panic!("{other:?}"),
            })
            .collect();
        pairs.sort_unstable();
        assert_eq!(pairs, [("a", "1"), ("b", "0"), ("c", "2")], "{all}");
    }
}

/// Nine anchors of nine aliases each are 387 million values in 500 bytes.
#[test]
fn i06_copies_by_aliases_are_bounded() {
    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
        laughs += &format!("a{level}: &a{level} [{aliases}]\n");
    }
    let long_text = "x".repeat(200_000);
    let texts = format!("a: &a {long_text}\nb: [*a, *a, *a, *a, *a, *a]\n");
    let mut deep = "a0: &a0 [x]\n".to_owned();
    for level in 1..=MAX_DEPTH {
        deep += &format!("a{level}: &a{level} [*a{}]\n", level - 1);
    }
    // Each anchor contains those before it, and no alias is needed.
    let nested = (0..30).fold("0".to_owned(), |inner, level| {
        format!("&n{level} [{}{inner}]", "0, ".repeat(2_000))
    });
    for (text, reason) in [
        (nested, "values and names"),
        (laughs, "values and names"),
        (texts, "aliases stand for more than 1048576 bytes of text"),
        (deep, "levels deep"),
    ] {
        let diagnostics = parse(&text, SourceFormat::Yaml).unwrap_err();
        let message = &diagnostics[0].message;
        assert!(message.contains(reason), "{message}");
    }
}

#[test]
fn all_rejected_features_are_reported_at_once() {
    let diagnostics = parse("a: *x\nb: !t 2\nc: *y\n", SourceFormat::Yaml).unwrap_err();
    let lines: Vec<_> = diagnostics
        .iter()
        .map(|diagnostic| diagnostic.location.line)
        .collect();
    assert_eq!(lines, [1, 2, 3]);
}

#[test]
fn yaml_syntax_errors_have_readable_messages() {
    assert_errors(
        SourceFormat::Yaml,
        &[
            (
                "a:\n\tb: 1\n",
                "2:1+1 a tab is not allowed as YAML indentation",
            ),
            ("a: 'x\nb: 1\n", "2:1+1 a quoted text continues"),
            ("a: \"x", "1:4+1 this text has no closing quote"),
            (
                "routes: [/v1/items/{id}]\n",
                "1:20+1 inside `[…]` a bracket ends a text",
            ),
            (
                "a: {route: /v1/{id}/x}\n",
                "1:16+1 inside `{…}` a bracket ends a text",
            ),
            ("a: [1, 2\nb: 3\n", "2:2+1 unexpected `:`"),
            ("a: {b: 1\n", "1:4+1 this `{` is never closed"),
            ("a: [1}\n", "1:4+1 this `[` is closed by `}`"),
            ("a: 1]\nb: ]\n", "2:4+1 unmatched closing bracket"),
            ("a: @x\n", "1:4+1 a value cannot begin with `@`"),
            ("a: %5\n", "1:4+1 a value cannot begin with `%`"),
            ("a: b: c\n", "1:5+1 unexpected `:`"),
            ("a: 1\n  b: 2\n", "2:4+1 unexpected `:`"),
            (
                "  a: 1\n b: 2\n",
                "2:2+1 this line does not belong to the block above",
            ),
            ("a: 1\nrate 5\nb: 2\n", "2:1+1 a `:` is missing"),
            ("a: 1\n- b\n", "2:1+1 a list and the fields of a map"),
            ("a:\n  b: 1\n c: 2\n", "3:2+1 this line is indented"),
            ("a: 'x' y\n", "1:8+1 unexpected text after a closing quote"),
            ("a: \"\\d\"\n", "1:4+1 unknown escape in a quoted text"),
        ],
    );
}

//! YAML: locations, rejected features and syntax errors.

use super::{assert_errors, yaml};
use crate::source::{SourceFormat, parse};

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
fn anchors_aliases_tags_and_merge_keys_are_rejected() {
    assert_errors(
        SourceFormat::Yaml,
        &[
            ("a: &x 1\n", "1:4+2 `&x` is an anchor"),
            ("a: &x 1\nb: *x\n", "1:4+2 `&x` is an anchor"),
            (
                "host: *.example.com\n",
                "1:7+13 YAML reads `*.example.com` as an alias, and policies do not support aliases | quote a text that begins with `*`: \"*.example.com\"",
            ),
            ("host: *\n", "1:7+1 a value that begins with `*`"),
            ("a: !!str 5\n", "1:4+5 YAML reads `!!str` as a tag"),
            ("a: !no x\n", "1:4+3 YAML reads `!no` as a tag"),
            ("a: 1\n<<: {b: 2}\n", "2:1+2 `<<` is a merge key"),
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

#[test]
fn all_rejected_features_are_reported_at_once() {
    let diagnostics = parse("a: &x 1\nb: !t 2\nc: *x\n", SourceFormat::Yaml).unwrap_err();
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
            (
                "a: 1\n  b: 2\n",
                "2:3+1 this line is indented more than the field above it, which already has a value",
            ),
            (
                "a:\n  - b: 1\n     c: 2\n",
                "3:6+1 this line is indented more than the field above it",
            ),
            ("a: http://b c: d\n", "1:14+1 unexpected `:`"),
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

//! Keys, lists and types of values.

use super::{all_problems, limit, problems};
use crate::config::{LoadOptions, Metadata, RuleQuota, load, load_with};

#[test]
fn a_file_must_name_its_domain() {
    for text in [
        "descriptors: []\n",
        "domain: ''\n",
        "domain:\ndescriptors: []\n",
    ] {
        let found = problems(text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].ends_with("a file must name its `domain`"),
            "{found:?}"
        );
    }
}

#[test]
fn a_descriptor_must_have_a_key() {
    let found = problems("domain: d\ndescriptors:\n  - value: v\n  - key: ''\n");
    assert_eq!(
        found,
        [
            "3:5: a descriptor must have a `key`",
            "4:10: a descriptor must have a `key`"
        ]
    );
}

#[test]
fn unknown_keys_are_refused_on_every_level() {
    let text = "
domain: d
ratelimits: 1
descriptors:
  - key: k
    keyy: x
    rate_limit:
      unit: second
      request_per_unit: 5
      replaces:
        - nome: x
          name: y
";
    assert_eq!(
        problems(text),
        [
            "3:1: unknown key `ratelimits`",
            "6:5: unknown key `keyy`",
            "9:7: unknown key `request_per_unit`",
            "11:11: unknown key `nome`",
        ]
    );
}

#[test]
fn a_key_on_the_wrong_level_is_refused_unless_misplaced_keys_are_ignored() {
    let text = limit("unit: second, requests_per_unit: 1, shadow_mode: true");
    assert_eq!(
        problems(&text),
        ["4:55: `shadow_mode` is not allowed in `rate_limit`"]
    );
    let options = LoadOptions {
        ignore_misplaced: true,
        ..LoadOptions::default()
    };
    let policy = load_with(&[("a.yaml", &text)], options).unwrap();
    assert!(
        !policy.rules()[0].shadow_mode,
        "envoyproxy/ratelimit ignores it there"
    );
    let unknown = limit("unit: second, shade_mode: true");
    assert_eq!(
        all_problems(&[("a.yaml", &unknown)], options),
        ["4:33: unknown key `shade_mode`"]
    );
}

#[test]
fn a_duplicate_key_is_refused_also_in_metadata() {
    let text = "domain: d\ndescriptors:\n  - key: k\n    key: l\n    metadata: { a: 1, a: 2 }\n";
    assert_eq!(
        problems(text),
        [
            "4:5: `key` is given twice; first on line 3",
            "5:23: `a` is given twice; first on line 5"
        ]
    );
}

#[test]
fn lists_hold_maps_only() {
    assert_eq!(
        problems("domain: d\ndescriptors:\n  - a\n"),
        [
            "3:5: a descriptor must be a map",
            "3:5: a descriptor must have a `key`"
        ]
    );
    assert_eq!(
        problems("domain: d\ndescriptors: { key: k }\n"),
        ["2:14: `descriptors` is a map, but must be a list of maps"]
    );
    assert_eq!(
        problems(&limit("unit: second, replaces: [a]"))[0],
        "4:44: an entry of `replaces` must be a map"
    );
    assert_eq!(problems("- domain: d\n")[0], "1:1: a file must be a map");
}

#[test]
fn values_have_their_types() {
    let found = problems(
        "
domain: [d]
descriptors:
  - key: { a: b }
    shadow_mode: 'true'
    quota_mode: 1
    rate_limit: { unit: second, requests_per_unit: '10', unlimited: maybe }
    metadata: 5
  - key: l
    rate_limit: 7
",
    );
    assert_eq!(
        found,
        [
            "2:1: a file must name its `domain`",
            "2:9: `domain` is a list, but must be a text",
            "4:5: a descriptor must have a `key`",
            "4:10: `key` is a map, but must be a text",
            "5:18: `shadow_mode`: `true` is not `true` or `false`, without quotes",
            "6:17: `quota_mode`: `1` is not `true` or `false`, without quotes",
            "7:52: `requests_per_unit`: `10` is not a whole number from 0 to 4294967295, without quotes",
            "7:69: `unlimited`: `maybe` is not `true` or `false`, without quotes",
            "8:15: `metadata`: `5` is not a map of names and values",
            "10:17: `rate_limit` must be a map",
            "10:17: a `rate_limit` must have a `unit`, or say `unlimited: true`",
        ]
    );
    for number in ["-1", "1.5", "4294967296", "ten"] {
        let found = problems(&limit(&format!(
            "unit: second, requests_per_unit: {number}"
        )));
        assert!(found[0].contains("is not a whole number"), "{found:?}");
    }
}

#[test]
fn scalars_are_texts_as_written() {
    let text = "
domain: 5
descriptors:
  - { key: 007, value: yes, rate_limit: { unit: Second, requests_per_unit: 1_000 } }
  - { key: ratio, value: 1.50, rate_limit: { unit: YEAR }, shadow_mode: on }
";
    let policy = load(&[("a.yaml", text)]).unwrap();
    let names: Vec<&str> = policy.rules().iter().map(|rule| &*rule.name).collect();
    assert_eq!(names, ["5.007_yes", "5.ratio_1.50"]);
    let RuleQuota::Limited {
        requests_per_unit, ..
    } = policy.rules()[0].quota
    else {
        panic!("the rule is limited");
    };
    assert_eq!(requests_per_unit, 1_000);
    let RuleQuota::Limited {
        requests_per_unit, ..
    } = policy.rules()[1].quota
    else {
        panic!("the rule is limited");
    };
    assert_eq!(requests_per_unit, 0, "a missing number is zero");
    assert!(policy.rules()[1].shadow_mode);
}

#[test]
fn metadata_may_have_any_names_and_values() {
    let text = "
domain: d
descriptors:
  - key: k
    rate_limit: { unit: day }
    metadata:
      anything: { goes: [1, -2.5, true, ~, 'true', text] }
      5: 0x10
";
    let policy = load(&[("a.yaml", text)]).unwrap();
    let list = Metadata::List(vec![
        Metadata::Number(1.0),
        Metadata::Number(-2.5),
        Metadata::Bool(true),
        Metadata::Null,
        Metadata::Text("true".into()),
        Metadata::Text("text".into()),
    ]);
    let goes = Metadata::Map(vec![("goes".into(), list)]);
    let expected = Metadata::Map(vec![
        ("anything".into(), goes),
        ("5".into(), Metadata::Number(16.0)),
    ]);
    assert_eq!(policy.rules()[0].metadata, Some(expected));
}

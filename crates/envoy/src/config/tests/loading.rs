//! Every rule of a file's validation: a file that breaks just that one, and what is said about it.

use crate::config::{LoadOptions, Metadata, RuleQuota, load, load_with};

/// What is wrong with a file, as `line:column: message` each.
fn problems(text: &str) -> Vec<String> {
    all_problems(&[("a.yaml", text)], LoadOptions::default())
}

fn all_problems(files: &[(&str, &str)], options: LoadOptions) -> Vec<String> {
    let refused = load_with(files, options).expect_err("it is wrong");
    let each = refused.0.iter().flat_map(|file| {
        file.list.iter().map(|problem| {
            let place = problem.location;
            format!("{}:{}: {}", place.line, place.column, problem.message)
        })
    });
    each.collect()
}

fn limit(fields: &str) -> String {
    format!("domain: d\ndescriptors:\n  - key: k\n    rate_limit: {{ {fields} }}\n")
}

#[test]
fn a_file_must_name_its_domain() {
    for text in [
        "descriptors: []\n",
        "domain: ''\n",
        "domain:\ndescriptors: []\n",
    ] {
        let told = problems(text);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].ends_with("a file must name its `domain`"),
            "{told:?}"
        );
    }
}

#[test]
fn a_descriptor_must_have_a_key() {
    let told = problems("domain: d\ndescriptors:\n  - value: v\n  - key: ''\n");
    assert_eq!(
        told,
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
fn a_known_key_on_the_wrong_level_is_refused_unless_it_is_to_be_ignored() {
    let text = limit("unit: second, requests_per_unit: 1, shadow_mode: true");
    assert_eq!(
        problems(&text),
        ["4:55: `shadow_mode` does not belong into `rate_limit`"]
    );
    let options = LoadOptions {
        ignore_misplaced: true,
        ..LoadOptions::default()
    };
    let policy = load_with(&[("a.yaml", &text)], options).unwrap();
    assert!(
        !policy.rules()[0].shadow_mode,
        "the reference ignores it there"
    );
    let unknown = limit("unit: second, shade_mode: true");
    assert_eq!(
        all_problems(&[("a.yaml", &unknown)], options),
        ["4:33: unknown key `shade_mode`"]
    );
}

#[test]
fn a_name_given_twice_is_refused_also_in_metadata() {
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
    let told = problems(
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
        told,
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
        let told = problems(&limit(&format!(
            "unit: second, requests_per_unit: {number}"
        )));
        assert!(told[0].contains("is not a whole number"), "{told:?}");
    }
}

#[test]
fn scalars_are_texts_as_they_are_written() {
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
        panic!("it is limited");
    };
    assert_eq!(requests_per_unit, 1_000);
    let RuleQuota::Limited {
        requests_per_unit, ..
    } = policy.rules()[1].quota
    else {
        panic!("it is limited");
    };
    assert_eq!(requests_per_unit, 0, "a number that is not given is zero");
    assert!(policy.rules()[1].shadow_mode);
}

#[test]
fn a_limit_needs_one_of_the_units() {
    for unit in [
        "second", "minute", "hour", "day", "week", "month", "year", "mInUtE",
    ] {
        assert!(
            load(&[("a.yaml", &limit(&format!("unit: {unit}")))]).is_ok(),
            "{unit}"
        );
    }
    assert_eq!(
        problems(&limit("unit: fortnight")),
        ["4:25: invalid rate limit unit `fortnight`"]
    );
    assert_eq!(
        problems(&limit("unit: unknown")),
        ["4:25: invalid rate limit unit `unknown`"]
    );
    assert_eq!(
        problems(&limit("requests_per_unit: 5")),
        ["4:17: a `rate_limit` must have a `unit`, or say `unlimited: true`"]
    );
}

#[test]
fn what_is_unlimited_has_no_unit() {
    assert_eq!(
        problems(&limit("unlimited: true, unit: second")),
        ["4:42: `unit` must not be given together with `unlimited`"]
    );
    assert!(load(&[("a.yaml", &limit("unlimited: true"))]).is_ok());
    let false_is_none = limit("unlimited: false, unit: second");
    assert!(load(&[("a.yaml", &false_is_none)]).is_ok());
}

#[test]
fn an_empty_rate_limit_is_none_but_an_empty_map_lacks_its_unit() {
    let policy = load(&[(
        "a.yaml",
        "domain: d\ndescriptors:\n  - key: k\n    rate_limit:\n",
    )])
    .unwrap();
    assert!(policy.rules().is_empty());
    assert_eq!(problems(&limit("")).len(), 1);
}

#[test]
fn replaces_names_other_limits() {
    assert_eq!(
        problems(&limit("unit: second, name: a, replaces: [{ name: a }]")),
        ["4:61: `a` cannot replace itself"]
    );
    assert_eq!(
        problems(&limit("unit: second, replaces: [{ name: '' }]")),
        ["4:52: an entry of `replaces` must have a `name`"]
    );
    assert_eq!(
        problems(&limit("unit: second, replaces: [{}]")),
        ["4:44: an entry of `replaces` must have a `name`"]
    );
    let unknown = limit("unit: second, replaces: [{ name: nobody }]");
    assert!(
        load(&[("a.yaml", &unknown)]).is_ok(),
        "the reference accepts it"
    );
}

#[test]
fn a_threshold_is_shared_only_by_what_a_pattern_matches() {
    let with = |value: &str| {
        format!(
            "domain: d\ndescriptors:\n  - key: k\n    value: '{value}'\n    share_threshold: true\n"
        )
    };
    assert!(load(&[("a.yaml", &with("a*"))]).is_ok());
    assert!(load(&[("a.yaml", &with("a*b*c"))]).is_ok());
    assert_eq!(
        problems(&with("a")),
        ["5:22: `share_threshold` needs a `*` in the value, and there is none in `k_a`"]
    );
    assert_eq!(problems(&with("")).len(), 1);
    assert!(load(&[("a.yaml", &with("a").replace("true", "false"))]).is_ok());
}

#[test]
fn composite_keys_are_unique_among_siblings() {
    let text = "
domain: d
descriptors:
  - key: a
    descriptors:
      - { key: x }
  - key: b
    descriptors:
      - { key: x }
      - { key: x, value: y }
      - { key: x, value: y }
  - { key: a_b }
  - { key: a, value: b }
  - { key: a }
";
    assert_eq!(
        problems(text),
        [
            "11:16: duplicate descriptor composite key `d.b.x_y`",
            "13:12: duplicate descriptor composite key `d.a_b`",
            "14:12: duplicate descriptor composite key `d.a`",
        ]
    );
}

#[test]
fn a_domain_is_in_one_file_unless_files_are_merged() {
    let first = (
        "a.yaml",
        "domain: d\ndescriptors: [{ key: a, rate_limit: { unit: day } }]\n",
    );
    let second = (
        "b.yaml",
        "domain: d\ndescriptors: [{ key: b, rate_limit: { unit: day } }]\n",
    );
    let other = (
        "c.yaml",
        "domain: e\ndescriptors: [{ key: a, rate_limit: { unit: day } }]\n",
    );
    assert_eq!(load(&[first, other]).unwrap().rules().len(), 2);
    let refused = load(&[first, other, second]).unwrap_err();
    assert_eq!(&*refused.0[0].file, "b.yaml");
    assert_eq!(
        all_problems(&[first, second], LoadOptions::default()),
        ["1:9: duplicate domain `d`"]
    );
    let merge = LoadOptions {
        merge_domains: true,
        ..LoadOptions::default()
    };
    let merged = load_with(&[first, second, other], merge).unwrap();
    assert_eq!(merged.rules().len(), 3);
    assert_eq!(
        all_problems(&[first, ("b.yaml", first.1)], merge),
        ["2:22: duplicate descriptor composite key `d.a`"],
        "files are put side by side, never into each other"
    );
}

#[test]
fn all_problems_of_all_files_are_told_at_once() {
    let refused = load(&[
        ("a.yaml", "domain: d\nx: 1\ny: 2\n"),
        ("b.yaml", "domain: e\n"),
        ("c.yaml", "domain: [\n"),
    ])
    .unwrap_err();
    let files: Vec<&str> = refused.0.iter().map(|file| &*file.file).collect();
    assert_eq!(files, ["a.yaml", "c.yaml"]);
    let text = refused.to_string();
    assert!(text.contains("a.yaml:2:1: unknown key `x`"), "{text}");
    assert!(text.contains("a.yaml:3:1: unknown key `y`"), "{text}");
    assert!(text.contains("c.yaml:"), "{text}");
}

#[test]
fn descriptors_lie_only_so_deep_in_each_other() {
    let nested = |depth: usize| {
        let mut text = "domain: d\n".to_owned();
        for level in 0..depth {
            let indent = " ".repeat(4 * level);
            text += &format!("{indent}descriptors:\n{indent}  - key: k\n");
        }
        text
    };
    assert!(load(&[("a.yaml", &nested(15))]).is_ok());
    assert!(load(&[("a.yaml", &nested(17))]).is_err());
}

#[test]
fn metadata_are_any_values_and_their_names_are_not_checked() {
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

#[test]
fn identities_are_stable_names_with_their_unit() {
    let text = "
domain: d
descriptors:
  - { key: a, value: b, descriptors: [{ key: c, rate_limit: { unit: hour } }] }
  - { key: free, rate_limit: { unlimited: true } }
";
    let policy = load(&[("a.yaml", text)]).unwrap();
    let identities: Vec<&str> = policy.identities().collect();
    assert_eq!(identities.len(), 8);
    assert_eq!(identities[0], "override/second");
    assert_eq!(identities[7], "d.a_b.c/hour");
}

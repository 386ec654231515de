//! Checks that span descriptors and files: duplicates, merged domains, nesting, identities.

use super::{all_problems, problems};
use crate::config::{LoadOptions, load, load_with};

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
        "merging does not join equal descriptors"
    );
}

#[test]
fn all_problems_of_all_files_are_reported_at_once() {
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
fn the_nesting_of_descriptors_is_bounded() {
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
    // Values are in the keys of counters, not in their identity.
    let counters: Vec<&str> = policy.counter_identities().collect();
    assert_eq!((counters.len(), counters[7]), (8, "d.a.c/hour"));
}

//! That the loader refuses bad files by name and line, and that the runner notices wrong answers.

use super::{CoreSubject, Suite, run};

const GOOD: &str = r#"
about: a file for these tests
cases:
  - name: two at once
    limit: { token_bucket: { rate: 10/s, burst: 2 } }
    steps:
      - { at: 1s, spend: 1, times: 2, expect: allow, charged: 1, remaining: 0, reset_after: 200ms }
      - { at: +50ms, label: denied, spend: 1, expect: deny 50ms }
"#;

fn mismatch(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    let suite = Suite::parse("good.yaml", &GOOD.replace(from, to), 1).unwrap();
    run(&suite, &mut CoreSubject::default())
        .unwrap_err()
        .to_string()
}

fn bad(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    Suite::parse("good.yaml", &GOOD.replace(from, to), 1)
        .unwrap_err()
        .to_string()
}

#[test]
fn a_file_that_is_right_passes() {
    let suite = Suite::parse("good.yaml", GOOD, 1).unwrap();
    assert_eq!(run(&suite, &mut CoreSubject::default()).unwrap(), 1);
}

#[test]
fn every_wrong_expectation_is_noticed_and_named() {
    assert_eq!(
        mismatch("deny 50ms", "deny 51ms"),
        "good.yaml:8: two at once: step 2: answer: expected deny 51ms, got deny 50ms"
    );
    assert_eq!(
        mismatch("remaining: 0", "remaining: 1"),
        "good.yaml:7: two at once: step 1: time 2: remaining: expected 1, got 0"
    );
    assert!(mismatch("reset_after: 200ms", "reset_after: 200000001ns").contains("got 200ms"));
    assert!(mismatch("charged: 1", "charged: 2").contains("step 1: time 1: charged"));
    assert!(mismatch("times: 2", "times: 3").contains("time 3: answer: expected allow, got deny"));
    assert!(mismatch("deny 50ms", "allow").contains("expected allow, got deny 50ms"));
    assert!(mismatch("deny 50ms", "refused unsupported").contains("got deny 50ms"));
}

#[test]
fn a_wrong_verdict_or_binding_of_several_limits_is_noticed() {
    let composed = |verdict: &str, binding: &str, remaining: &str| {
        let text = format!(
            "about: several\ncases:\n  - name: both\n    limits:\n      a: {{ token_bucket: {{ rate: 1/s }} }}\n      \
             b: {{ token_bucket: {{ rate: 5/s }} }}\n    steps:\n      - at: 1s\n        expect: {verdict}\n        \
             binding: {binding}\n        together:\n          - {{ of: b, spend: 2, expect: allow, remaining: {remaining} }}\n          \
             - {{ of: a, spend: 2, expect: never, remaining: 1 }}\n"
        );
        let suite = Suite::parse("several.yaml", &text, 1).unwrap();
        run(&suite, &mut CoreSubject::default()).map_err(|mismatch| mismatch.to_string())
    };
    assert_eq!(composed("never", "a", "5"), Ok(1));
    assert!(
        composed("allow", "a", "5")
            .unwrap_err()
            .contains("answer: expected allow, got never")
    );
    assert!(
        composed("never", "b", "5")
            .unwrap_err()
            .contains("binding: expected b, got a")
    );
    assert!(
        composed("never", "a", "3")
            .unwrap_err()
            .contains("b: remaining: expected 3, got 5")
    );
}

#[test]
fn an_unknown_field_is_refused_with_its_line() {
    let error = bad("remaining: 0", "remainder: 0");
    assert!(error.starts_with("good.yaml:7: "), "{error}");
    assert!(error.contains("remainder"), "{error}");
    let error = bad("burst: 2", "brust: 2");
    assert!(
        error.starts_with("good.yaml:5: ") && error.contains("brust"),
        "{error}"
    );
}

#[test]
fn a_value_that_cannot_be_is_refused_with_its_line() {
    for (from, to, says) in [
        ("50ms, label", "5x, label", "good.yaml:8: "),
        ("deny 50ms", "perhaps", "`perhaps` is not an answer"),
        (
            "rate: 10/s",
            "rate: 700000000/s",
            "good.yaml:5: two at once: limit: 700000000 is not valid",
        ),
        (
            "label: denied",
            "label: denied, refund: later",
            "exactly one operation, this one has 2",
        ),
        (
            "spend: 1, expect: deny",
            "refund: later, expect: deny",
            "no earlier step has the label `later`",
        ),
        ("spend: 1, expect: deny", "expect: deny", "this one has 0"),
        (
            ", expect: deny 50ms",
            "",
            "good.yaml:8: two at once: expect: is missing",
        ),
        (
            "at: 1s",
            "at: +1s",
            "the first step needs an absolute instant",
        ),
        ("label: denied", "of: other", "no limit `other`"),
        ("times: 2", "times: 0", "never happens"),
    ] {
        let error = bad(from, to);
        assert!(error.contains(says), "{to}: {error}");
    }
}

#[test]
fn an_empty_file_is_refused() {
    for empty in ["", "about: nothing\n", "about: nothing\ncases: []\n"] {
        let error = Suite::parse("empty.yaml", empty, 1)
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("empty.yaml"), "{error}");
    }
}

#[test]
fn too_few_cases_are_refused() {
    let error = Suite::parse("good.yaml", GOOD, 10).unwrap_err().to_string();
    assert_eq!(error, "good.yaml: cases: 1 found, at least 10 expected");
}

#[test]
fn a_name_can_be_used_once() {
    let (_, case) = GOOD.split_once("cases:\n").unwrap();
    let error = Suite::parse(
        "good.yaml",
        &format!("{GOOD}{}", case.trim_start_matches('\n')),
        1,
    );
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("name: `two at once` is taken")
    );
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Suite::load("no/such/file.yaml".as_ref(), 1)
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("no/such/file.yaml: "), "{error}");
}

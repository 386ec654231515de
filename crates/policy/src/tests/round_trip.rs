//! Writes random policies to texts and reads them back.
//!
//! Must not know: how the text is made.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use super::{arbitrary_valid, write_json};
use crate::model::Policy;
use crate::source::SourceFormat;

/// The text of a policy, and the policy read from it; `None` if it is rejected.
fn back(policy: &Policy) -> (String, Option<Policy>) {
    let text = write_json::policy(policy);
    let read = crate::load(&text, "policy.json", SourceFormat::Json).ok();
    (text, read)
}

#[test]
fn most_random_policies_are_valid() {
    let mut runner = TestRunner::deterministic();
    let mut refused = Vec::new();
    for _ in 0..300 {
        let policy = arbitrary_valid::policy()
            .new_tree(&mut runner)
            .unwrap()
            .current();
        if let Err(diagnostics) = crate::load(
            &write_json::policy(&policy),
            "policy.json",
            SourceFormat::Json,
        ) {
            refused.push(diagnostics.to_string());
        }
    }
    assert!(
        refused.len() < 150,
        "{} of 300 refused:\n{}",
        refused.len(),
        refused.join("\n")
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn a_policy_that_was_written_reads_back_equal(policy in arbitrary_valid::policy()) {
        let (text, read) = back(&policy);
        if let Some(read) = read {
            prop_assert_eq!(&read, &policy, "{}", text);
            prop_assert_eq!(write_json::policy(&read), text);
        }
    }

    #[test]
    fn written_policies_pass_the_schema(policy in arbitrary_valid::policy()) {
        let text = write_json::policy(&policy);
        let schema_errors = crate::schema::tests::schema_errors_of_json(&text);
        prop_assert!(schema_errors.is_empty(), "{schema_errors:?}\n{text}");
    }

    #[test]
    fn different_policies_are_written_differently(one in arbitrary_valid::policy(), other in arbitrary_valid::policy()) {
        prop_assert_eq!(one == other, write_json::policy(&one) == write_json::policy(&other));
    }
}

//! Random policies become the text of a file and are read back.
//!
//! Must not know: how the text is made.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use super::{arbitrary_valid, write_json};
use crate::model::Policy;
use crate::source::SourceFormat;

/// What a policy that was written reads back as; none if it is refused.
fn back(policy: &Policy) -> (String, Option<Policy>) {
    let text = write_json::policy(policy);
    let read = crate::load(&text, "policy.json", SourceFormat::Json).ok();
    (text, read)
}

#[test]
fn most_random_policies_are_accepted_so_that_reading_them_back_proves_something() {
    let mut runner = TestRunner::deterministic();
    let mut refused = Vec::new();
    for _ in 0..300 {
        let policy = arbitrary_valid::policy()
            .new_tree(&mut runner)
            .unwrap()
            .current();
        if let Err(problems) = crate::load(
            &write_json::policy(&policy),
            "policy.json",
            SourceFormat::Json,
        ) {
            refused.push(problems.to_string());
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
    fn whatever_is_written_is_valid_by_the_schema(policy in arbitrary_valid::policy()) {
        let text = write_json::policy(&policy);
        let wrong = crate::schema::tests::wrong_json(&text);
        prop_assert!(wrong.is_empty(), "{wrong:?}\n{text}");
    }

    #[test]
    fn different_policies_are_written_differently(one in arbitrary_valid::policy(), other in arbitrary_valid::policy()) {
        prop_assert_eq!(one == other, write_json::policy(&one) == write_json::policy(&other));
    }
}

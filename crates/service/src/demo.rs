//! The policy that is in force where none is given.
//!
//! Must not know: what it says; that is a file like any other.

use tollgate_policy::load;
use tollgate_policy::model::Policy;
use tollgate_policy::source::{Diagnostics, SourceFormat};

const TEXT: &str = include_str!("../../../policies/demo.yaml");

/// The demonstration policy: `policies/demo.yaml`, built into the program.
///
/// # Errors
/// None while the tests of this crate pass.
pub fn demo_policy() -> Result<Policy, Diagnostics> {
    load(TEXT, "policies/demo.yaml", SourceFormat::Yaml)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demonstration_policy_is_a_right_one() {
        let policy = demo_policy().unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(&*policy.limits[0].name.value, "per-key");
    }
}

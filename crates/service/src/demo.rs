//! The demonstration policy, which is used if the operator names none.
//!
//! Must not know: the policy's contents; it is a file like any other.

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
    fn the_demonstration_policy_is_valid() {
        let policy = demo_policy().unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(&*policy.limits[0].name.value, "per-key");
    }
}

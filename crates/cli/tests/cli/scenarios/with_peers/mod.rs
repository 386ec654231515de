//! Scenarios that need programs which `cargo xtask test` does not bring; the name of this module makes it skip them.

mod mixed_versions;

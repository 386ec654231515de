//! Policies written and read back.

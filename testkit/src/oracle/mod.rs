//! Deciding by other means: explicit logs and brute force, slow and obvious.

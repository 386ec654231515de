//! The checker is checked: right limiters pass whatever the seed, and each wrong one is found.

mod controls;
mod simulated;

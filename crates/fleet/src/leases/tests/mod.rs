//! Slices, with a lender that is core's book and time that tests move.

mod fake;
mod faults;
mod stories;

//! What tests share: oracles that decide by other means than the code under test, vectors that every store must pass, real
//! servers, faults on the way to them, and the checker of what came of it.
//!
//! Must not know: how any store or algorithm works inside. It sees what a user sees.

pub mod allocation;
pub mod certificates;
pub mod chaos;
pub mod chromium;
pub mod clock;
pub mod envoy;
pub mod faults;
pub mod fuzzing;
pub mod history;
pub mod memory_slope;
pub mod model_checker;
pub mod nginx;
pub mod oracle;
pub mod peer_programs;
pub mod peers;
pub mod process;
pub mod prometheus;
pub mod redis;
pub mod register;
pub mod seeded_rng;
pub mod test_requests;
pub mod vectors;

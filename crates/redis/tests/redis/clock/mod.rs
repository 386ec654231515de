//! Real keys with real times to live on a server whose clock the tests move: what expires when, what a clock that jumps
//! does, and windows as short as the server's own granularity.
//!
//! Nothing here sleeps. The clock stands still unless a test moves it, so every instant is exact.

mod cases;
mod expiry;
mod harness;
mod jumps;
mod tiny_windows;

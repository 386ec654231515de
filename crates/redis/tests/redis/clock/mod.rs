//! Real keys with real expiries on a server whose clock the tests move: expiry, clock jumps, and windows as short as
//! the server's clock granularity.
//!
//! Nothing here sleeps. The clock stands still unless a test moves it, so every instant is exact.

mod cases;
mod expiry;
mod harness;
mod jumps;
mod tiny_windows;

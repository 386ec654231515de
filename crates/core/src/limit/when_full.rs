//! What becomes of a limit's keys when a store has no room for all of them.
//!
//! Must not know: stores, how room is made.

/// What happens to a limit's keys when the store has no room for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum WhenFull {
    /// What an evicted key has used is kept in an overflow sketch of its limit, which may deny too much but never too little.
    /// No key is admitted beyond its quota; a key that the sketch denies is refused for want of capacity.
    #[default]
    Refuse,
    /// What an evicted key has used is dropped, and a newcomer starts fresh. Nobody is refused for want of capacity; a key
    /// that was evicted can spend its quota again.
    Forget,
}

//! Reads and replaces files while a server runs. A file that never answers must not stop anything else.
//!
//! [`read_regular`] refuses everything but a regular file of bounded size. [`FileWorker`] runs file work on a thread of its own,
//! with a deadline. [`replace_file`] replaces a file so that a reader finds the old content or the new one; [`remove_leftovers`]
//! deletes what a crash left of that.
//! Must not know: what files contain.

mod regular;
mod replace;
#[cfg(test)]
mod tests;
mod worker;

pub use regular::{append_regular, open_regular, read_regular};
pub use replace::{remove_leftovers, replace_file};
pub use worker::{FILE_DEADLINE, FileWorkError, FileWorker};

//! The buffers of one round: the input that was read and the responses to it.
//!
//! They belong to the thread, not to the connection. An idle connection holds none, so ten thousand idle connections need
//! little memory, and busy ones allocate nothing. Must not know: what the bytes mean.

use std::cell::Cell;

/// The most bytes of one read. A longer request does not take the fast path.
pub(super) const READ_LEN: usize = 32 * 1_024;
/// A response buffer with a larger capacity is shrunk after use.
pub(super) const KEPT_OUTPUT_LEN: usize = 256 * 1_024;

thread_local! {
    static THREAD_BUFFERS: Cell<Option<BufferPair>> = const { Cell::new(None) };
}

/// Which buffers a round uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BufferOwnership {
    /// The thread's buffers, for rounds that complete at the first poll.
    Thread,
    /// A copy of the input, for rounds that have to wait.
    Copy,
}

/// The buffers of one round. On drop the thread's buffers go back to the thread.
#[derive(Debug)]
pub(super) struct Buffers {
    pair: BufferPair,
    /// How many bytes of the input were read.
    filled: usize,
}

#[derive(Debug, Default)]
struct BufferPair {
    input: Box<[u8]>,
    output: Vec<u8>,
}

impl Buffers {
    /// The thread's buffers, or new ones if another round uses them.
    pub(super) fn take_from_thread() -> Self {
        let new = || BufferPair {
            input: vec![0; READ_LEN].into_boxed_slice(),
            output: Vec::with_capacity(READ_LEN),
        };
        Self {
            pair: THREAD_BUFFERS.take().unwrap_or_else(new),
            filled: 0,
        }
    }

    /// The buffer to read into.
    pub(super) const fn spare(&mut self) -> &mut [u8] {
        &mut self.pair.input
    }

    /// Sets how many bytes were read.
    pub(super) fn with_filled(mut self, filled: usize, keep: BufferOwnership) -> Self {
        self.filled = filled;
        if keep == BufferOwnership::Thread {
            return self;
        }
        let (input, _) = self.split();
        Self {
            pair: BufferPair {
                input: input.into(),
                output: Vec::new(),
            },
            filled,
        }
    }

    /// The input that was read, and the empty response buffer.
    pub(super) fn split(&mut self) -> (&[u8], &mut Vec<u8>) {
        let BufferPair { input, output } = &mut self.pair;
        (input.get(..self.filled).unwrap_or_default(), output)
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        let mut pair = std::mem::take(&mut self.pair);
        // A copy has the length of the input. A copy as long as the thread's buffer can replace it.
        if pair.input.len() == READ_LEN {
            pair.output.clear();
            pair.output.shrink_to(KEPT_OUTPUT_LEN);
            // `try_with` fails while the thread exits; then the buffers are freed.
            let _kept = THREAD_BUFFERS.try_with(|own| own.set(Some(pair)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(buffers: &mut Buffers) -> *const u8 {
        buffers.spare().as_ptr()
    }

    #[test]
    fn the_threads_buffers_are_used_again_and_copies_are_not_kept() {
        let first = address(&mut Buffers::take_from_thread());
        let mut used = Buffers::take_from_thread();
        assert_eq!(address(&mut used), first);
        used.spare()[..3].copy_from_slice(b"abc");
        let mut copy = used.with_filled(3, BufferOwnership::Copy);
        assert_eq!(
            address(&mut Buffers::take_from_thread()),
            first,
            "it is back"
        );
        let (input, output) = copy.split();
        assert_eq!((input, output.len()), (&b"abc"[..], 0));
        drop(copy);
        let mut kept = Buffers::take_from_thread();
        assert_eq!(kept.spare().len(), READ_LEN);
        kept.with_filled(3, BufferOwnership::Thread)
            .split()
            .1
            .push(1);
        assert!(Buffers::take_from_thread().split().1.is_empty());
    }
}

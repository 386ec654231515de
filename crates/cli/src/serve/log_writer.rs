//! Writes log lines on a thread of its own, so that an unread stderr or a slow disk never holds up a decision.
//!
//! A line is copied into a bounded buffer. If there is no room it is dropped and counted, and a line says how many were
//! dropped once there is room again. Must not know: what is logged, how lines are formatted.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tollgate_server::gateway::AccessLogOutput;
use tracing_subscriber::fmt::MakeWriter;

/// The most bytes that wait to be written. As many again are being written.
pub(super) const MAX_PENDING_BYTES: usize = 256 << 10;
/// How long the end of the process waits until the log is written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Where lines are written to. Clones share one buffer and one thread.
#[derive(Clone, Debug)]
pub(super) struct LogWriter(Arc<LogBuffer>);

/// Waits on drop, for a bounded time, until every line is written.
#[must_use = "lines that are still buffered at the end of the process are lost without it"]
#[derive(Debug)]
pub(super) struct FlushGuard(Arc<LogBuffer>);

#[derive(Debug, Default)]
struct LogBuffer {
    state: Mutex<BufferState>,
    /// Signalled when lines arrive and when they are written.
    changed: Condvar,
    dropped: Arc<AtomicU64>,
    /// What the log says when lines were dropped.
    dropped_message: &'static str,
}

#[derive(Debug, Default)]
struct BufferState {
    pending: Vec<u8>,
    /// Lines dropped since a line last said so.
    unreported: u64,
    is_writing: bool,
    is_closed: bool,
}

impl LogWriter {
    /// Starts the thread `name`, which writes to `output`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(
        name: &str,
        dropped_message: &'static str,
        output: impl Write + Send + 'static,
    ) -> io::Result<(Self, FlushGuard)> {
        let buffer = Arc::new(LogBuffer {
            dropped_message,
            ..LogBuffer::default()
        });
        let shared = Arc::clone(&buffer);
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || shared.write_until_closed(output))?;
        Ok((Self(Arc::clone(&buffer)), FlushGuard(buffer)))
    }

    /// Counts the lines that were dropped.
    pub(super) fn dropped_lines(&self) -> &Arc<AtomicU64> {
        &self.0.dropped
    }
}

impl LogBuffer {
    fn lock(&self) -> MutexGuard<'_, BufferState> {
        // Lines are added and taken whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: &[u8]) {
        let mut state = self.lock();
        if state.pending.len().saturating_add(line.len()) > MAX_PENDING_BYTES {
            state.unreported = state.unreported.saturating_add(1);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        state.pending.extend_from_slice(line);
        drop(state);
        self.changed.notify_all();
    }

    fn write_until_closed(&self, mut output: impl Write) {
        let mut lines = Vec::new();
        while self.take_lines(&mut lines) {
            // A reader that is gone is no reason to stop taking lines: another may open the same pipe.
            if output
                .write_all(&lines)
                .and_then(|()| output.flush())
                .is_err()
            {
                let lost = lines.iter().filter(|byte| **byte == b'\n').count();
                self.dropped.fetch_add(lost as u64, Ordering::Relaxed);
            }
            lines.clear();
            let mut state = self.lock();
            state.is_writing = false;
            let dropped = std::mem::take(&mut state.unreported);
            drop(state);
            self.changed.notify_all();
            if dropped > 0 {
                tracing::warn!(lines = dropped, "{}", self.dropped_message);
            }
        }
    }

    /// Waits for lines and takes all of them. False once there are none and the log is closed.
    fn take_lines(&self, lines: &mut Vec<u8>) -> bool {
        let is_idle = |state: &mut BufferState| state.pending.is_empty() && !state.is_closed;
        let waited = self.changed.wait_while(self.lock(), is_idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut state.pending, lines);
        state.is_writing = !lines.is_empty();
        state.is_writing
    }
}

impl AccessLogOutput for LogWriter {
    fn write_line(&self, line: &[u8]) {
        self.0.push(line);
    }
}

impl Write for &LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

impl Drop for FlushGuard {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_closed = true;
        self.0.changed.notify_all();
        let is_unwritten = |state: &mut BufferState| state.is_writing || !state.pending.is_empty();
        // Whether or not the time was enough, the process ends.
        let _flushed = self
            .0
            .changed
            .wait_timeout_while(state, FLUSH_TIMEOUT, is_unwritten);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    /// An output whose every write begins by telling the test and ends when the test allows it.
    struct SlowOutput {
        begun: SyncSender<Vec<u8>>,
        allowed: Receiver<()>,
    }

    impl Write for SlowOutput {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.begun.send(bytes.to_vec()).unwrap();
            // A test that is over allows everything.
            let _over = self.allowed.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn slow_output() -> (SlowOutput, Receiver<Vec<u8>>, SyncSender<()>) {
        let (begun, writes) = sync_channel(8);
        let (allow, allowed) = sync_channel(8);
        (SlowOutput { begun, allowed }, writes, allow)
    }

    #[test]
    fn lines_that_do_not_fit_are_dropped_and_counted_while_nobody_reads() {
        let (output, writes, allow) = slow_output();
        let (log, guard) = LogWriter::start("test", "lines dropped", output).unwrap();
        (&log).write_all(b"first\n").unwrap();
        assert_eq!(writes.recv().unwrap(), b"first\n");
        // From here on the output is stuck. 256 KiB of lines fit; what comes then does not.
        let line = [b'x'; 1_024];
        for _ in 0..MAX_PENDING_BYTES / line.len() {
            (&log).write_all(&line).unwrap();
        }
        assert_eq!(log.dropped_lines().load(Ordering::Relaxed), 0);
        for _ in 0..1_000 {
            (&log).write_all(&line).unwrap();
        }
        assert_eq!(log.dropped_lines().load(Ordering::Relaxed), 1_000);
        allow.send(()).unwrap();
        assert_eq!(writes.recv().unwrap().len(), MAX_PENDING_BYTES);
        drop(allow);
        drop(guard);
    }

    #[test]
    fn the_end_waits_for_lines_that_are_written_and_not_for_ever() {
        let (output, writes, allow) = slow_output();
        let (log, guard) = LogWriter::start("test", "lines dropped", output).unwrap();
        (&log).write_all(b"last\n").unwrap();
        allow.send(()).unwrap();
        drop(guard);
        assert_eq!(
            writes.try_recv().unwrap(),
            b"last\n",
            "written before the end"
        );

        let (output, writes, _allow) = slow_output();
        let (log, guard) = LogWriter::start("test", "lines dropped", output).unwrap();
        (&log).write_all(b"stuck\n").unwrap();
        assert_eq!(writes.recv().unwrap(), b"stuck\n");
        // Returns although the write never ends.
        drop(guard);
    }
}

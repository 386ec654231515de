//! Ends connections that flood the server with HTTP/2 frames which ask for nothing: PING, SETTINGS, PRIORITY, WINDOW_UPDATE,
//! RST_STREAM, CONTINUATION, empty DATA and unknown ones. One such connection kept two thirds of a core busy.
//!
//! h2 has no hook for these frames, so a stream around the socket reads the nine bytes in front of each frame and skips the
//! payload. A connection has a stock of frames. Calls refill it, and so does time, for clients that only keep a connection
//! alive. Must not know: calls, payloads.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// The length of the connection preface and of the header of a frame.
const PREFACE_LEN: u32 = 24;
const HEADER_LEN: usize = 9;

/// The largest stock. Envoy allows as many control frames in a queue.
const MAX_STOCK: u32 = 1_000;
/// What a call adds. Envoy allows ten WINDOW_UPDATE frames for each DATA frame that it sends.
const CALL_REFILL: u32 = 10;
/// Bytes of responses that add one frame. Clients send two WINDOW_UPDATE frames for 16 KiB at most.
const WRITTEN_PER_FRAME: usize = 4_096;
/// What a second adds. Keepalive pings come a few times a minute.
const REFILL_PER_SECOND: u64 = 10;
/// What SETTINGS take. They are applied to every stream.
const SETTINGS_COST: u32 = 10;
/// The length of one setting in a SETTINGS frame.
const SETTING_LEN: u32 = 6;

/// How long, and how many bytes, are read and discarded after the end. If the socket were closed immediately, the client's
/// operating system could drop the GOAWAY frame that the client has not read.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_LEN: usize = 1 << 20;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
/// Flags: END_STREAM of DATA, ACK of SETTINGS, PADDED of DATA.
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const PADDED: u8 = 8;

/// The header of a frame, without its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FrameHeader {
    len: u32,
    kind: u8,
    flags: u8,
}

/// Finds the headers of frames in a stream of bytes, however it is cut into pieces.
#[derive(Debug)]
struct FrameScanner {
    /// Bytes to skip before the next header.
    skip: u32,
    /// The start of a header that is not complete.
    partial: [u8; HEADER_LEN],
    partial_len: usize,
}

/// Tells the connection that the client floods it.
#[derive(Clone, Debug, Default)]
pub(crate) struct FloodSignal(Arc<AtomicBool>);

/// A stream that stops reading when its stock of frames is used up.
#[derive(Debug)]
pub(crate) struct FrameGuard<T> {
    io: T,
    scanner: FrameScanner,
    stock: u32,
    /// Bytes that were written since they last refilled the stock.
    written: usize,
    /// Since when time has not refilled the stock.
    refilled_at: Instant,
    flood: FloodSignal,
    /// The time left and the bytes discarded after the end of a flood.
    linger: Option<(Pin<Box<Sleep>>, usize)>,
}

impl FloodSignal {
    /// Whether the stock of the connection is used up. Nothing more is read from it then.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl FrameHeader {
    const fn parse(bytes: [u8; HEADER_LEN]) -> Self {
        let [a, b, c, kind, flags, ..] = bytes;
        Self {
            len: u32::from_be_bytes([0, a, b, c]),
            kind,
            flags,
        }
    }

    /// What the frame takes from the stock.
    const fn cost(self) -> u32 {
        match self.kind {
            HEADERS => 0,
            // Padding may be all that such a frame has.
            DATA if self.flags & END_STREAM == 0 && (self.len == 0 || self.flags & PADDED != 0) => {
                1
            }
            DATA => 0,
            SETTINGS if self.flags & ACK == 0 => SETTINGS_COST + self.len / SETTING_LEN,
            _ => 1,
        }
    }
}

impl FrameScanner {
    const fn new() -> Self {
        Self {
            skip: PREFACE_LEN,
            partial: [0; HEADER_LEN],
            partial_len: 0,
        }
    }

    /// Calls `found` for every header that these bytes complete. Stops early when it returns false, which it then returns.
    fn scan(&mut self, mut bytes: &[u8], mut found: impl FnMut(FrameHeader) -> bool) -> bool {
        loop {
            let skip = usize::try_from(self.skip).unwrap_or(usize::MAX);
            let Some(rest @ [_, ..]) = bytes.get(skip..) else {
                let skipped = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                self.skip = self.skip.saturating_sub(skipped);
                return true;
            };
            let header = match (rest.split_first_chunk(), self.partial_len) {
                (Some((header, after)), 0) => {
                    bytes = after;
                    *header
                }
                _ => {
                    let missing = HEADER_LEN.saturating_sub(self.partial_len);
                    let (start, after) = rest.split_at(missing.min(rest.len()));
                    for (place, byte) in self.partial.iter_mut().skip(self.partial_len).zip(start) {
                        *place = *byte;
                    }
                    self.partial_len = self.partial_len.saturating_add(start.len());
                    bytes = after;
                    if self.partial_len < HEADER_LEN {
                        self.skip = 0;
                        return true;
                    }
                    self.partial_len = 0;
                    self.partial
                }
            };
            let header = FrameHeader::parse(header);
            self.skip = header.len;
            if !found(header) {
                return false;
            }
        }
    }
}

impl<T> FrameGuard<T> {
    pub(crate) fn new(io: T, flood: FloodSignal) -> Self {
        Self {
            io,
            scanner: FrameScanner::new(),
            stock: MAX_STOCK,
            written: 0,
            refilled_at: Instant::now(),
            flood,
            linger: None,
        }
    }

    /// Adds what responses refill: a client that reads a long one sends WINDOW_UPDATE frames for it.
    fn refill_by_written(&mut self, written: usize) {
        self.written = self.written.saturating_add(written);
        if let Some(refilled @ 1..) = self.written.checked_div(WRITTEN_PER_FRAME) {
            self.written %= WRITTEN_PER_FRAME;
            let refilled = u32::try_from(refilled).unwrap_or(MAX_STOCK);
            self.stock = self.stock.saturating_add(refilled).min(MAX_STOCK);
        }
    }

    /// Takes the frames in these bytes from the stock. Returns false if it is used up.
    fn account(&mut self, bytes: &[u8]) -> bool {
        let Self {
            scanner,
            stock,
            refilled_at,
            ..
        } = self;
        scanner.scan(bytes, |header| {
            if header.kind == HEADERS {
                *stock = stock.saturating_add(CALL_REFILL).min(MAX_STOCK);
                return true;
            }
            let cost = header.cost();
            if *stock < cost {
                refill(stock, refilled_at);
            }
            let (left, is_used_up) = stock.overflowing_sub(cost);
            *stock = left;
            !is_used_up
        })
    }
}

/// Adds what time has refilled. The clock is read only when the stock is used up.
#[cold]
fn refill(stock: &mut u32, refilled_at: &mut Instant) {
    let now = Instant::now();
    let millis = now.duration_since(*refilled_at).as_millis();
    let millis = u64::try_from(millis).unwrap_or(u64::MAX);
    let refilled = millis.saturating_mul(REFILL_PER_SECOND) / 1_000;
    if refilled > 0 {
        *refilled_at = now;
        let refilled = u32::try_from(refilled).unwrap_or(MAX_STOCK);
        *stock = stock.saturating_add(refilled).min(MAX_STOCK);
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for FrameGuard<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.flood.is_set() {
            // The connection sees the signal after this poll.
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(context, buffer))?;
        let arrived = buffer.filled().get(before..).unwrap_or_default();
        if this.account(arrived) {
            return Poll::Ready(Ok(()));
        }
        buffer.set_filled(before);
        this.flood.0.store(true, Ordering::Relaxed);
        Poll::Pending
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for FrameGuard<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write(context, bytes))?;
        self.refill_by_written(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write_vectored(context, bytes))?;
        self.refill_by_written(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    /// After a flood it also discards what the client has sent, for a moment.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.linger.is_none() {
            ready!(Pin::new(&mut this.io).poll_shutdown(context))?;
            if !this.flood.is_set() {
                return Poll::Ready(Ok(()));
            }
        }
        let (timer, discarded) = this
            .linger
            .get_or_insert_with(|| (Box::pin(sleep(LINGER)), 0));
        while *discarded < LINGER_LEN && timer.as_mut().poll(context).is_pending() {
            let mut room = [0; 4_096];
            let mut room = ReadBuf::new(&mut room);
            let read = ready!(Pin::new(&mut this.io).poll_read(context, &mut room));
            if read.is_err() || room.filled().is_empty() {
                break;
            }
            *discarded = discarded.saturating_add(room.filled().len());
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut out = length[1..].to_vec();
        out.extend([kind, flags, 0, 0, 0, 1]);
        out.extend(payload);
        out
    }

    /// The headers in all bytes at once, read one field after the other.
    fn reference(bytes: &[u8]) -> Vec<FrameHeader> {
        let (mut found, mut at) = (Vec::new(), 24);
        while at + 9 <= bytes.len() {
            let len = bytes[at..at + 3]
                .iter()
                .fold(0, |sum, byte| sum * 256 + u32::from(*byte));
            let (kind, flags) = (bytes[at + 3], bytes[at + 4]);
            found.push(FrameHeader { len, kind, flags });
            at += 9 + len as usize;
        }
        found
    }

    fn scanned(bytes: &[u8], cuts: &[usize]) -> Vec<FrameHeader> {
        let (mut scanner, mut found) = (FrameScanner::new(), Vec::new());
        let mut rest = bytes;
        for cut in cuts.iter().chain([&usize::MAX]) {
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            assert!(scanner.scan(piece, |header| {
                found.push(header);
                true
            }));
            rest = after;
        }
        found
    }

    proptest! {
        #[test]
        fn the_scanner_finds_what_a_plain_parser_finds_however_the_bytes_are_cut(
            frames in proptest::collection::vec((any::<u8>(), any::<u8>(), 0_usize..300), 0..20),
            tail in proptest::collection::vec(any::<u8>(), 0..40),
            cuts in proptest::collection::vec(0_usize..60, 0..200),
        ) {
            let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
            for (kind, flags, len) in frames {
                bytes.extend(frame(kind, flags, &vec![kind; len]));
            }
            bytes.extend(tail);
            prop_assert_eq!(scanned(&bytes, &cuts), reference(&bytes));
            let single = vec![1; bytes.len()];
            prop_assert_eq!(scanned(&bytes, &single), reference(&bytes));
        }
    }

    /// Negative control of the property: a scanner that loses its place finds other headers.
    #[test]
    fn a_scanner_that_is_one_byte_off_is_noticed() {
        let mut bytes = vec![0; 25];
        bytes.extend(frame(6, 0, &[7; 8]));
        assert_ne!(scanned(&bytes, &[]), reference(&bytes[1..]));
    }

    fn guard() -> FrameGuard<tokio::io::Empty> {
        let mut guard = FrameGuard::new(tokio::io::empty(), FloodSignal::default());
        assert!(guard.account(&[0; 24]));
        guard
    }

    /// How many frames are accepted at once.
    fn accepted(frame: &[u8]) -> Option<usize> {
        let mut guard = guard();
        (0..5_000).find(|_| !guard.account(frame))
    }

    #[tokio::test(start_paused = true)]
    async fn each_flood_is_cut_after_a_stated_count() {
        let setting = [0, 4, 0, 1, 0, 0];
        for (what, frame, count) in [
            ("PING", frame(6, 0, &[7; 8]), 1_000),
            ("PING acknowledgements", frame(6, 1, &[7; 8]), 1_000),
            ("PRIORITY", frame(2, 0, &[0, 0, 0, 3, 9]), 1_000),
            ("RST_STREAM", frame(3, 0, &[0, 0, 0, 8]), 1_000),
            ("WINDOW_UPDATE", frame(8, 0, &[0, 0, 0, 1]), 1_000),
            ("CONTINUATION", frame(9, 0, b"x"), 1_000),
            ("GOAWAY", frame(7, 0, &[0; 8]), 1_000),
            ("an unknown type", frame(0xbe, 0, b"x"), 1_000),
            ("empty DATA", frame(0, 0, b""), 1_000),
            ("padding", frame(0, PADDED, &[2, 0, 0]), 1_000),
            ("SETTINGS", frame(4, 0, &[]), 100),
            ("a setting", frame(4, 0, &setting), 90),
            ("many settings", frame(4, 0, &setting.repeat(1_001)), 0),
            ("SETTINGS acknowledgements", frame(4, 1, &[]), 1_000),
        ] {
            assert_eq!(accepted(&frame), Some(count), "{what}");
        }
        // Frames that ask for something never are.
        let data = (frame(0, 0, b"x"), frame(0, END_STREAM, b""));
        for useful in [data.0, data.1, frame(1, 4, b"head")] {
            assert_eq!(accepted(&useful), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_only_keeps_its_connection_alive_for_days_is_never_cut() {
        let mut guard = guard();
        let ping = frame(6, 0, &[7; 8]);
        for _ in 0..100_000 {
            tokio::time::advance(Duration::from_secs(10)).await;
            assert!(guard.account(&ping));
        }
        // Pauses are not saved up beyond the largest stock.
        let burst = (0..5_000).find(|_| !guard.account(&ping)).unwrap();
        assert!((900..=2_000).contains(&burst), "{burst}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_client_may_send_ten_control_frames_for_each_call() {
        let mut guard = guard();
        let mut call = frame(1, 4, b"head");
        call.extend(frame(0, END_STREAM, b"message"));
        call.extend(frame(8, 0, &[0, 0, 0, 1]).repeat(8));
        call.extend(frame(6, 0, &[7; 8]).repeat(2));
        for _ in 0..10_000 {
            assert!(guard.account(&call));
        }
        call.extend(frame(6, 0, &[7; 8]).repeat(2));
        let cut = (0..10_000).find(|_| !guard.account(&call));
        assert!(
            cut.is_some_and(|calls| (490..=500).contains(&calls)),
            "{cut:?}"
        );
    }
}

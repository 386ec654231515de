//! Arbitrary bytes from a client: nothing panics, buffers stay bounded, and splitting into packets changes no reply. The fuzz
//! target `resp` runs this on random inputs, the test here on fixed ones.

use std::sync::Arc;

use tollgate_core::Timestamp;
use tollgate_server::resp::{NextAction, Pipeline, RespServer, RespSession};
use tollgate_store::{ManualClock, MemoryStore};

/// Fragments that random bytes rarely contain.
const PIECES: [&[u8]; 24] = [
    b"*5\r\n",
    b"*1\r\n",
    b"*-1\r\n",
    b"*64\r\n",
    b"*65\r\n",
    b"$-1\r\n",
    b"$4\r\n",
    b"$1\r\n",
    b"$65536\r\n",
    b"$65537\r\n",
    b"\r\n",
    b"GCRA\r\n",
    b"k\r\n",
    b"1\r\n",
    b"CL.THROTTLE k 1 1 1\r\n",
    b"THROTTLE k 1 1 9223372036854775807\r\n",
    b"GCRA k 9 1 0.1 TOKENS 2\r\n",
    b"HELLO 3\r\n",
    b"COMMAND DOCS\r\n",
    b"CLIENT INFO\r\n",
    b"TG.CHECK cost 1 ip ::1\r\n",
    b"\"\\x41 ' ",
    b"RESET\r\n",
    b"PING \"a\\\"b\" 'c d'\n",
];

/// Feeds the bytes as they are and as indices of fragments, whole and split.
///
/// If the replies differ, or a buffer exceeds its limit.
pub(crate) fn any_bytes(bytes: &[u8]) {
    check(bytes);
    let pieces: Vec<u8> = bytes
        .iter()
        .take(256)
        .flat_map(|byte| match PIECES.get(usize::from(*byte)) {
            Some(piece) => *piece,
            None => std::slice::from_ref(byte),
        })
        .copied()
        .collect();
    check(&pieces);
}

fn check(bytes: &[u8]) {
    let whole = answers(bytes, bytes.len());
    let cut = bytes.first().map_or(1, |byte| usize::from(*byte % 7) + 1);
    assert_eq!(whole, answers(bytes, cut), "cut into {cut}");
}

fn answers(bytes: &[u8], cut: usize) -> Vec<u8> {
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1)));
    let server = RespServer::new(MemoryStore::with_clock(16, clock).unwrap()).unwrap();
    let mut session: RespSession = server.session(None);
    let (mut pending, mut answers) = (Vec::new(), Vec::new());
    for packet in bytes.chunks(cut.max(1)) {
        pending.extend_from_slice(packet);
        loop {
            let before = answers.len();
            let mut out = Vec::new();
            let fed = server.feed(&mut session, &mut pending, &mut Pipeline::new(), &mut out);
            assert!(fed.consumed <= pending.len());
            pending.drain(..fed.consumed);
            answers.append(&mut out);
            assert!(
                answers.len() - before < 1 << 20,
                "one turn's answers are bounded"
            );
            match fed.next {
                NextAction::Read => break,
                NextAction::FeedAgain => {}
                NextAction::Drain => panic!("nothing is awaited over memory and without tickets"),
                NextAction::Close => return answers,
            }
        }
        assert!(
            pending.len() < 140 * 1_024,
            "{} bytes are kept",
            pending.len()
        );
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::any_bytes;
    use tollgate_testkit::fuzzing::pseudo_random_bytes;

    #[test]
    fn i13_no_bytes_from_a_client_break_a_promise() {
        for seed in 0..64 {
            let bytes = pseudo_random_bytes(seed, 96);
            any_bytes(&bytes);
            // Small numbers select fragments.
            let pieces: Vec<u8> = bytes.iter().map(|byte| byte % 28).collect();
            any_bytes(&pieces);
        }
    }
}

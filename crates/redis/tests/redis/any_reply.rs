//! Any bytes as the replies of a server: no panic, and each reply is the one that the client library reads.
//!
//! The fuzz target `redis_reply` runs the same function.

use tollgate_redis::wire::parse_reply;

/// Reads replies from the bytes, as far as there are any.
pub(crate) fn any_reply(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some((reply, len))) = parse_reply(rest) {
        let (frame, after) = rest.split_at(len);
        assert!(!frame.is_empty());
        let expected = redis::parse_redis_value(frame);
        assert_eq!(expected.ok(), Some(reply.into_value()), "{frame:?}");
        // A reply is found only when its last byte has arrived.
        let cut = &frame[..len - 1];
        assert!(!matches!(parse_reply(cut), Ok(Some(_))), "{cut:?}");
        rest = after;
    }
}

/// Bytes that resemble replies, cut and changed at random.
#[cfg(test)]
#[test]
fn replies_are_read_as_the_client_library_reads_them() {
    const PIECES: [&[u8]; 14] = [
        b"*2\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b":12\r\n",
        b":-3\r\n",
        b"$3\r\nabc\r\n",
        b"$-1\r\n",
        b"$0\r\n\r\n",
        b"+OK\r\n",
        b"-ERR no\r\n",
        b"*6\r\n",
        b"\r\n",
        b"*",
        b"$9999999\r\n",
    ];
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap() % below
    };
    let mut replies = 0;
    for _ in 0..10_000 {
        let mut bytes: Vec<u8> = (0..1 + next(12))
            .flat_map(|_| PIECES[next(PIECES.len())])
            .copied()
            .collect();
        if next(3) == 0 {
            let at = next(bytes.len());
            bytes[at] = u8::try_from(next(256)).unwrap();
        }
        replies += usize::from(matches!(parse_reply(&bytes), Ok(Some(_))));
        any_reply(&bytes);
    }
    assert!(replies > 2_000, "{replies}: the test proves nothing");
}

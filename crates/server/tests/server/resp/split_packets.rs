//! Splitting bytes into packets changes no reply, and pipelined commands get the same replies as sequential ones.

use super::{InMemoryClient, command, server};

/// A mix: both forms, both protocol versions, errors, empty commands, and keys with line breaks.
fn script() -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(command(&["PING"]));
    bytes.extend(b"PING\r\n\r\n*0\r\nECHO 'a b'\n");
    bytes.extend(command(&["CL.THROTTLE", "k\r\n*1\r\n", "1", "1", "60"]));
    for _ in 0..3 {
        bytes.extend(command(&["THROTTLE", "k", "2", "1", "60"]));
    }
    bytes.extend(command(&["HELLO", "3", "SETNAME", "x"]));
    bytes.extend(command(&["GCRA", "k", "1", "2", "0.5", "TOKENS", "2"]));
    bytes.extend(command(&["CL.THROTTLE", "k", "many", "1", "60"]));
    bytes.extend(b"no such command\r\n");
    bytes.extend(command(&["CONFIG", "GET", "save"]));
    bytes.extend(command(&["CLIENT", "GETNAME"]));
    bytes.extend(b"QUIT\r\nPING\r\n");
    bytes
}

fn answers<'a>(packets: impl IntoIterator<Item = &'a [u8]>) -> String {
    let (server, _clock) = server();
    let mut line = InMemoryClient::new(&server);
    let answers = packets
        .into_iter()
        .flat_map(|packet| line.send(packet))
        .collect();
    String::from_utf8(answers).unwrap()
}

#[test]
fn a_split_at_any_byte_changes_no_reply() {
    let script = script();
    let whole = answers([&*script]);
    assert!(whole.ends_with("$1\r\nx\r\n+OK\r\n"), "{whole}");
    for cut in 0..=script.len() {
        let (first, second) = script.split_at(cut);
        assert_eq!(answers([first, second]), whole, "cut at {cut}");
    }
    for size in 1..8 {
        assert_eq!(answers(script.chunks(size)), whole, "packets of {size}");
    }
}

#[test]
fn a_pipeline_is_answered_like_its_commands_one_after_another() {
    let ask = command(&["CL.THROTTLE", "k", "99", "1", "1"]);
    let pipeline = ask.repeat(1_000);
    let one_by_one = answers(pipeline.chunks(ask.len()));
    assert_eq!(answers([&*pipeline]), one_by_one);
    assert_eq!(one_by_one.matches("*5\r\n:0\r\n").count(), 100);
    assert_eq!(one_by_one.matches("*5\r\n:1\r\n").count(), 900);
}

/// A test that cannot fail proves nothing.
#[test]
fn control_other_bytes_have_other_replies() {
    let script = script();
    assert_ne!(answers([&script[1..]]), answers([&*script]));
}

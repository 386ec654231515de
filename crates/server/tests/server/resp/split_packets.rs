//! Splitting bytes into packets changes no reply, and pipelined commands get the same replies as sequential ones.

use tollgate_testkit::seeded_rng::SeededRng;

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

/// The server parses a command and loads its state before it runs the one in front of it. Neither order nor results change.
#[test]
fn random_pipelines_are_answered_like_their_commands_one_after_another() {
    let seed = 16;
    let mut rng = SeededRng::new(seed);
    for round in 0..50 {
        let commands: Vec<Vec<u8>> = (0..40).map(|_| random_command(&mut rng)).collect();
        let one_by_one = answers(commands.iter().map(Vec::as_slice));
        let pipeline = commands.concat();
        assert_eq!(answers([&*pipeline]), one_by_one, "seed {seed}, {round}");
        let size = usize::try_from(rng.below(200)).unwrap() + 1;
        let packets = pipeline.chunks(size);
        assert_eq!(answers(packets), one_by_one, "seed {seed}, {round}, {size}");
    }
}

fn random_command(rng: &mut SeededRng) -> Vec<u8> {
    let long = "k".repeat(1_000);
    let key = rng.pick(&["a", "b", "c", "", "d e", &*long]);
    let burst = rng.pick(&["0", "2", "5", "-3", "x"]);
    let name = rng.pick(&["CL.THROTTLE", "throttle", "GCRA"]);
    match rng.below(12) {
        0 => format!("{name} a {burst} 1 60\r\n").into_bytes(),
        1 => b"ECHO 'a b'\n".to_vec(),
        2 => command(&["PING"]),
        3 => command(&["HELLO", rng.pick(&["2", "3", "4"])]),
        4 => command(&[name, key]),
        5 => b"*0\r\n".to_vec(),
        _ => command(&[name, key, burst, "1", "60"]),
    }
}

/// A test that cannot fail proves nothing.
#[test]
fn control_other_bytes_have_other_replies() {
    let script = script();
    assert_ne!(answers([&script[1..]]), answers([&*script]));
}

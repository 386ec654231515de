//! The replies of the throttle commands, byte for byte.

use tollgate_core::Nanos;

use super::golden_replies::assert_replies;
use super::{InMemoryClient, server};

#[test]
fn cl_throttle_replies_as_redis_cell() {
    assert_replies(&[
        (
            "CL.THROTTLE user123 15 30 60",
            "*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n",
        ),
        (
            "cl.throttle user123 15 30 60 15",
            "*5\r\n:0\r\n:16\r\n:0\r\n:-1\r\n:32\r\n",
        ),
        (
            "Cl.Throttle user123 15 30 60 1",
            "*5\r\n:1\r\n:16\r\n:0\r\n:2\r\n:32\r\n",
        ),
        // More than will ever fit: limited, and waiting does not help.
        (
            "CL.THROTTLE new 4 5 5 6",
            "*5\r\n:1\r\n:5\r\n:5\r\n:-1\r\n:0\r\n",
        ),
        // A peek.
        (
            "CL.THROTTLE new 4 5 5 0",
            "*5\r\n:0\r\n:5\r\n:5\r\n:-1\r\n:0\r\n",
        ),
        // A rate that does not divide evenly, and fractions of seconds.
        (
            "CL.THROTTLE thirds 2 3 1 3",
            "*5\r\n:0\r\n:3\r\n:0\r\n:-1\r\n:1\r\n",
        ),
        (
            "CL.THROTTLE thirds 2 3 1",
            "*5\r\n:1\r\n:3\r\n:0\r\n:1\r\n:1\r\n",
        ),
        // Rates that policies would reject.
        (
            "CL.THROTTLE fine 9 700000000 1",
            "*5\r\n:0\r\n:10\r\n:9\r\n:-1\r\n:0\r\n",
        ),
        // Returned tokens.
        (
            "CL.THROTTLE user123 15 30 60 -10",
            "*5\r\n:0\r\n:16\r\n:10\r\n:-1\r\n:12\r\n",
        ),
        // A negative burst admits nothing.
        (
            "CL.THROTTLE none -1 1 1",
            "*5\r\n:1\r\n:0\r\n:0\r\n:-1\r\n:0\r\n",
        ),
        (
            "CL.THROTTLE a 9223372036854775807 9223372036854775807 9223372036854775807",
            "*5\r\n:0\r\n:9223372036854775807\r\n:4611686017\r\n:-1\r\n:1\r\n",
        ),
    ]);
}

/// redis-cell compares `max(now, tat) + quantity · T − (max_burst + 1) · T` with now, whatever the sign of the burst. So with
/// `max_burst` below -1 not even a peek passes, and with -1 a peek passes while nothing is owed. Ours let every peek pass.
#[test]
fn cl_throttle_limits_peeks_at_a_negative_burst_as_redis_cell() {
    assert_replies(&[
        // (limited, limit, remaining, retry after, reset after)
        (
            "CL.THROTTLE k -5 30 60 0",
            "*5\r\n:1\r\n:-4\r\n:0\r\n:-1\r\n:0\r\n",
        ),
        (
            "CL.THROTTLE k -5 30 60 1",
            "*5\r\n:1\r\n:-4\r\n:0\r\n:-1\r\n:0\r\n",
        ),
        (
            "CL.THROTTLE k -2 30 60 0",
            "*5\r\n:1\r\n:-1\r\n:0\r\n:-1\r\n:0\r\n",
        ),
        (
            "CL.THROTTLE k -9223372036854775808 30 60 0",
            "*5\r\n:1\r\n:-9223372036854775807\r\n:0\r\n:-1\r\n:0\r\n",
        ),
        (
            "CL.THROTTLE k -1 30 60 0",
            "*5\r\n:0\r\n:0\r\n:0\r\n:-1\r\n:0\r\n",
        ),
        (
            "CL.THROTTLE k -1 30 60 1",
            "*5\r\n:1\r\n:0\r\n:0\r\n:-1\r\n:0\r\n",
        ),
        // Returning as much as the burst is below zero passes, less does not.
        (
            "CL.THROTTLE k -5 30 60 -3",
            "*5\r\n:1\r\n:-4\r\n:0\r\n:-1\r\n:0\r\n",
        ),
        (
            "CL.THROTTLE k -5 30 60 -4",
            "*5\r\n:0\r\n:-4\r\n:0\r\n:-1\r\n:0\r\n",
        ),
        // With two tokens of debt a peek without a burst waits for them, and a negative one waits in vain.
        (
            "CL.THROTTLE k 4 30 60 2",
            "*5\r\n:0\r\n:5\r\n:3\r\n:-1\r\n:4\r\n",
        ),
        (
            "CL.THROTTLE k -1 30 60 0",
            "*5\r\n:1\r\n:0\r\n:0\r\n:4\r\n:4\r\n",
        ),
        (
            "CL.THROTTLE k -5 30 60 0",
            "*5\r\n:1\r\n:-4\r\n:0\r\n:-1\r\n:4\r\n",
        ),
        // None of the limited calls changed the state.
        (
            "CL.THROTTLE k 4 30 60 0",
            "*5\r\n:0\r\n:5\r\n:3\r\n:-1\r\n:4\r\n",
        ),
    ]);
}

#[test]
fn cl_throttle_has_the_errors_of_redis_cell() {
    assert_replies(&[
        (
            "CL.THROTTLE k 1 1",
            "-Cell error: Store error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]\r\n",
        ),
        (
            "CL.THROTTLE k 1 1 1 1 1",
            "-Cell error: Store error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]\r\n",
        ),
        (
            "CL.THROTTLE k x 1 1",
            "-Cell error: Store error: Couldn't parse as integer: x\r\n",
        ),
        (
            "CL.THROTTLE k 1 1.5 1",
            "-Cell error: Store error: Couldn't parse as integer: 1.5\r\n",
        ),
        (
            "CL.THROTTLE k 1 0 1",
            "-Cell error: Store error: Zero rates are not supported\r\n",
        ),
        (
            "CL.THROTTLE k 1 1 0",
            "-Cell error: Store error: Zero rates are not supported\r\n",
        ),
        (
            "CL.THROTTLE k 1 -1 1",
            "-Cell error: Store error: Negative rates are not supported\r\n",
        ),
        (
            "CL.THROTTLE k 1 9223372036854775808 1",
            "-Cell error: Store error: Couldn't parse as integer: 9223372036854775808\r\n",
        ),
    ]);
}

#[test]
fn throttle_replies_as_throttlecrab() {
    assert_replies(&[
        // Allowed, limit, remaining, reset, retry.
        ("THROTTLE k 2 1 10", "*5\r\n:1\r\n:2\r\n:1\r\n:10\r\n:0\r\n"),
        (
            "THROTTLE k 2 1 10 1",
            "*5\r\n:1\r\n:2\r\n:0\r\n:20\r\n:0\r\n",
        ),
        (
            "THROTTLE k 2 1 10",
            "*5\r\n:0\r\n:2\r\n:0\r\n:20\r\n:10\r\n",
        ),
        (
            "THROTTLE k 2 1 10 3",
            "*5\r\n:0\r\n:2\r\n:0\r\n:20\r\n:-1\r\n",
        ),
        (
            "THROTTLE fast 1 3 1",
            "*5\r\n:1\r\n:1\r\n:0\r\n:1\r\n:0\r\n",
        ),
        (
            "THROTTLE fast 1 3 1",
            "*5\r\n:0\r\n:1\r\n:0\r\n:1\r\n:1\r\n",
        ),
        (
            "THROTTLE k 1 1",
            "-ERR wrong number of arguments for 'throttle' command\r\n",
        ),
        ("THROTTLE k x 1 1", "-ERR invalid max_burst\r\n"),
        ("THROTTLE k 1 x 1", "-ERR invalid count_per_period\r\n"),
        ("THROTTLE k 1 1 x", "-ERR invalid period\r\n"),
        ("THROTTLE k 1 1 1 x", "-ERR invalid quantity\r\n"),
        ("THROTTLE k 1 1 1 -3", "-ERR negative quantity: -3\r\n"),
        ("THROTTLE k 0 1 1", "-ERR invalid rate limit parameters\r\n"),
        ("THROTTLE k 1 0 1", "-ERR invalid rate limit parameters\r\n"),
        (
            "THROTTLE k 1 1 -1",
            "-ERR invalid rate limit parameters\r\n",
        ),
        // Reported to crash the original.
        (
            "THROTTLE k2 4294967296 1 9223372036854775807",
            "*5\r\n:1\r\n:4294967296\r\n:0\r\n:4611686019\r\n:0\r\n",
        ),
    ]);
}

#[test]
fn gcra_replies_as_the_unreleased_redis_command() {
    assert_replies(&[
        (
            "GCRA api:user:123 5 10 60",
            "*5\r\n:0\r\n:6\r\n:5\r\n:-1\r\n:6\r\n",
        ),
        (
            "GCRA api:user:123 5 10 60 TOKENS 3",
            "*5\r\n:0\r\n:6\r\n:2\r\n:-1\r\n:24\r\n",
        ),
        (
            "gcra api:user:123 5 10 60 tokens 3",
            "*5\r\n:1\r\n:6\r\n:2\r\n:6\r\n:24\r\n",
        ),
        (
            "GCRA api:user:123 5 10 60 TOKENS 7",
            "*5\r\n:1\r\n:6\r\n:2\r\n:-1\r\n:24\r\n",
        ),
        ("GCRA half 0 1 0.5", "*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:1\r\n"),
        ("GCRA half 0 1 0.5", "*5\r\n:1\r\n:1\r\n:0\r\n:1\r\n:1\r\n"),
        (
            "GCRA k 1 1",
            "-ERR wrong number of arguments for 'gcra' command\r\n",
        ),
        (
            "GCRA k -1 1 1",
            "-ERR value is out of range, must be positive\r\n",
        ),
        (
            "GCRA k x 1 1",
            "-ERR value is not an integer or out of range\r\n",
        ),
        (
            "GCRA k 1 0 1",
            "-ERR value is out of range, value must between 1 and 9223372036854775807\r\n",
        ),
        ("GCRA k 1 1 0", "-ERR period must be > 0 and < 1e12\r\n"),
        ("GCRA k 1 1 1e12", "-ERR period must be > 0 and < 1e12\r\n"),
        ("GCRA k 1 1 x", "-ERR value is not a valid float\r\n"),
        ("GCRA k 1 1 1 COUNT 1", "-ERR syntax error\r\n"),
        ("GCRA k 1 1 1 TOKENS", "-ERR Missing TOKENS value\r\n"),
        (
            "GCRA k 1 1 1 TOKENS 0",
            "-ERR value is out of range, value must between 1 and 9223372036854775807\r\n",
        ),
    ]);
}

#[test]
fn the_reported_wait_is_enough_and_a_second_less_is_not() {
    let (server, clock) = server();
    let mut line = InMemoryClient::new(&server);
    for (ask, retry) in [
        ("CL.THROTTLE k 1 1 10", 3),
        ("THROTTLE k 2 1 10", 4),
        ("GCRA k 1 1 10", 3),
    ] {
        line.numbers(ask);
        line.numbers(ask);
        let wait = line.numbers(ask)[retry];
        assert_eq!(wait, 10, "{ask}");
        clock.advance(Nanos::from_secs(9));
        assert_eq!(line.numbers(ask)[retry], 1, "{ask}");
        clock.advance(Nanos::SECOND);
        assert!(line.numbers(ask)[retry] <= 0, "{ask}");
    }
}

#[test]
fn keys_are_any_bytes_up_to_the_limit() {
    let (server, _clock) = server();
    let mut line = InMemoryClient::new(&server);
    let long = "k".repeat(1_024);
    assert!(
        line.command(&["GCRA", &long, "1", "1", "1"])
            .starts_with("*5\r\n:0")
    );
    let error = "-ERR key: it has 1025 bytes, at most 1024 are allowed\r\n";
    assert_eq!(line.command(&["GCRA", &(long + "k"), "1", "1", "1"]), error);
    let binary = b"*5\r\n$4\r\nGCRA\r\n$3\r\n\0\r\xff\r\n$1\r\n0\r\n$1\r\n1\r\n$1\r\n1\r\n";
    assert!(line.send(binary).starts_with(b"*5\r\n:0"));
    assert!(line.send(binary).starts_with(b"*5\r\n:1"));
    assert!(
        line.command(&["GCRA", "", "0", "1", "1"])
            .starts_with("*5\r\n:0"),
        "an empty key is a key"
    );
}

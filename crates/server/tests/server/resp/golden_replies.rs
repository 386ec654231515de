//! The reply of every command, byte for byte, in both protocol versions.

use super::{InMemoryClient, server};
use tollgate_core::Nanos;

/// A command and its reply.
type Said = (&'static str, &'static str);

fn hold(script: &[Said]) {
    let (server, _clock) = server();
    let mut line = InMemoryClient::new(&server);
    for (words, answer) in script {
        assert_eq!(line.line(words), *answer, "{words}");
    }
}

#[test]
fn cl_throttle_replies_as_redis_cell() {
    hold(&[
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

#[test]
fn cl_throttle_has_the_errors_of_redis_cell() {
    hold(&[
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
    hold(&[
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
    hold(&[
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
fn connection_commands_are_answered_in_resp2() {
    hold(&[
        ("PING", "+PONG\r\n"),
        ("ping hi", "$2\r\nhi\r\n"),
        (
            "PING a b",
            "-ERR wrong number of arguments for 'ping' command\r\n",
        ),
        ("ECHO hi", "$2\r\nhi\r\n"),
        (
            "ECHO",
            "-ERR wrong number of arguments for 'echo' command\r\n",
        ),
        ("SELECT 0", "+OK\r\n"),
        ("SELECT 1", "-ERR DB index is out of range\r\n"),
        (
            "SELECT x",
            "-ERR value is not an integer or out of range\r\n",
        ),
        ("AUTH default any", "+OK\r\n"),
        (
            "AUTH somebody any",
            "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
        ),
        (
            "AUTH any",
            "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?\r\n",
        ),
        ("CLIENT SETINFO LIB-NAME redis-py", "+OK\r\n"),
        ("CLIENT SETINFO LIB-VER 5.2.1", "+OK\r\n"),
        (
            "CLIENT SETINFO LIB-AGE 5",
            "-ERR Unrecognized option 'LIB-AGE'\r\n",
        ),
        ("CLIENT GETNAME", "$-1\r\n"),
        ("CLIENT SETNAME me", "+OK\r\n"),
        ("CLIENT GETNAME", "$2\r\nme\r\n"),
        ("CLIENT ID", ":1\r\n"),
        (
            "CLIENT INFO",
            "$99\r\nid=1 addr= laddr= name=me db=0 cmd=client|info user=default lib-name=redis-py lib-ver=5.2.1 resp=2\n\r\n",
        ),
        ("CLIENT NO-EVICT ON", "+OK\r\n"),
        ("CLIENT NO-TOUCH maybe", "-ERR syntax error\r\n"),
        ("HELLO 4", "-NOPROTO unsupported protocol version\r\n"),
        (
            "HELLO x",
            "-ERR Protocol version is not an integer or out of range\r\n",
        ),
        (
            "HELLO 2 SETNAME",
            "-ERR Syntax error in HELLO option 'SETNAME'\r\n",
        ),
        (
            "HELLO 2",
            "*14\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$5\r\nproto\r\n:2\r\n$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n",
        ),
        (
            "GET secret",
            "-ERR unknown command 'GET', with args beginning with: 'secret' \r\n",
        ),
        ("RESET", "+RESET\r\n"),
        ("CLIENT GETNAME", "$-1\r\n"),
        ("QUIT", "+OK\r\n"),
        ("PING", ""),
    ]);
}

#[test]
fn introspection_commands_are_answered_in_resp2() {
    hold(&[
        (
            "CLIENT",
            "-ERR wrong number of arguments for 'client' command\r\n",
        ),
        ("CONFIG GET save", "*2\r\n$4\r\nsave\r\n$0\r\n\r\n"),
        (
            "CONFIG GET appendonly",
            "*2\r\n$10\r\nappendonly\r\n$2\r\nno\r\n",
        ),
        ("CONFIG GET unheard-of", "*0\r\n"),
        ("COMMAND COUNT", ":18\r\n"),
        (
            "COMMAND INFO gcra nothing",
            "*2\r\n*10\r\n$4\r\ngcra\r\n:-5\r\n*2\r\n+write\r\n+fast\r\n:1\r\n:1\r\n:1\r\n*0\r\n*0\r\n*0\r\n*0\r\n$-1\r\n",
        ),
        ("COMMAND GETKEYS GCRA k 1 1 1", "*1\r\n$1\r\nk\r\n"),
        (
            "COMMAND DOCS echo",
            "*2\r\n$4\r\necho\r\n*8\r\n$7\r\nsummary\r\n$21\r\nReturns its argument.\r\n$5\r\nsince\r\n$5\r\n0.1.0\r\n$5\r\ngroup\r\n$10\r\nconnection\r\n$9\r\narguments\r\n*1\r\n*4\r\n$4\r\nname\r\n$7\r\nmessage\r\n$4\r\ntype\r\n$6\r\nstring\r\n",
        ),
        (
            "INFO replication",
            "$28\r\n# Replication\r\nrole:master\r\n\r\n",
        ),
    ]);
}

#[test]
fn resp3_has_its_own_maps_booleans_and_nulls() {
    hold(&[
        (
            "HELLO 3 AUTH default any SETNAME me",
            "%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n",
        ),
        ("CLIENT GETNAME", "$2\r\nme\r\n"),
        (
            "CL.THROTTLE k 1 1 10",
            "*5\r\n:0\r\n:2\r\n:1\r\n:-1\r\n:10\r\n",
        ),
        ("THROTTLE k 2 1 10", "*5\r\n:1\r\n:2\r\n:1\r\n:10\r\n:0\r\n"),
        ("GCRA k 1 1 10", "*5\r\n:0\r\n:2\r\n:1\r\n:-1\r\n:10\r\n"),
        (
            "CONFIG GET save appendonly",
            "%2\r\n$10\r\nappendonly\r\n$2\r\nno\r\n$4\r\nsave\r\n$0\r\n\r\n",
        ),
        ("COMMAND INFO nothing", "*1\r\n_\r\n"),
        (
            "INFO replication",
            "=32\r\ntxt:# Replication\r\nrole:master\r\n\r\n",
        ),
        ("RESET", "+RESET\r\n"),
        ("COMMAND INFO nothing", "*1\r\n$-1\r\n"),
    ]);
}

#[test]
fn a_password_is_required_before_any_command() {
    let (server, _clock) = server();
    let server = server.with_password("secret");
    let mut line = InMemoryClient::new(&server);
    let required = "-NOAUTH Authentication required.\r\n";
    assert_eq!(line.line("CL.THROTTLE k 1 1 1"), required);
    assert_eq!(line.line("PING"), required);
    assert!(line.line("HELLO 3").starts_with("-NOAUTH HELLO"));
    for wrong in [
        "AUTH wrong",
        "AUTH secret2",
        "AUTH secre",
        "AUTH other secret",
        "HELLO 3 AUTH default wrong",
    ] {
        assert!(line.line(wrong).starts_with("-WRONGPASS"), "{wrong}");
        assert_eq!(line.line("PING"), required);
    }
    assert_eq!(line.line("AUTH secret"), "+OK\r\n");
    assert_eq!(line.line("PING"), "+PONG\r\n");
    assert_eq!(line.line("RESET"), "+RESET\r\n");
    assert_eq!(
        line.line("PING"),
        required,
        "who resets is a stranger again"
    );
    assert!(
        line.line("HELLO 3 AUTH default secret")
            .starts_with("%7\r\n")
    );
    assert!(!format!("{server:?}").contains("secret"));
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

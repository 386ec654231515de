//! The replies of connection and introspection commands, byte for byte, in both protocol versions.

use super::{InMemoryClient, server};

/// A command and its reply.
pub(super) type Exchange = (&'static str, &'static str);

/// Runs the commands on one connection and compares every reply.
pub(super) fn assert_replies(script: &[Exchange]) {
    let (server, _clock) = server();
    let mut line = InMemoryClient::new(&server);
    for (words, answer) in script {
        assert_eq!(line.line(words), *answer, "{words}");
    }
}

#[test]
fn connection_commands_are_answered_in_resp2() {
    assert_replies(&[
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
    assert_replies(&[
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
    assert_replies(&[
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

//! Connection commands: `PING`, `ECHO`, `SELECT`, `AUTH` and `HELLO`.
//!
//! Must not know: limits.

use tollgate_store::Clock;

use super::commands::wrong_arity;
use super::number::parse_integer;
use super::parse::RespCommand;
use super::reply_writer::{EchoedInput, ReplyWriter};
use super::server::RespServer;
use super::session::{MAX_NAME_LEN, RespSession, is_valid_client_name};

/// The Redis version that we report. Clients choose their commands by it.
pub(super) const REDIS_VERSION: &str = "7.0.0";

pub(super) const INVALID_NAME: &str =
    "ERR Client names cannot contain spaces, newlines or special characters, nor more than";

pub(super) fn ping(command: &RespCommand<'_>, reply: &mut ReplyWriter<'_>) {
    match command.len() {
        1 => reply.simple("PONG"),
        2 => reply.bulk(command.argument(1)),
        _ => wrong_arity("ping", reply),
    }
}

pub(super) fn echo(command: &RespCommand<'_>, reply: &mut ReplyWriter<'_>) {
    match command.len() {
        2 => reply.bulk(command.argument(1)),
        _ => wrong_arity("echo", reply),
    }
}

pub(super) fn select(command: &RespCommand<'_>, reply: &mut ReplyWriter<'_>) {
    if command.len() != 2 {
        return wrong_arity("select", reply);
    }
    match parse_integer(command.argument(1)) {
        Some(0) => reply.ok(),
        Some(_) => reply.error(format_args!("ERR DB index is out of range")),
        None => reply.error(format_args!("ERR value is not an integer or out of range")),
    }
}

/// `AUTH [username] password`
pub(super) fn auth<C: Clock>(
    server: &RespServer<C>,
    session: &mut RespSession,
    command: &RespCommand<'_>,
    reply: &mut ReplyWriter<'_>,
) {
    let (user, password): (&[u8], _) = match command.len() {
        2 => (b"default", command.argument(1)),
        3 => (command.argument(1), command.argument(2)),
        _ => return wrong_arity("auth", reply),
    };
    if server.password.is_none() && command.len() == 2 {
        return reply.error(format_args!(
            "ERR AUTH <password> called without any password configured for the default user. \
             Are you sure your configuration is correct?"
        ));
    }
    match is_password_valid(server, user, password) {
        true => {
            session.is_authenticated = true;
            reply.ok();
        }
        false => wrong_password(reply),
    }
}

/// `HELLO [protover [AUTH username password] [SETNAME name]]`
pub(super) fn hello<C: Clock>(
    server: &RespServer<C>,
    session: &mut RespSession,
    command: &RespCommand<'_>,
    out: &mut Vec<u8>,
) {
    let reply = &mut ReplyWriter::new(out, session.is_resp3);
    let mut is_resp3 = session.is_resp3;
    if command.len() > 1 {
        is_resp3 = match parse_integer(command.argument(1)) {
            Some(2) => false,
            Some(3) => true,
            Some(_) => return reply.error(format_args!("NOPROTO unsupported protocol version")),
            None => {
                return reply.error(format_args!(
                    "ERR Protocol version is not an integer or out of range"
                ));
            }
        };
    }
    let (mut at, mut name, mut is_trusted) = (2_usize, None, session.is_authenticated);
    while at < command.len() {
        let (option, left) = (command.argument(at), command.len().saturating_sub(at));
        let argument = |number: usize| command.argument(at.saturating_add(number));
        if option.eq_ignore_ascii_case(b"auth") && left >= 3 {
            if !is_password_valid(server, argument(1), argument(2)) {
                return wrong_password(reply);
            }
            is_trusted = true;
            at = at.saturating_add(3);
        } else if option.eq_ignore_ascii_case(b"setname") && left >= 2 {
            if !is_valid_client_name(argument(1)) {
                return reply.error(format_args!("{INVALID_NAME} {MAX_NAME_LEN} bytes."));
            }
            name = Some(argument(1));
            at = at.saturating_add(2);
        } else {
            return reply.error(format_args!(
                "ERR Syntax error in HELLO option '{}'",
                EchoedInput(option)
            ));
        }
    }
    if !is_trusted {
        return reply.error(format_args!(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH \
             <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the \
             same time"
        ));
    }
    // Only a `HELLO` that is valid as a whole changes the session.
    (session.is_authenticated, session.is_resp3) = (is_trusted, is_resp3);
    if let Some(name) = name {
        session.name = name.into();
    }
    write_hello(session.id, is_resp3, &mut ReplyWriter::new(out, is_resp3));
}

fn write_hello(id: u64, is_resp3: bool, reply: &mut ReplyWriter<'_>) {
    reply.map(7);
    for (name, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"proto");
    reply.integer(if is_resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.unsigned(id);
    for (name, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
}

fn wrong_password(reply: &mut ReplyWriter<'_>) {
    reply.error(format_args!(
        "WRONGPASS invalid username-password pair or user is disabled."
    ));
}

/// Without a configured password every password is accepted, as for the default user of Redis.
fn is_password_valid<C>(server: &RespServer<C>, user: &[u8], password: &[u8]) -> bool {
    let Some(expected) = &server.password else {
        return user == b"default";
    };
    // The time does not depend on the position of the first difference.
    let differences = expected
        .iter()
        .zip(password)
        .fold(0, |all, (one, other)| all | (one ^ other));
    user == b"default" && expected.len() == password.len() && std::hint::black_box(differences) == 0
}

//! Connection commands: `PING`, `ECHO`, `SELECT`, `AUTH` and `HELLO`.
//!
//! Must not know: limits.

use std::time::Duration;

use tokio::time::sleep;
use tollgate_store::Clock;

use super::batch_counts::CommandOutcome;
use super::commands::{CommandFlow, wrong_arity};
use super::number::parse_integer;
use super::parse::RespCommand;
use super::pipeline::{Pipeline, RenderedReply};
use super::reply_writer::{EchoedInput, ReplyWriter};
use super::server::RespServer;
use super::session::{MAX_NAME_LEN, RespSession, is_valid_client_name};
use crate::listen::{FAILURE_DELAY, FailureAnswer, is_same_secret};

/// The Redis version that we report. Clients choose their commands by it.
pub(super) const REDIS_VERSION: &str = "7.0.0";

const WRONG_PASSWORD: &[u8] = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n";

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

/// The password or the user is wrong. No reply is written yet.
pub(super) struct WrongPassword;

/// `AUTH [username] password`
pub(super) fn auth<C: Clock>(
    server: &RespServer<C>,
    session: &mut RespSession,
    command: &RespCommand<'_>,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), WrongPassword> {
    let (user, password): (&[u8], _) = match command.len() {
        2 => (b"default", command.argument(1)),
        3 => (command.argument(1), command.argument(2)),
        _ => {
            wrong_arity("auth", reply);
            return Ok(());
        }
    };
    if server.password.is_none() && command.len() == 2 {
        reply.error(format_args!(
            "ERR AUTH <password> called without any password configured for the default user. \
             Are you sure your configuration is correct?"
        ));
        return Ok(());
    }
    if !is_password_valid(server, user, password) {
        return Err(WrongPassword);
    }
    session.is_authenticated = true;
    reply.ok();
    Ok(())
}

/// Answers a wrong password, slowly after several of them.
pub(super) fn reject_password<'s, C: Clock>(
    server: &'s RespServer<C>,
    session: &RespSession,
    pipeline: &mut Pipeline<'s>,
    out: &mut Vec<u8>,
) -> CommandFlow {
    if server.password.is_none() {
        // Only the user name is wrong, and there is nothing to guess.
        out.extend_from_slice(WRONG_PASSWORD);
        return CommandFlow::Continue;
    }
    let (client, now) = (session.client_ip(), server.store().now());
    match server.auth_failures.record(client, now, server.counters()) {
        FailureAnswer::Prompt => out.extend_from_slice(WRONG_PASSWORD),
        FailureAnswer::Refused => {
            out.extend_from_slice(WRONG_PASSWORD);
            return CommandFlow::Close;
        }
        FailureAnswer::Delayed(permit) => pipeline.push(async move {
            sleep(Duration::from_nanos(FAILURE_DELAY.as_nanos())).await;
            permit.complete();
            RenderedReply {
                bytes: WRONG_PASSWORD.to_vec(),
                outcome: CommandOutcome::Uncounted,
            }
        }),
    }
    CommandFlow::Continue
}

/// `HELLO [protover [AUTH username password] [SETNAME name]]`
pub(super) fn hello<C: Clock>(
    server: &RespServer<C>,
    session: &mut RespSession,
    command: &RespCommand<'_>,
    out: &mut Vec<u8>,
) -> Result<(), WrongPassword> {
    let reply = &mut ReplyWriter::new(out, session.is_resp3);
    let mut is_resp3 = session.is_resp3;
    if command.len() > 1 {
        is_resp3 = match parse_integer(command.argument(1)) {
            Some(2) => false,
            Some(3) => true,
            Some(_) => {
                reply.error(format_args!("NOPROTO unsupported protocol version"));
                return Ok(());
            }
            None => {
                reply.error(format_args!(
                    "ERR Protocol version is not an integer or out of range"
                ));
                return Ok(());
            }
        };
    }
    let (mut at, mut name, mut is_trusted) = (2_usize, None, session.is_authenticated);
    while at < command.len() {
        let (option, left) = (command.argument(at), command.len().saturating_sub(at));
        let argument = |number: usize| command.argument(at.saturating_add(number));
        if option.eq_ignore_ascii_case(b"auth") && left >= 3 {
            if !is_password_valid(server, argument(1), argument(2)) {
                return Err(WrongPassword);
            }
            is_trusted = true;
            at = at.saturating_add(3);
        } else if option.eq_ignore_ascii_case(b"setname") && left >= 2 {
            if !is_valid_client_name(argument(1)) {
                reply.error(format_args!("{INVALID_NAME} {MAX_NAME_LEN} bytes."));
                return Ok(());
            }
            name = Some(argument(1));
            at = at.saturating_add(2);
        } else {
            reply.error(format_args!(
                "ERR Syntax error in HELLO option '{}'",
                EchoedInput(option)
            ));
            return Ok(());
        }
    }
    if !is_trusted {
        reply.error(format_args!(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH \
             <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the \
             same time"
        ));
        return Ok(());
    }
    // Only a `HELLO` that is valid as a whole changes the session.
    (session.is_authenticated, session.is_resp3) = (is_trusted, is_resp3);
    if let Some(name) = name {
        session.name = name.into();
    }
    write_hello(session.id, is_resp3, &mut ReplyWriter::new(out, is_resp3));
    Ok(())
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

/// Without a configured password every password is accepted, as for the default user of Redis.
fn is_password_valid<C>(server: &RespServer<C>, user: &[u8], password: &[u8]) -> bool {
    let Some(expected) = &server.password else {
        return user == b"default";
    };
    is_same_secret(expected, password) && user == b"default"
}

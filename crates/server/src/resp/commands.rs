//! The table of commands, and their dispatch.
//!
//! Must not know: how commands are parsed.

use tollgate_store::Clock;

use super::check::TicketAction;
use super::parse::RespCommand;
use super::pipeline::Pipeline;
use super::reply_writer::{EchoedInput, ReplyWriter};
use super::server::RespServer;
use super::session::RespSession;
use super::throttle::ThrottleFamily;
use super::{check, handshake, introspection, throttle_commands, ticket_commands};

/// The length of the longest command name.
const MAX_NAME_LEN: usize = 11;

/// How to continue after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandFlow {
    Continue,
    /// The command was not run: earlier replies are still awaited.
    Drain,
    Close,
}

/// What `COMMAND` reports about a command.
#[derive(Debug)]
pub(super) struct CommandSpec {
    pub(super) name: &'static str,
    /// The number of arguments including the name; negative: at least that many.
    pub(super) arity: i64,
    pub(super) flags: &'static [&'static str],
    /// The position of its key; 0 if it has none.
    pub(super) key_position: i64,
    pub(super) group: &'static str,
    pub(super) summary: &'static str,
    /// The arguments after the name; a trailing `?` marks optional ones.
    pub(super) arguments: &'static [&'static str],
}

macro_rules! command_specs {
    ($($name:literal $arity:literal $key_position:literal $group:literal [$($flag:literal)*] [$($argument:literal)*] $summary:literal;)*) => {
        &[$(CommandSpec {
            name: $name,
            arity: $arity,
            flags: &[$($flag),*],
            key_position: $key_position,
            group: $group,
            summary: $summary,
            arguments: &[$($argument),*],
        }),*]
    };
}

/// All commands, in alphabetical order.
pub(super) const COMMANDS: &[CommandSpec] = command_specs! {
    "auth" -2 0 "connection" ["noscript" "loading" "stale" "fast" "no_auth"] ["username?" "password"]
        "Authenticates the connection.";
    "cl.throttle" -5 1 "rate_limit" ["write" "fast"] ["key" "max_burst" "count" "period" "quantity?"]
        "Takes tokens of a key. Replies like redis-cell.";
    "client" -2 0 "connection" ["noscript" "loading" "stale"] ["subcommand" "argument?"]
        "Gets and sets properties of the connection.";
    "command" -1 0 "server" ["loading" "stale"] ["subcommand?" "argument?"]
        "Lists the commands.";
    "config" -2 0 "server" ["admin" "noscript" "loading" "stale"] ["subcommand" "parameter"]
        "Returns the parameters that benchmark tools read.";
    "echo" 2 0 "connection" ["fast"] ["message"]
        "Returns its argument.";
    "gcra" -5 1 "rate_limit" ["write" "fast"] ["key" "max_burst" "tokens_per_period" "period" "TOKENS?" "count?"]
        "Takes tokens of a key. Replies like the unreleased Redis command.";
    "hello" -1 0 "connection" ["noscript" "loading" "stale" "fast" "no_auth"] ["protover?" "argument?"]
        "Switches the protocol version.";
    "info" -1 0 "server" ["loading" "stale"] ["section?"]
        "Returns information about the server.";
    "ping" -1 0 "connection" ["fast"] ["message?"]
        "Returns PONG.";
    "quit" -1 0 "connection" ["noscript" "loading" "stale" "fast" "no_auth"] []
        "Closes the connection.";
    "reset" 1 0 "connection" ["noscript" "loading" "stale" "fast" "no_auth"] []
        "Resets the connection.";
    "select" 2 0 "connection" ["loading" "stale" "fast"] ["index"]
        "Selects database 0, the only one.";
    "tg.acquire" -3 0 "rate_limit" ["write" "fast"] ["COST?" "cost?" "WAIT?" "duration?" "attribute" "value"]
        "Checks a request and acquires its leases.";
    "tg.check" -3 0 "rate_limit" ["write" "fast"] ["COST?" "cost?" "WAIT?" "duration?" "PEEK?" "attribute" "value"]
        "Checks a request against the policy.";
    "tg.release" 2 0 "rate_limit" ["write" "fast"] ["ticket"]
        "Releases the leases of a request.";
    "tg.renew" 2 0 "rate_limit" ["write" "fast"] ["ticket"]
        "Renews the leases of a request.";
    "throttle" -5 1 "rate_limit" ["write" "fast"] ["key" "max_burst" "count_per_period" "period" "quantity?"]
        "Takes tokens of a key. Replies like throttlecrab.";
};

/// Runs a command and appends its reply, or puts the awaited decision into the pipeline.
pub(super) fn run<'s, C: Clock>(
    server: &'s RespServer<C>,
    session: &mut RespSession,
    command: &RespCommand<'_>,
    pipeline: &mut Pipeline<'s>,
    out: &mut Vec<u8>,
) -> CommandFlow {
    // Commands that decide are the most frequent, so they come before names are normalised.
    if let Some(family) = throttle_family(command.argument(0)).filter(|_| session.is_authenticated)
    {
        throttle_commands::run(&server.throttle, family, command, session, pipeline, out);
        return CommandFlow::Continue;
    }
    let checker = server.checker.as_deref();
    if let Some(is_acquire) =
        check_command(command.argument(0)).filter(|_| session.is_authenticated)
    {
        check::run(checker, command, is_acquire, session, pipeline, out);
        return CommandFlow::Continue;
    }
    let mut upper = [0; MAX_NAME_LEN];
    let name = upper_case(command.argument(0), &mut upper);
    match name {
        b"TG.RELEASE" | b"TG.RENEW" if session.is_authenticated => {
            let report = match name {
                b"TG.RELEASE" => TicketAction::Release,
                _ => TicketAction::Renew,
            };
            ticket_commands::run(checker, report, command, session.is_resp3, pipeline, out);
            CommandFlow::Continue
        }
        // Other commands wait for the decisions before them, so that replies stay in order.
        _ if !pipeline.is_empty() => CommandFlow::Drain,
        _ => run_immediate(server, session, name, command, pipeline, out),
    }
}

/// Begins to load the state that a command will decide on, if its arguments name it. Returns whether they do: the next command
/// is then parsed before this one runs.
#[inline]
pub(super) fn prefetch<C: Clock>(server: &RespServer<C>, command: &RespCommand<'_>) -> bool {
    throttle_family(command.argument(0))
        .is_some_and(|family| server.throttle.prefetch(family, command.argument(1)))
}

/// Runs a command that needs no decision.
fn run_immediate<'s, C: Clock>(
    server: &'s RespServer<C>,
    session: &mut RespSession,
    name: &[u8],
    command: &RespCommand<'_>,
    pipeline: &mut Pipeline<'s>,
    out: &mut Vec<u8>,
) -> CommandFlow {
    let reply = &mut ReplyWriter::new(out, session.is_resp3);
    if !session.is_authenticated && !matches!(name, b"AUTH" | b"HELLO" | b"QUIT" | b"RESET") {
        // Close the connection, so that a web page cannot keep guessing passwords.
        if is_http_request(name) {
            return CommandFlow::Close;
        }
        reply.error(format_args!("NOAUTH Authentication required."));
        return CommandFlow::Continue;
    }
    match name {
        b"PING" => handshake::ping(command, reply),
        b"ECHO" => handshake::echo(command, reply),
        b"SELECT" => handshake::select(command, reply),
        b"AUTH" => {
            if handshake::auth(server, session, command, reply).is_err() {
                return handshake::reject_password(server, session, pipeline, out);
            }
        }
        b"HELLO" => {
            if handshake::hello(server, session, command, out).is_err() {
                return handshake::reject_password(server, session, pipeline, out);
            }
        }
        b"RESET" => {
            session.reset(server.password.is_none());
            reply.simple("RESET");
        }
        b"QUIT" => {
            reply.ok();
            return CommandFlow::Close;
        }
        b"CLIENT" => introspection::client(session, command, reply),
        b"COMMAND" => introspection::command(command, reply),
        b"CONFIG" => introspection::config(command, reply),
        b"INFO" => introspection::info(server, command, reply),
        name if is_http_request(name) => return CommandFlow::Close,
        _ => unknown(command, reply),
    }
    CommandFlow::Continue
}

/// The family of a throttle command.
fn throttle_family(name: &[u8]) -> Option<ThrottleFamily> {
    let (known, family): (&[u8], _) = match name.len() {
        11 => (b"CL.THROTTLE", ThrottleFamily::RedisCell),
        8 => (b"THROTTLE", ThrottleFamily::Throttlecrab),
        4 => (b"GCRA", ThrottleFamily::Gcra),
        _ => return None,
    };
    is_command(name, known).then_some(family)
}

/// Whether a command that the policy decides acquires leases: `TG.CHECK` does not, `TG.ACQUIRE` does.
fn check_command(name: &[u8]) -> Option<bool> {
    let (known, is_acquire): (&[u8], _) = match name.len() {
        8 => (b"TG.CHECK", false),
        10 => (b"TG.ACQUIRE", true),
        _ => return None,
    };
    is_command(name, known).then_some(is_acquire)
}

/// Clients send a name as it is documented, and comparing that takes two instructions instead of two for each byte.
#[inline]
fn is_command(name: &[u8], known: &[u8]) -> bool {
    name == known || name.eq_ignore_ascii_case(known)
}

/// Replies that the number of arguments is wrong.
pub(super) fn wrong_arity(name: &str, reply: &mut ReplyWriter<'_>) {
    reply.error(format_args!(
        "ERR wrong number of arguments for '{name}' command"
    ));
}

/// A web page can send these to any local port. Closing the connection keeps the rest of its request from being run as
/// commands.
fn is_http_request(name: &[u8]) -> bool {
    matches!(name, b"POST" | b"HOST:")
}

/// The name in upper case; empty if it is longer than any command.
fn upper_case<'a>(name: &[u8], upper: &'a mut [u8; MAX_NAME_LEN]) -> &'a [u8] {
    let Some(room) = upper.get_mut(..name.len()) else {
        return b"";
    };
    room.copy_from_slice(name);
    room.make_ascii_uppercase();
    room
}

fn unknown(command: &RespCommand<'_>, reply: &mut ReplyWriter<'_>) {
    let name = EchoedInput(command.argument(0));
    let arguments = FirstArguments(command);
    reply.error(format_args!(
        "ERR unknown command '{name}', with args beginning with: {arguments}"
    ));
}

/// The first few arguments in quotes.
struct FirstArguments<'a>(&'a RespCommand<'a>);

impl std::fmt::Display for FirstArguments<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for argument in self.0.arguments_from(1).take(3) {
            write!(f, "'{}' ", EchoedInput(argument))?;
        }
        Ok(())
    }
}

//! Which commands there are, and who carries each out.
//!
//! Must not know: how commands are read off the wire.

use tollgate_store::Clock;

use super::check::Report;
use super::families::{self};
use super::parse::Command;
use super::server::Resp;
use super::session::Session;
use super::throttle::Family;
use super::write::{Echo, Reply};
use super::{about, check, greetings, tickets};

/// The longest name of a command.
const MAX_NAME_LEN: usize = 11;

/// What is to be done after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    GoOn,
    Close,
}

/// What `COMMAND` tells of a command.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: &'static str,
    /// How many words it has, its name among them; negative: at least so many.
    pub(super) arity: i64,
    pub(super) flags: &'static [&'static str],
    /// Where its key is; zero if it has none.
    pub(super) key: i64,
    pub(super) group: &'static str,
    pub(super) summary: &'static str,
    /// Names of what comes after its own, `?` behind those that may be left out.
    pub(super) words: &'static [&'static str],
}

macro_rules! entries {
    ($($name:literal $arity:literal $key:literal $group:literal [$($flag:literal)*] [$($word:literal)*] $summary:literal;)*) => {
        &[$(Entry {
            name: $name,
            arity: $arity,
            flags: &[$($flag),*],
            key: $key,
            group: $group,
            summary: $summary,
            words: &[$($word),*],
        }),*]
    };
}

/// Every command, in alphabetical order.
pub(super) const ENTRIES: &[Entry] = entries! {
    "auth" -2 0 "connection" ["noscript" "loading" "stale" "fast" "no_auth"] ["username?" "password"]
        "Shows the password of this server.";
    "cl.throttle" -5 1 "rate_limit" ["write" "fast"] ["key" "max_burst" "count" "period" "quantity?"]
        "Takes tokens of a key, as redis-cell answers.";
    "client" -2 0 "connection" ["noscript" "loading" "stale"] ["subcommand" "argument?"]
        "Names a connection and tells about it.";
    "command" -1 0 "server" ["loading" "stale"] ["subcommand?" "argument?"]
        "Tells which commands there are.";
    "config" -2 0 "server" ["admin" "noscript" "loading" "stale"] ["subcommand" "parameter"]
        "Tells what tools ask before they measure.";
    "echo" 2 0 "connection" ["fast"] ["message"]
        "Says the same.";
    "gcra" -5 1 "rate_limit" ["write" "fast"] ["key" "max_burst" "tokens_per_period" "period" "TOKENS?" "count?"]
        "Takes tokens of a key, as the command that Redis has not released.";
    "hello" -1 0 "connection" ["noscript" "loading" "stale" "fast" "no_auth"] ["protover?" "argument?"]
        "Chooses the version of the protocol.";
    "info" -1 0 "server" ["loading" "stale"] ["section?"]
        "Tells about this server.";
    "ping" -1 0 "connection" ["fast"] ["message?"]
        "Says that the server is there.";
    "quit" -1 0 "connection" ["noscript" "loading" "stale" "fast" "no_auth"] []
        "Ends the connection.";
    "reset" 1 0 "connection" ["noscript" "loading" "stale" "fast" "no_auth"] []
        "Makes the connection as it was when it began.";
    "select" 2 0 "connection" ["loading" "stale" "fast"] ["index"]
        "Chooses database 0, the only one.";
    "tg.acquire" -3 0 "rate_limit" ["write" "fast"] ["COST?" "cost?" "attribute" "value"]
        "Decides on a request that will be worked on for a while.";
    "tg.check" -3 0 "rate_limit" ["write" "fast"] ["COST?" "cost?" "PEEK?" "attribute" "value"]
        "Decides on a request by the policy of this server.";
    "tg.release" 2 0 "rate_limit" ["write" "fast"] ["ticket"]
        "Gives back the places of a request that is done.";
    "tg.renew" 2 0 "rate_limit" ["write" "fast"] ["ticket"]
        "Keeps the places of a request that goes on.";
    "throttle" -5 1 "rate_limit" ["write" "fast"] ["key" "max_burst" "count_per_period" "period" "quantity?"]
        "Takes tokens of a key, answered in the order of throttlecrab.";
};

/// Carries a command out and appends its answer.
pub(super) fn run<C: Clock>(
    server: &Resp<C>,
    session: &mut Session,
    command: &Command<'_>,
    out: &mut Vec<u8>,
) -> After {
    let reply = &mut Reply::new(out, session.is_resp3);
    // What nearly everybody asks comes first, before names are spelt out.
    if let Some(family) = family(command.word(0)).filter(|_| session.is_trusted) {
        families::run(
            &server.throttle,
            family,
            command,
            (&mut session.recent, &mut session.tally),
            reply,
        );
        return After::GoOn;
    }
    let mut upper = [0; MAX_NAME_LEN];
    let name = upper_case(command.word(0), &mut upper);
    if !session.is_trusted && !matches!(name, b"AUTH" | b"HELLO" | b"QUIT" | b"RESET") {
        // A browser must not be able to guess on, either.
        if is_http(name) {
            return After::Close;
        }
        reply.error(format_args!("NOAUTH Authentication required."));
        return After::GoOn;
    }
    match name {
        b"TG.CHECK" => {
            let checker = server.checker.as_deref();
            check::run(checker, command, false, &mut session.tally, reply);
        }
        b"TG.ACQUIRE" => {
            let checker = server.checker.as_deref();
            check::run(checker, command, true, &mut session.tally, reply);
        }
        b"TG.RELEASE" => {
            tickets::run(server.checker.as_deref(), Report::Release, command, reply);
        }
        b"TG.RENEW" => {
            tickets::run(server.checker.as_deref(), Report::Renew, command, reply);
        }
        b"PING" => greetings::ping(command, reply),
        b"ECHO" => greetings::echo(command, reply),
        b"SELECT" => greetings::select(command, reply),
        b"AUTH" => greetings::auth(server, session, command, reply),
        b"HELLO" => greetings::hello(server, session, command, out),
        b"RESET" => {
            session.reset(server.password.is_none());
            reply.simple("RESET");
        }
        b"QUIT" => {
            reply.ok();
            return After::Close;
        }
        b"CLIENT" => about::client(session, command, reply),
        b"COMMAND" => about::command(command, reply),
        b"CONFIG" => about::config(command, reply),
        b"INFO" => about::info(server, command, reply),
        name if is_http(name) => return After::Close,
        _ => unknown(command, reply),
    }
    After::GoOn
}

/// A command that asks for a decision, which may have to be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Throttle(Family),
    Check,
    Acquire,
    Report(Report),
}

impl Decision {
    /// The one that a command asks for, if it does.
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        if let Some(family) = family(name) {
            return Some(Self::Throttle(family));
        }
        let mut upper = [0; MAX_NAME_LEN];
        match upper_case(name, &mut upper) {
            b"TG.CHECK" => Some(Self::Check),
            b"TG.ACQUIRE" => Some(Self::Acquire),
            b"TG.RELEASE" => Some(Self::Report(Report::Release)),
            b"TG.RENEW" => Some(Self::Report(Report::Renew)),
            _ => None,
        }
    }
}

/// The family of commands that bring their own quota, if it is one of them.
fn family(name: &[u8]) -> Option<Family> {
    let (known, family): (&[u8], _) = match name.len() {
        11 => (b"CL.THROTTLE", Family::Cell),
        8 => (b"THROTTLE", Family::Crab),
        4 => (b"GCRA", Family::Gcra),
        _ => return None,
    };
    name.eq_ignore_ascii_case(known).then_some(family)
}

/// How many words a command came with is wrong.
pub(super) fn wrong_arity(name: &str, reply: &mut Reply<'_>) {
    reply.error(format_args!(
        "ERR wrong number of arguments for '{name}' command"
    ));
}

/// A page in a browser can send these to any port on its machine. Ending the connection keeps whatever follows from being
/// taken for commands.
fn is_http(name: &[u8]) -> bool {
    matches!(name, b"POST" | b"HOST:")
}

/// The name in upper case, or as nothing if it is longer than any.
fn upper_case<'a>(name: &[u8], upper: &'a mut [u8; MAX_NAME_LEN]) -> &'a [u8] {
    let Some(room) = upper.get_mut(..name.len()) else {
        return b"";
    };
    room.copy_from_slice(name);
    room.make_ascii_uppercase();
    room
}

fn unknown(command: &Command<'_>, reply: &mut Reply<'_>) {
    let name = Echo(command.word(0));
    let arguments = Arguments(command);
    reply.error(format_args!(
        "ERR unknown command '{name}', with args beginning with: {arguments}"
    ));
}

/// The first few arguments, each in marks.
struct Arguments<'a>(&'a Command<'a>);

impl std::fmt::Display for Arguments<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for word in self.0.words_from(1).take(3) {
            write!(f, "'{}' ", Echo(word))?;
        }
        Ok(())
    }
}

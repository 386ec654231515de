//! Introspection commands: `CLIENT`, `COMMAND`, `CONFIG` and `INFO`.
//!
//! Must not know: limits.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use tollgate_store::Clock;

use super::commands::{COMMANDS, CommandSpec, wrong_arity};
use super::handshake::{INVALID_NAME, REDIS_VERSION};
use super::parse::RespCommand;
use super::reply_writer::{EchoedInput, ReplyWriter};
use super::server::RespServer;
use super::session::{MAX_NAME_LEN, RespSession, is_valid_client_name};

/// `CLIENT subcommand [argument ...]`
pub(super) fn client(
    session: &mut RespSession,
    command: &RespCommand<'_>,
    reply: &mut ReplyWriter<'_>,
) {
    let is = |name: &[u8]| command.argument(1).eq_ignore_ascii_case(name);
    match command.len() {
        1 => wrong_arity("client", reply),
        2 if is(b"id") => reply.unsigned(session.id),
        2 if is(b"info") => reply.verbatim(&client_line(session, "client|info")),
        _ if is(b"list") => reply.verbatim(&client_line(session, "client|list")),
        2 if is(b"getname") && session.name.is_empty() => reply.null(),
        2 if is(b"getname") => reply.bulk(&session.name),
        3 if is(b"setname") => set_client_name(session, command.argument(2), reply),
        4 if is(b"setinfo") => {
            set_library_info(session, command.argument(2), command.argument(3), reply);
        }
        3 if is(b"no-evict") || is(b"no-touch") => {
            match command.argument(2).to_ascii_lowercase().as_slice() {
                b"on" | b"off" => reply.ok(),
                _ => reply.error(format_args!("ERR syntax error")),
            }
        }
        _ => unknown("CLIENT", command, reply),
    }
}

fn set_client_name(session: &mut RespSession, name: &[u8], reply: &mut ReplyWriter<'_>) {
    if !is_valid_client_name(name) {
        return reply.error(format_args!("{INVALID_NAME} {MAX_NAME_LEN} bytes."));
    }
    session.name = name.into();
    reply.ok();
}

fn set_library_info(
    session: &mut RespSession,
    what: &[u8],
    value: &[u8],
    reply: &mut ReplyWriter<'_>,
) {
    let place = if what.eq_ignore_ascii_case(b"lib-name") {
        &mut session.library
    } else if what.eq_ignore_ascii_case(b"lib-ver") {
        &mut session.library_version
    } else {
        return reply.error(format_args!(
            "ERR Unrecognized option '{}'",
            EchoedInput(what)
        ));
    };
    if !is_valid_client_name(value) {
        let what = EchoedInput(what);
        return reply.error(format_args!(
            "ERR {what} cannot contain spaces, newlines or special characters, nor more than {MAX_NAME_LEN} bytes."
        ));
    }
    *place = value.into();
    reply.ok();
}

/// One connection as a line of `CLIENT LIST`.
fn client_line(session: &RespSession, command: &str) -> String {
    let (peer, local) = session.addresses.map_or_else(
        || (String::new(), String::new()),
        |(peer, local)| (peer.to_string(), local.to_string()),
    );
    format!(
        "id={} addr={peer} laddr={local} name={} db=0 cmd={command} user=default lib-name={} lib-ver={} resp={}\n",
        session.id,
        String::from_utf8_lossy(&session.name),
        String::from_utf8_lossy(&session.library),
        String::from_utf8_lossy(&session.library_version),
        if session.is_resp3 { 3 } else { 2 },
    )
}

/// `COMMAND [COUNT | DOCS [name ...] | INFO [name ...] | LIST | GETKEYS word ...]`
pub(super) fn command(command: &RespCommand<'_>, reply: &mut ReplyWriter<'_>) {
    let is = |name: &[u8]| command.argument(1).eq_ignore_ascii_case(name);
    match command.len() {
        1 => write_all_specs(reply, entry),
        2 if is(b"count") => reply.unsigned(COMMANDS.len() as u64),
        2 if is(b"list") => {
            write_all_specs(reply, |entry, reply| reply.bulk(entry.name.as_bytes()));
        }
        2 if is(b"info") => write_all_specs(reply, entry),
        _ if is(b"info") => {
            reply.array(command.len().saturating_sub(2));
            for name in command.arguments_from(2) {
                match find_command(name) {
                    Some(found) => entry(found, reply),
                    None => reply.null(),
                }
            }
        }
        _ if is(b"docs") => {
            let is_requested = |entry: &&CommandSpec| {
                command.len() == 2
                    || command
                        .arguments_from(2)
                        .any(|name| name.eq_ignore_ascii_case(entry.name.as_bytes()))
            };
            reply.map(COMMANDS.iter().filter(is_requested).count());
            for found in COMMANDS.iter().filter(is_requested) {
                write_docs(found, reply);
            }
        }
        3.. if is(b"getkeys") => {
            match find_command(command.argument(2)).filter(|found| found.key_position > 0) {
                Some(_) if command.len() >= 4 => {
                    reply.array(1);
                    reply.bulk(command.argument(3));
                }
                Some(_) => reply.error(format_args!(
                    "ERR Invalid number of arguments specified for command"
                )),
                None => reply.error(format_args!("ERR The command has no key arguments")),
            }
        }
        _ => unknown("COMMAND", command, reply),
    }
}

fn find_command(name: &[u8]) -> Option<&'static CommandSpec> {
    COMMANDS
        .iter()
        .find(|entry| name.eq_ignore_ascii_case(entry.name.as_bytes()))
}

fn write_all_specs(reply: &mut ReplyWriter<'_>, each: impl Fn(&CommandSpec, &mut ReplyWriter<'_>)) {
    reply.array(COMMANDS.len());
    for entry in COMMANDS {
        each(entry, reply);
    }
}

/// The ten fields of `COMMAND INFO` in Redis 7. The last four are empty.
fn entry(entry: &CommandSpec, reply: &mut ReplyWriter<'_>) {
    reply.array(10);
    reply.bulk(entry.name.as_bytes());
    reply.integer(entry.arity);
    reply.set(entry.flags.len());
    for flag in entry.flags {
        reply.simple(flag);
    }
    reply.integer(entry.key_position);
    reply.integer(entry.key_position);
    reply.integer(entry.key_position.min(1));
    for _ in 0..4 {
        reply.array(0);
    }
}

fn write_docs(entry: &CommandSpec, reply: &mut ReplyWriter<'_>) {
    reply.bulk(entry.name.as_bytes());
    reply.map(4);
    for (name, value) in [
        ("summary", entry.summary),
        ("since", env!("CARGO_PKG_VERSION")),
        ("group", entry.group),
    ] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"arguments");
    reply.array(entry.arguments.len());
    for argument in entry.arguments {
        let (name, is_optional) = match argument.strip_suffix('?') {
            Some(name) => (name, true),
            None => (*argument, false),
        };
        reply.map(if is_optional { 3 } else { 2 });
        for (field, value) in [("name", name), ("type", "string")] {
            reply.bulk(field.as_bytes());
            reply.bulk(value.as_bytes());
        }
        if is_optional {
            reply.bulk(b"flags");
            reply.set(1);
            reply.simple("optional");
        }
    }
}

/// `CONFIG GET parameter [parameter ...]`: only the parameters that redis-benchmark reads.
pub(super) fn config(command: &RespCommand<'_>, reply: &mut ReplyWriter<'_>) {
    const PARAMETERS: [(&str, &str); 4] = [
        ("appendonly", "no"),
        ("databases", "1"),
        ("maxmemory", "0"),
        ("save", ""),
    ];
    if !command.argument(1).eq_ignore_ascii_case(b"get") || command.len() < 3 {
        return unknown("CONFIG", command, reply);
    }
    let is_requested = |(name, _): &&(&str, &str)| {
        let mut arguments = command.arguments_from(2);
        arguments.any(|argument| argument == b"*" || argument.eq_ignore_ascii_case(name.as_bytes()))
    };
    reply.map(PARAMETERS.iter().filter(is_requested).count());
    for (name, value) in PARAMETERS.iter().filter(is_requested) {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
}

/// `INFO [section ...]`
pub(super) fn info<C: Clock>(
    server: &RespServer<C>,
    command: &RespCommand<'_>,
    reply: &mut ReplyWriter<'_>,
) {
    let wants = |section: &str| {
        let mut arguments = command.arguments_from(1);
        let everything = [section, "all", "default", "everything"];
        command.len() == 1
            || arguments.any(|argument| {
                everything
                    .iter()
                    .any(|name| argument.eq_ignore_ascii_case(name.as_bytes()))
            })
    };
    let mut text = String::new();
    let mut section = |name: &str, lines: &[(&str, &dyn std::fmt::Display)]| {
        if !wants(name) {
            return;
        }
        let gap = if text.is_empty() { "" } else { "\r\n" };
        // Writing into memory cannot fail.
        let _cannot_fail = write!(text, "{gap}# {name}\r\n").is_ok();
        for (name, value) in lines {
            let _cannot_fail = write!(text, "{name}:{value}\r\n").is_ok();
        }
    };
    let usage = server.throttle.store().usage();
    let counters = server.counters();
    section(
        "Server",
        &[
            ("redis_version", &REDIS_VERSION),
            ("tollgate_version", &env!("CARGO_PKG_VERSION")),
            ("redis_mode", &"standalone"),
            ("process_id", &std::process::id()),
        ],
    );
    section(
        "Clients",
        &[(
            "connected_clients",
            &server.connections.load(Ordering::Relaxed),
        )],
    );
    section(
        "Memory",
        &[
            ("table_bytes", &usage.table_bytes),
            ("held_bytes", &server.buffers().used()),
        ],
    );
    section(
        "Stats",
        &[
            (
                "total_commands_processed",
                &server.commands.load(Ordering::Relaxed),
            ),
            ("rejected_connections", &counters.refused_connections()),
            ("accept_errors", &counters.accept_errors()),
            ("panics", &counters.panics()),
            ("forgiven_keys", &usage.evictions),
            ("overflowed_decisions", &usage.overflow_decisions),
        ],
    );
    section("Replication", &[("role", &"master")]);
    reply.verbatim(&text);
}

fn unknown(family: &str, command: &RespCommand<'_>, reply: &mut ReplyWriter<'_>) {
    let subcommand = EchoedInput(command.argument(1));
    reply.error(format_args!(
        "ERR unknown subcommand or wrong number of arguments for '{subcommand}'. This server supports only some {family} subcommands."
    ));
}

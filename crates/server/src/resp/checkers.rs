//! The [`Checker`]s: a [`RateLimitService`], and an [`Engine`] alone. Attributes have the names that policies use.
//!
//! Must not know: the protocol.

use std::borrow::Cow;
use std::net::IpAddr;

use tollgate_core::Nanos;
use tollgate_engine::{CheckMode, CheckOptions, CheckScope, Engine, Response, StateStore, Verdict};
use tollgate_policy::attributes::{Attribute, Attributes};
use tollgate_service::{RateLimitService, TakenTicket, Transport};
use tollgate_store::Clock;

use super::check::{
    CheckCommand, CheckFuture, CheckReply, Checker, OwnedCheckCommand, TicketAction, TicketOutcome,
};

/// Decides without metrics, for programs that have an engine and no service.
impl<S: StateStore> Checker for Engine<S> {
    fn check<'a>(
        &'a self,
        command: &CheckCommand<'_>,
        render: &mut dyn FnMut(&CheckReply<'_>),
    ) -> Option<CheckFuture<'a, CheckReply<'static>>> {
        if command.is_acquire {
            let reason = "this server issues no tickets; use TG.CHECK";
            render(&CheckReply::Failed(reason));
            return None;
        }
        match CommandAttributes::read(command) {
            Err(wrong) => render(&wrong),
            Ok(request) => {
                let verdict = self.check(&request, options(command));
                render(&check_reply(&verdict, None));
            }
        }
        None
    }
}

/// Decides, counts, and logs denials.
impl<C: Clock> Checker for RateLimitService<C> {
    fn check<'a>(
        &'a self,
        command: &CheckCommand<'_>,
        render: &mut dyn FnMut(&CheckReply<'_>),
    ) -> Option<CheckFuture<'a, CheckReply<'static>>> {
        let request = match CommandAttributes::read(command) {
            Ok(request) => request,
            Err(wrong) => {
                render(&wrong);
                return None;
            }
        };
        let options = options(command);
        let decided = self.check_local(Transport::Resp, &request, options);
        let Some(mut verdict) = decided else {
            return Some(check_with_fleet(self, command.to_owned(), request.ip));
        };
        let ticket = issue_ticket(self, command, &mut verdict);
        render(&check_reply(&verdict, ticket));
        None
    }

    fn update_ticket(&self, report: TicketAction, id: u128) -> CheckFuture<'_, TicketOutcome> {
        Box::pin(run_ticket_action(self, report, id))
    }
}

/// The options of a check.
const fn options(command: &CheckCommand<'_>) -> CheckOptions {
    CheckOptions {
        cost: command.cost,
        mode: match command.is_peek {
            true => CheckMode::Peek,
            false => CheckMode::Charge,
        },
        max_wait: command.max_wait,
        scope: CheckScope::AllLimits,
    }
}

fn check_reply(verdict: &Verdict, ticket: Option<u128>) -> CheckReply<'_> {
    let binding = verdict.binding();
    let rule = binding.and_then(|state| verdict.rule(state));
    let named = verdict.rule_name().or(rule.map(|rule| &*rule.name));
    let (remaining, reset_after) = binding.map_or((0, Nanos::ZERO), |state| {
        (state.status.remaining, state.status.reset_after)
    });
    CheckReply::Verdict {
        outcome: verdict.outcome(),
        limit: named.map(Cow::Borrowed),
        remaining,
        reset_after,
        ticket,
    }
}

/// Issues a ticket, if the command is `TG.ACQUIRE`.
fn issue_ticket<C: Clock>(
    service: &RateLimitService<C>,
    command: &CheckCommand<'_>,
    verdict: &mut Verdict,
) -> Option<u128> {
    match command.is_acquire {
        true => service.issue_ticket(verdict),
        false => None,
    }
}

/// Decides with the fleet. The future owns the bytes of the command, because the connection reuses its buffer.
fn check_with_fleet<C: Clock>(
    service: &RateLimitService<C>,
    command: OwnedCheckCommand,
    ip: Option<IpAddr>,
) -> CheckFuture<'_, CheckReply<'static>> {
    Box::pin(async move {
        let command = command.as_command();
        let request = CommandAttributes {
            command: &command,
            ip,
        };
        let options = options(&command);
        let mut verdict = service.check(Transport::Resp, &request, options).await;
        let ticket = issue_ticket(service, &command, &mut verdict);
        check_reply(&verdict, ticket).into_owned()
    })
}

/// Releases or renews a ticket.
async fn run_ticket_action<C: Clock>(
    service: &RateLimitService<C>,
    report: TicketAction,
    id: u128,
) -> TicketOutcome {
    match report {
        TicketAction::Renew => match service.renew_ticket(id).await {
            Err(_failed) => TicketOutcome::StoreFailed,
            Ok(None) => TicketOutcome::UnknownTicket,
            Ok(Some(true)) => TicketOutcome::Done,
            Ok(Some(false)) => TicketOutcome::NothingToDo,
        },
        TicketAction::Release => match service.take_ticket(id).await {
            TakenTicket::Open(ticket) => {
                let settled = service.respond(ticket, &UnknownResponse).await;
                settled.map_or(TicketOutcome::StoreFailed, |()| TicketOutcome::Done)
            }
            TakenTicket::AlreadySettled => TicketOutcome::NothingToDo,
            TakenTicket::Unknown => TicketOutcome::UnknownTicket,
        },
    }
}

/// The response of a released request, about which nothing is known. It belongs to no status class.
struct UnknownResponse;

impl Response for UnknownResponse {
    fn status(&self) -> u16 {
        0
    }

    fn header(&self, _: &str) -> Option<&[u8]> {
        None
    }
}

/// The attributes of a command, validated: known names, each at most once.
struct CommandAttributes<'a> {
    command: &'a CheckCommand<'a>,
    ip: Option<IpAddr>,
}

impl<'a> CommandAttributes<'a> {
    fn read(command: &'a CheckCommand<'a>) -> Result<Self, CheckReply<'a>> {
        let mut ip = None;
        for (position, (name, value)) in command.attributes().enumerate() {
            let wrong = |reason| {
                let name = Cow::Borrowed(name);
                Err(CheckReply::BadAttribute { name, reason })
            };
            if !is_attribute_name(name) {
                return wrong(
                    "there is no such attribute; there are ip, method, host, route, path, domain, header.NAME, query.NAME, \
                     cookie.NAME, claim.NAME, descriptor.NAME, descriptors.NAME",
                );
            }
            let mut earlier = command.attributes().take(position);
            if earlier.any(|(other, _)| is_same_name(other, name)) {
                return wrong("it is given twice");
            }
            if name == b"ip" {
                let text = std::str::from_utf8(value).ok();
                ip = text.and_then(|text| text.parse().ok());
                if ip.is_none() {
                    return wrong("it is not an IP address");
                }
            }
            // As in the HTTP API: an absolute URL would match no limit by path.
            if name == b"path" && value.first() != Some(&b'/') {
                return wrong("it must begin with a slash");
            }
        }
        Ok(Self { command, ip })
    }
}

impl Attributes for CommandAttributes<'_> {
    fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        let mut sent = self.command.attributes();
        let (_, value) = sent.find(|(name, _)| matches_attribute(name, attribute))?;
        match attribute {
            Attribute::Method => Some(uppercase_method(value)),
            _ => Some(value),
        }
    }
}

/// A method as policies write it, because servers take `post` for `POST`.
fn uppercase_method(sent: &[u8]) -> &[u8] {
    const METHODS: [&[u8]; 9] = [
        b"GET", b"POST", b"PUT", b"PATCH", b"DELETE", b"HEAD", b"OPTIONS", b"TRACE", b"CONNECT",
    ];
    let known = METHODS
        .iter()
        .find(|known| known.eq_ignore_ascii_case(sent));
    known.copied().unwrap_or(sent)
}

/// The families of attributes, with the dot before the name within the family. The most frequent comes first.
const HEADER: &[u8] = b"header.";
const QUERY: &[u8] = b"query.";
const COOKIE: &[u8] = b"cookie.";
const CLAIM: &[u8] = b"claim.";
const DESCRIPTOR: &[u8] = b"descriptor.";
const ANY_DESCRIPTOR: &[u8] = b"descriptors.";
const FAMILIES: [&[u8]; 6] = [HEADER, DESCRIPTOR, QUERY, COOKIE, CLAIM, ANY_DESCRIPTOR];

fn is_attribute_name(name: &[u8]) -> bool {
    let is_in = |family: &&[u8]| name.len() > family.len() && name.starts_with(family);
    FAMILIES.iter().any(is_in)
        || matches!(
            name,
            b"ip" | b"method" | b"host" | b"route" | b"path" | b"domain"
        )
}

/// Header names are case insensitive; all others are case sensitive.
fn is_same_name(one: &[u8], other: &[u8]) -> bool {
    match (one.strip_prefix(HEADER), other.strip_prefix(HEADER)) {
        (Some(one), Some(other)) => is_same_header(one, other),
        _ => one == other,
    }
}

/// Most names differ in length, or are written alike. Folding case looks at each byte.
#[inline]
fn is_same_header(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && (one == other || one.eq_ignore_ascii_case(other))
}

/// Whether policies use this name for the attribute.
#[inline]
fn matches_attribute(name: &[u8], attribute: &Attribute) -> bool {
    let is = |family: &[u8], called: &str| name.strip_prefix(family) == Some(called.as_bytes());
    match attribute {
        Attribute::Header(called) => name
            .strip_prefix(HEADER)
            .is_some_and(|rest| is_same_header(rest, called.as_bytes())),
        Attribute::Ip => name == b"ip",
        Attribute::Method => name == b"method",
        Attribute::Host => name == b"host",
        Attribute::Route => name == b"route",
        Attribute::Path => name == b"path",
        Attribute::Domain => name == b"domain",
        Attribute::Query(called) => is(QUERY, called),
        Attribute::Cookie(called) => is(COOKIE, called),
        Attribute::Claim(called) => is(CLAIM, called),
        Attribute::Descriptor(called) => is(DESCRIPTOR, called),
        Attribute::AnyDescriptor(called) => is(ANY_DESCRIPTOR, called),
        Attribute::Extension(called) => is(b"extension.", called),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_that_policies_know_is_known_here_and_no_other() {
        let names = [
            "ip",
            "method",
            "host",
            "route",
            "path",
            "domain",
            "header.X-Key",
            "header.",
            "header",
            "query.a.b",
            "cookie.c",
            "claim.sub",
            "descriptor.d",
            "descriptors.d",
            "descriptors.",
            "weather",
            "ip.x",
            "",
            ".",
            "Header.x",
        ];
        for name in names {
            let attribute = Attribute::parse(name);
            assert_eq!(
                is_attribute_name(name.as_bytes()),
                attribute.is_some(),
                "{name}"
            );
            for other in names {
                let is_it = attribute
                    .as_ref()
                    .is_some_and(|it| matches_attribute(other.as_bytes(), it));
                assert_eq!(
                    is_it,
                    attribute.is_some() && is_same_name(name.as_bytes(), other.as_bytes()),
                    "{name} {other}"
                );
            }
        }
    }
}

//! `TG.RELEASE` and `TG.RENEW`: what became of a request that `TG.ACQUIRE` admitted.
//!
//! Must not know: what tickets settle, who keeps them.

use super::check::{Checker, Report, Reported};
use super::commands::wrong_arity;
use super::parse::Command;
use super::write::{Echo, Reply};

/// Reads the ticket, reports and answers: 1 if it was carried out, 0 if nothing was left to do.
pub(super) fn run(
    checker: Option<&dyn Checker>,
    report: Report,
    command: &Command<'_>,
    reply: &mut Reply<'_>,
) {
    if let Some(ticket) = understood(report, command, reply) {
        let reported = checker.map_or(Reported::Unknown, |checker| checker.report(report, ticket));
        say(reported, command, reply);
    }
}

/// The same where a store has to be waited for.
pub(super) async fn run_together(
    checker: Option<&dyn Checker>,
    report: Report,
    command: &Command<'_>,
    reply: &mut Reply<'_>,
) {
    if let Some(ticket) = understood(report, command, reply) {
        let reported = match checker {
            Some(checker) => checker.report_together(report, ticket).await,
            None => Reported::Unknown,
        };
        say(reported, command, reply);
    }
}

/// The ticket; or the answer is that it is none.
fn understood(report: Report, command: &Command<'_>, reply: &mut Reply<'_>) -> Option<u128> {
    let name = match report {
        Report::Release => "tg.release",
        Report::Renew => "tg.renew",
    };
    if command.len() != 2 {
        wrong_arity(name, reply);
        return None;
    }
    let word = command.word(1);
    let ticket = id(word);
    if ticket.is_none() {
        reply.error(format_args!(
            "ERR ticket: '{}' is not 32 hexadecimal digits",
            Echo(word)
        ));
    }
    ticket
}

fn say(reported: Reported, command: &Command<'_>, reply: &mut Reply<'_>) {
    match reported {
        Reported::Done => reply.integer(1),
        Reported::Nothing => reply.integer(0),
        Reported::Unknown => reply.error(format_args!(
            "ERR ticket: '{}' is not open: it has expired, or was never given",
            Echo(command.word(1))
        )),
        Reported::Failed => reply.error(format_args!(
            "ERR the store did not carry out all of it; places return when their leases end"
        )),
    }
}

fn id(word: &[u8]) -> Option<u128> {
    let is_one = word.len() == 32 && word.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(word).ok().filter(|_| is_one)?;
    u128::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_thirty_two_digits_and_nothing_else() {
        assert_eq!(id(b"000000000000000000000000000000Ff"), Some(255));
        assert_eq!(id(&[b'f'; 32]), Some(u128::MAX));
        for wrong in [&b""[..], &[b'0'; 31], &[b'0'; 33], &[b'g'; 32], &[0xff; 32]] {
            assert_eq!(id(wrong), None, "{wrong:?}");
        }
        assert_eq!(id(b"+0000000000000000000000000000001"), None);
    }
}

//! `TG.RELEASE` and `TG.RENEW`: end or continue a request that `TG.ACQUIRE` admitted.
//!
//! Must not know: what tickets settle, where they are stored.

use super::batch_counts::CommandOutcome;
use super::check::{Checker, TicketAction, TicketOutcome};
use super::commands::wrong_arity;
use super::parse::RespCommand;
use super::pipeline::{Pipeline, RenderedReply};
use super::reply_writer::{EchoedInput, ReplyWriter};

/// Parses the ticket, updates it and replies: 1 if it was carried out, 0 if nothing was left to do.
pub(super) fn run<'s>(
    checker: Option<&'s dyn Checker>,
    report: TicketAction,
    command: &RespCommand<'_>,
    is_resp3: bool,
    pipeline: &mut Pipeline<'s>,
    out: &mut Vec<u8>,
) {
    let word = command.argument(1);
    let (ticket, checker) = match (
        parse_ticket_id(word).filter(|_| command.len() == 2),
        checker,
    ) {
        (Some(ticket), Some(checker)) => (ticket, checker),
        (ticket, _) => {
            return pipeline.reply(out, |out| {
                let reply = &mut ReplyWriter::new(out, is_resp3);
                match ticket {
                    // A server without a checker issues no tickets.
                    Some(_) => render(TicketOutcome::UnknownTicket, word, reply),
                    None => reject(report, command, reply),
                }
            });
        }
    };
    let (outcome, word) = (
        checker.update_ticket(report, ticket),
        Box::<[u8]>::from(word),
    );
    pipeline.push(async move {
        let (outcome, mut bytes) = (outcome.await, Vec::new());
        render(outcome, &word, &mut ReplyWriter::new(&mut bytes, is_resp3));
        let counted = CommandOutcome::Uncounted;
        RenderedReply {
            bytes,
            outcome: counted,
        }
    });
}

/// Replies why the command names no ticket.
fn reject(report: TicketAction, command: &RespCommand<'_>, reply: &mut ReplyWriter<'_>) {
    let name = match report {
        TicketAction::Release => "tg.release",
        TicketAction::Renew => "tg.renew",
    };
    if command.len() != 2 {
        return wrong_arity(name, reply);
    }
    reply.error(format_args!(
        "ERR ticket: '{}' is not 32 hexadecimal digits",
        EchoedInput(command.argument(1))
    ));
}

fn render(outcome: TicketOutcome, ticket: &[u8], reply: &mut ReplyWriter<'_>) {
    match outcome {
        TicketOutcome::Done => reply.integer(1),
        TicketOutcome::NothingToDo => reply.integer(0),
        TicketOutcome::UnknownTicket => reply.error(format_args!(
            "ERR ticket: '{}' is not open: it has expired or was never issued",
            EchoedInput(ticket)
        )),
        TicketOutcome::StoreFailed => reply.error(format_args!(
            "ERR the store failed; leases that are still held end when they expire"
        )),
    }
}

fn parse_ticket_id(word: &[u8]) -> Option<u128> {
    let is_one = word.len() == 32 && word.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(word).ok().filter(|_| is_one)?;
    u128::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_id_is_thirty_two_hexadecimal_digits() {
        assert_eq!(
            parse_ticket_id(b"000000000000000000000000000000Ff"),
            Some(255)
        );
        assert_eq!(parse_ticket_id(&[b'f'; 32]), Some(u128::MAX));
        for wrong in [&b""[..], &[b'0'; 31], &[b'0'; 33], &[b'g'; 32], &[0xff; 32]] {
            assert_eq!(parse_ticket_id(wrong), None, "{wrong:?}");
        }
        assert_eq!(parse_ticket_id(b"+0000000000000000000000000000001"), None);
    }
}

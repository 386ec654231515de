//! Commands that are parsed before the first of them runs, so that the states of their keys are loaded together.
//!
//! A state that is not in the processor's caches takes longer to load than a command takes to run. One load waits for the page
//! table, however early it begins; several loads share that wait. The memory belongs to the thread, because an idle connection
//! must hold none. Must not know: what commands mean.

use std::cell::Cell;
use std::fmt;

use super::parse::{ArgumentSpans, ParseOutcome, RespCommand, parse, parse_ahead};

/// The most commands that are parsed before the first of them runs. A core loads about a dozen cache lines at a time.
const MAX_PARSED: usize = 16;

/// A few commands at the start of the input, in their order.
pub(super) struct ParsedCommands {
    commands: [ParsedCommand; MAX_PARSED],
    /// How many are parsed, and how many of these were taken.
    parsed: usize,
    taken: usize,
}

struct ParsedCommand {
    outcome: ParseOutcome,
    spans: ArgumentSpans,
}

impl ParsedCommands {
    fn new() -> Self {
        Self {
            commands: std::array::from_fn(|_| ParsedCommand {
                outcome: ParseOutcome::Incomplete,
                spans: ArgumentSpans::new(),
            }),
            parsed: 0,
            taken: 0,
        }
    }

    /// Takes the command at the start of `input`, where the last one ended. If none is left, it parses the next commands first.
    ///
    /// `prefetch` gets each command when it is parsed, and says whether to parse the next one now. An inline command is only
    /// parsed when it is taken, because parsing rewrites it.
    #[inline]
    pub(super) fn take(
        &mut self,
        input: &mut [u8],
        prefetch: impl FnMut(&RespCommand<'_>) -> bool,
    ) -> (ParseOutcome, &ArgumentSpans) {
        if self.taken == self.parsed {
            self.parse(input, prefetch);
        }
        let index = self.taken.min(MAX_PARSED - 1);
        self.taken = self.taken.saturating_add(1);
        let [first, ..] = &self.commands;
        let taken = self.commands.get(index).unwrap_or(first);
        (taken.outcome, &taken.spans)
    }

    /// Parses commands until there is no room, no whole command, or `prefetch` says so.
    fn parse(&mut self, input: &mut [u8], mut prefetch: impl FnMut(&RespCommand<'_>) -> bool) {
        (self.parsed, self.taken) = (0, 0);
        let mut at = 0_usize;
        for ParsedCommand { outcome, spans } in &mut self.commands {
            let rest = input.get_mut(at..).unwrap_or_default();
            *outcome = match self.parsed {
                0 => parse(rest, spans),
                _ => match parse_ahead(rest, spans) {
                    Some(outcome) => outcome,
                    None => return,
                },
            };
            self.parsed = self.parsed.saturating_add(1);
            match outcome {
                ParseOutcome::Command(len) if prefetch(&RespCommand::new(rest, spans)) => {
                    at = at.saturating_add(*len);
                }
                _ => return,
            }
        }
    }
}

impl fmt::Debug for ParsedCommands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParsedCommands")
            .field("parsed", &self.parsed)
            .field("taken", &self.taken)
            .finish_non_exhaustive()
    }
}

/// Runs `work` with this thread's memory for parsed commands, of which there are none at the start.
#[inline]
pub(super) fn with_parsed_commands<T>(work: impl FnOnce(&mut ParsedCommands) -> T) -> T {
    thread_local! {
        static OWN: Cell<Option<Box<ParsedCommands>>> = const { Cell::new(None) };
    }
    let mut parsed = OWN
        .take()
        .unwrap_or_else(|| Box::new(ParsedCommands::new()));
    (parsed.parsed, parsed.taken) = (0, 0);
    let done = work(&mut parsed);
    OWN.set(Some(parsed));
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes all commands, and returns how many were parsed before each was taken, with its last argument.
    fn take_all(
        input: &[u8],
        parses_on: impl Fn(&RespCommand<'_>) -> bool,
    ) -> Vec<(usize, String)> {
        let (mut input, mut at, mut all) = (input.to_vec(), 0, Vec::new());
        let mut seen = 0;
        with_parsed_commands(|commands| {
            while at < input.len() {
                let rest = &mut input[at..];
                let (outcome, spans) = commands.take(rest, |command| {
                    seen += 1;
                    parses_on(command)
                });
                let ParseOutcome::Command(len) = outcome else {
                    all.push((seen, format!("{outcome:?}")));
                    break;
                };
                let command = RespCommand::new(rest, spans);
                let last = command.argument(command.len() - 1);
                all.push((seen, String::from_utf8_lossy(last).into_owned()));
                at += len;
            }
        });
        all
    }

    fn numbered(count: usize) -> Vec<u8> {
        let one = |number| format!("*2\r\n$4\r\nECHO\r\n$2\r\n{number:02}\r\n");
        (0..count).map(one).collect::<String>().into_bytes()
    }

    #[test]
    fn all_commands_are_taken_in_order_and_parsed_ahead_up_to_the_bound() {
        let taken = take_all(&numbered(40), |_| true);
        let names: Vec<String> = (0..40).map(|number| format!("{number:02}")).collect();
        assert!(taken.iter().map(|(_, name)| name).eq(&names), "{taken:?}");
        let seen = |index: usize| taken[index].0;
        assert_eq!([seen(0), seen(15), seen(16), seen(39)], [16, 16, 32, 40]);
    }

    #[test]
    fn nothing_is_parsed_after_a_command_that_is_not_prefetched() {
        let taken = take_all(&numbered(3), |_| false);
        assert!(taken.iter().map(|(seen, _)| *seen).eq(1..=3), "{taken:?}");
    }

    #[test]
    fn inline_commands_are_parsed_only_when_they_are_taken() {
        let mut input = numbered(2);
        input.extend_from_slice(b"ECHO \"a b\"\r\n");
        input.extend_from_slice(&numbered(1));
        let taken = take_all(&input, |_| true);
        let expected = [(2, "00"), (2, "01"), (4, "a b"), (4, "00")];
        let expected = expected.map(|(seen, name)| (seen, name.to_owned()));
        assert_eq!(taken, expected);
    }

    #[test]
    fn an_incomplete_command_is_told_after_those_before_it() {
        let mut input = numbered(2);
        input.truncate(input.len() - 1);
        let taken = take_all(&input, |_| true);
        assert_eq!(taken.last(), Some(&(1, "Incomplete".to_owned())));
        assert_eq!(taken.len(), 2);
    }
}

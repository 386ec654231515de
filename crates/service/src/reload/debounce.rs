//! When to look at a file: soon after something happened, once it has become quiet, and now and then in any case.
//!
//! Must not know: where events come from, what looking does.

use std::time::Duration;

/// Where it is heard that something has happened.
pub trait ChangeEvents {
    /// Waits for the next event, at most so long.
    fn next(&mut self, patience: Duration) -> WatchEvent;
}

/// What was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// Something has changed.
    Changed,
    /// Nothing has, in all that time.
    TimedOut,
    /// Nothing ever will: it is over.
    Closed,
}

/// How long is waited for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchTiming {
    /// After something has happened, the file is looked at when nothing more has happened for so long: writing a file is many
    /// events.
    pub settle: Duration,
    /// Even where nothing is heard the file is looked at this often: not every file system tells.
    pub poll: Duration,
}

impl Default for WatchTiming {
    /// 50 ms and five seconds.
    fn default() -> Self {
        Self {
            settle: Duration::from_millis(50),
            poll: Duration::from_secs(5),
        }
    }
}

/// A file that is written to without end is looked at after so many events all the same.
const MAX_UNSETTLED_EVENTS: u32 = 20;

/// Calls `look` whenever there may be something to be seen, until it is over.
pub fn run_debounced(events: &mut impl ChangeEvents, timing: WatchTiming, mut look: impl FnMut()) {
    loop {
        match events.next(timing.poll) {
            WatchEvent::Closed => return,
            WatchEvent::TimedOut => {}
            WatchEvent::Changed => {
                for _ in 0..MAX_UNSETTLED_EVENTS {
                    match events.next(timing.settle) {
                        WatchEvent::Changed => {}
                        WatchEvent::TimedOut => break,
                        WatchEvent::Closed => return,
                    }
                }
            }
        }
        look();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Events as they are written down: `!` changed, `.` quiet.
    struct Script(VecDeque<char>, Vec<Duration>);

    impl ChangeEvents for Script {
        fn next(&mut self, patience: Duration) -> WatchEvent {
            self.1.push(patience);
            match self.0.pop_front() {
                Some('!') => WatchEvent::Changed,
                Some(_) => WatchEvent::TimedOut,
                None => WatchEvent::Closed,
            }
        }
    }

    fn looks(script: &str) -> (usize, Vec<Duration>) {
        let mut events = Script(script.chars().collect(), Vec::new());
        let mut looks = 0;
        run_debounced(&mut events, WatchTiming::default(), || looks += 1);
        (looks, events.1)
    }

    #[test]
    fn many_events_at_once_are_one_look_and_silence_is_one_too() {
        assert_eq!(looks("").0, 0);
        assert_eq!(looks("!!!!.").0, 1);
        assert_eq!(looks("!.!.").0, 2);
        assert_eq!(looks("...").0, 3);
    }

    #[test]
    fn what_never_becomes_quiet_is_looked_at_all_the_same() {
        assert_eq!(looks(&"!".repeat(21 * 3)).0, 3);
    }

    #[test]
    fn after_an_event_the_wait_is_short_and_otherwise_as_long_as_the_poll() {
        let WatchTiming { settle, poll } = WatchTiming::default();
        assert_eq!(looks("!.").1, [poll, settle, poll]);
    }
}

//! Debounces file events: calls back after a burst of events, at regular intervals without events, and again soon after a change
//! that has yet to settle.
//!
//! Must not know: where events come from, what the callback does.

use std::time::Duration;

use tollgate_core::Timestamp;

/// A source of file events.
pub trait ChangeEvents {
    /// Waits for the next event, at most `timeout`.
    fn next(&mut self, timeout: Duration) -> WatchEvent;

    /// The time, to see how long events go on.
    fn now(&self) -> Timestamp;
}

/// The result of waiting for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// A file may have changed.
    Changed,
    /// No event within the timeout.
    TimedOut,
    /// The source is closed; there will be no more events.
    Closed,
}

/// The intervals of a file watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchTiming {
    /// After an event, the file is read once no further event has occurred for this long: writing a file causes many events.
    pub debounce: Duration,
    /// A changed file is loaded once its content has stayed the same for this long: a file may be written in several steps.
    pub settle: Duration,
    /// Without events the file is read this often: not every file system reports changes.
    pub poll: Duration,
}

impl Default for WatchTiming {
    /// 50 ms, one second and five seconds.
    fn default() -> Self {
        Self {
            debounce: Duration::from_millis(50),
            settle: Duration::from_secs(1),
            poll: Duration::from_secs(5),
        }
    }
}

/// If events continue for this many debounce times, the file is read all the same.
const MAX_DEBOUNCES: u32 = 20;

/// Calls `look` at once and whenever a file may have changed, until the source is closed. `look` returns whether a change has yet
/// to settle; then it is called again after the settle time.
pub fn run_debounced(
    events: &mut impl ChangeEvents,
    timing: WatchTiming,
    mut look: impl FnMut() -> bool,
) {
    loop {
        let is_settling = look();
        let wait = if is_settling {
            timing.settle
        } else {
            timing.poll
        };
        match events.next(wait) {
            WatchEvent::Closed => return,
            WatchEvent::TimedOut => {}
            WatchEvent::Changed => {
                let longest = timing.debounce.saturating_mul(MAX_DEBOUNCES);
                let until = events.now().after(longest.into());
                loop {
                    match events.next(timing.debounce) {
                        WatchEvent::Changed if events.now() < until => {}
                        WatchEvent::Changed | WatchEvent::TimedOut => break,
                        WatchEvent::Closed => return,
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use tollgate_core::Nanos;

    /// A script of events: `!` changed after a millisecond, `.` timed out.
    struct Script(VecDeque<char>, Vec<Duration>, Timestamp);

    impl Script {
        fn new(script: &str) -> Self {
            Self(script.chars().collect(), Vec::new(), Timestamp::EPOCH)
        }
    }

    impl ChangeEvents for Script {
        fn next(&mut self, timeout: Duration) -> WatchEvent {
            self.1.push(timeout);
            match self.0.pop_front() {
                Some('!') => {
                    self.2 = self.2.after(Nanos::from_millis(1));
                    WatchEvent::Changed
                }
                Some(_) => {
                    self.2 = self.2.after(timeout.into());
                    WatchEvent::TimedOut
                }
                None => WatchEvent::Closed,
            }
        }

        fn now(&self) -> Timestamp {
            self.2
        }
    }

    fn looks(script: &str) -> (usize, Vec<Duration>) {
        let mut events = Script::new(script);
        let mut looks = 0;
        run_debounced(&mut events, WatchTiming::default(), || {
            looks += 1;
            false
        });
        (looks - 1, events.1)
    }

    #[test]
    fn a_burst_of_events_is_one_look_and_so_is_a_timeout() {
        assert_eq!(looks("").0, 0);
        assert_eq!(looks("!!!!.").0, 1);
        assert_eq!(looks("!.!.").0, 2);
        assert_eq!(looks("...").0, 3);
    }

    /// A log beside the policy is written a thousand times a second. Every twenty events the files were read, each time on a new
    /// thread.
    #[test]
    fn events_that_never_end_cause_one_look_a_second() {
        // The event that starts a burst, and a second of events: twenty debounce times of 50 ms.
        assert_eq!(looks(&"!".repeat(3 * 1_001)).0, 3);
    }

    #[test]
    fn after_an_event_the_timeout_is_the_debounce_time_and_otherwise_the_poll_interval() {
        let WatchTiming { debounce, poll, .. } = WatchTiming::default();
        assert_eq!(looks("!.").1, [poll, debounce, poll]);
    }

    #[test]
    fn a_change_that_has_yet_to_settle_is_looked_at_again_after_the_settle_time() {
        let mut events = Script::new("..");
        let mut answers = [true, false, false].into_iter();
        run_debounced(&mut events, WatchTiming::default(), || {
            answers.next().unwrap()
        });
        let WatchTiming { settle, poll, .. } = WatchTiming::default();
        assert_eq!(events.1, [settle, poll, poll]);
    }
}

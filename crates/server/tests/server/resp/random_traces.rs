//! Random traces of all three commands compared with the arithmetic of the originals, on a clock that the test moves.

use tollgate_core::Nanos;
use tollgate_testkit::fuzzing::pseudo_random_bytes;

use super::{InMemoryClient, NOW, server};

const SECOND: i128 = 1_000_000_000;

/// The theoretical arrival time of a key, and redis-cell's arithmetic in unbounded nanoseconds.
#[derive(Default)]
struct Model {
    tat: i128,
}

struct Step {
    limited: bool,
    remaining: i128,
    retry: Option<i128>,
    reset: i128,
}

impl Model {
    fn step(&mut self, now: i128, burst: i128, count: i128, period: i128, quantity: i128) -> Step {
        // Rounded up where redis-cell rounds down, so that the effective rate is never above the requested one.
        let interval = (period + count - 1) / count;
        let tolerance = interval * burst;
        let tat = self.tat.max(now);
        let new = tat + interval * quantity;
        let short = new - tolerance - now;
        let limited = short > 0;
        if !limited {
            self.tat = new;
        }
        let reset = self.tat.max(now) - now;
        Step {
            limited,
            remaining: ((tolerance - reset) / interval).max(0),
            retry: (limited && quantity <= burst).then_some(short),
            reset,
        }
    }
}

fn cell_seconds(nanos: i128) -> i64 {
    let seconds = nanos / SECOND + i128::from(nanos % SECOND >= 1_000_000);
    i64::try_from(seconds).unwrap()
}

fn seconds_up(nanos: i128) -> i64 {
    i64::try_from((nanos + SECOND - 1) / SECOND).unwrap()
}

fn expected(command: &str, limit: i128, step: &Step) -> [i64; 5] {
    let [limit, remaining] = [limit, step.remaining].map(|number| i64::try_from(number).unwrap());
    let limited = i64::from(step.limited);
    match command {
        "CL.THROTTLE" => {
            let retry = step.retry.map_or(-1, cell_seconds);
            [limited, limit, remaining, retry, cell_seconds(step.reset)]
        }
        "GCRA" => {
            let retry = step.retry.map_or(-1, seconds_up);
            [limited, limit, remaining, retry, seconds_up(step.reset)]
        }
        _ => {
            let retry = step.retry.map_or(-limited, seconds_up);
            [1 - limited, limit, remaining, seconds_up(step.reset), retry]
        }
    }
}

/// Bursts and rates, some of which do not divide evenly. Keys are used with all of them in turn, so quotas share states in both
/// directions.
const QUOTAS: [(i128, i128, i128); 8] = [
    (1, 1, 1),
    (16, 30, 60),
    (5, 3, 1),
    (2, 7, 10),
    (100, 1_000, 1),
    (3, 1_000_000_007, 2),
    (1_000, 1, 86_400),
    (1, 1, 3_600),
];

/// Runs a trace of one command. Returns how many calls were limited, and of how many.
fn trace(command: &str, seed: u64) -> (u32, u32) {
    let (server, clock) = server();
    let mut line = InMemoryClient::new(&server);
    let mut models: [Model; 4] = Default::default();
    let mut now = i128::from(NOW.as_nanos());
    let (mut limited, mut calls) = (0, 0);
    for step in pseudo_random_bytes(seed, 40_000).chunks_exact(4) {
        let [time, key, quota, quantity] = [step[0], step[1], step[2], step[3]];
        // Mostly short steps, now and then an hour or a day.
        let passed = match time {
            0..100 => 0,
            100..250 => u64::from(time) * 7_654_321,
            250..255 => 3_600_000_000_123,
            255 => 90_000_000_000_000,
        };
        clock.advance(Nanos::from_nanos(passed));
        now += i128::from(passed);
        // A key mostly keeps its quota.
        let key = usize::from(key % 4);
        let quota = if quota < 200 {
            key * 2
        } else {
            usize::from(quota % 8)
        };
        let (burst, count, period) = QUOTAS[quota];
        let quantity = match quantity {
            0..150 => 1,
            150..200 if command != "GCRA" => 0,
            _ => i128::from(quantity % 8) + 1,
        };
        let given = if command == "THROTTLE" {
            burst
        } else {
            burst - 1
        };
        let tokens = if command == "GCRA" { " TOKENS" } else { "" };
        let words = format!("{command} key{key} {given} {count} {period}{tokens} {quantity}");
        let step = models[key].step(now, burst, count, period * SECOND, quantity);
        assert_eq!(
            line.numbers(&words),
            expected(command, burst, &step),
            "{words} at {now}"
        );
        limited += u32::from(step.limited);
        calls += 1;
    }
    (limited, calls)
}

#[test]
fn every_reply_is_what_the_originals_would_compute() {
    for command in ["CL.THROTTLE", "THROTTLE", "GCRA"] {
        for seed in 1..=3 {
            let (limited, calls) = trace(command, seed);
            let most = calls * 19 / 20;
            assert!(
                limited > calls / 10 && limited < most,
                "{command}: {limited} of {calls} limited"
            );
        }
    }
}

/// A model that forgives debt must disagree.
#[test]
fn control_a_model_that_cuts_debts_to_the_capacity_disagrees() {
    let (server, _clock) = server();
    let mut line = InMemoryClient::new(&server);
    let mut model = Model::default();
    let now = i128::from(NOW.as_nanos());
    line.numbers("CL.THROTTLE k 999 1 1 1000");
    model.step(now, 1_000, 1, SECOND, 1_000);
    model.tat = model.tat.min(now + SECOND);
    let wrong = model.step(now, 1, 1, SECOND, 1);
    assert_ne!(
        line.numbers("CL.THROTTLE k 0 1 1"),
        expected("CL.THROTTLE", 1, &wrong)
    );
}

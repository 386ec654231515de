//! The same trace through core and through the scripts: equal outcomes, remaining units, times, receipts and notes at
//! every step.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use redis::Connection;
use tollgate_core::limit::{Limit, Quota};
use tollgate_core::{Nanos, Outcome, QuotaStatus, Receipt, Timestamp, Window};
use tollgate_redis::ReservationRetention;
use tollgate_redis::wire::{ScriptCall, ScriptKind, decode};
use tollgate_store::{IdentifiedLimit, LimitId, Op, QuotaCheck, ReplyNote, StoreKey, StoreReply};
use tollgate_testkit::redis::{RedisServer, ServerProgram};

use crate::SECRET;
use crate::model::Model;
use crate::trace::{self, ClockStep, Family, TestRng};

const STEPS_PER_TRACE: usize = 250;
const STEPS: usize = 100_000;

pub(crate) const BLANK: StoreReply = StoreReply {
    outcome: Outcome::Never,
    status: QuotaStatus {
        limit: 0,
        remaining: 0,
        reset_after: Nanos::ZERO,
    },
    receipt: Receipt {
        cost: 0,
        at: Timestamp::EPOCH,
        mark: 0,
    },
    note: ReplyNote::Plain,
};

/// How often each required event occurred in the traces.
type Coverage = BTreeMap<&'static str, u64>;

/// One step of a trace, and core's reply to it.
pub(crate) struct ExpectedStep {
    pub(crate) limit: IdentifiedLimit,
    pub(crate) key: [u8; 8],
    pub(crate) op: Op,
    pub(crate) now: Timestamp,
    pub(crate) expected: StoreReply,
}

/// Loads the scripts, possibly changed, and returns their digests.
pub(crate) fn load(connection: &mut Connection, change: impl Fn(&str) -> String) -> [String; 8] {
    ScriptKind::DECIDING.map(|which| {
        redis::cmd("SCRIPT")
            .arg("LOAD")
            .arg(change(which.script().text))
            .query(connection)
            .unwrap()
    })
}

pub(crate) fn first_limit(limit: Limit) -> IdentifiedLimit {
    IdentifiedLimit {
        id: LimitId(NonZeroU16::MIN),
        limit,
    }
}

/// Whether the interval or the window does not divide a day.
fn does_not_divide(limit: &Limit) -> bool {
    let span = match limit.quota() {
        Quota::TokenBucket(bucket) => bucket.interval(),
        Quota::LeakyBucket(bucket) => bucket.interval(),
        Quota::CustomBucket(bucket) => bucket.as_token_bucket().interval(),
        Quota::SlidingCounter(counter) => counter.window(),
        Quota::SlidingLog(log) => log.window(),
        Quota::FixedWindow(window) => match window.window() {
            Window::Epoch(length) | Window::FirstHit(length) => length,
            _ => return false,
        },
        _ => return false,
    };
    !Nanos::DAY.as_nanos().is_multiple_of(span.as_nanos())
}

/// Plans a trace on one key by asking core, and counts its events.
fn plan(
    rng: &mut TestRng,
    family: Family,
    key: u64,
    coverage: &mut Coverage,
) -> (ReservationRetention, Vec<ExpectedStep>) {
    let mut count = |what, is_so: bool| *coverage.entry(what).or_default() += u64::from(is_so);
    let retention = ReservationRetention {
        retention: Nanos::from_nanos(rng.below(5_000_000_000)),
        max_records: u32::try_from(rng.one_of(&[1, 3, 100])).unwrap(),
    };
    let (mut limit, mut span) = trace::limit(rng, family);
    let mut now = trace::usual(rng);
    let mut model = Model::default();
    let mut receipts = Vec::new();
    let mut planned = Vec::with_capacity(STEPS_PER_TRACE);
    while planned.len() < STEPS_PER_TRACE {
        if rng.chance(2) {
            (limit, span) = trace::limit(rng, family);
            count("quota changed", true);
        }
        let (next, step) = trace::instant(rng, now, span);
        now = next;
        let before = model.status(&limit, now);
        count("window length changed", model.is_carried_over(&limit, now));
        let op = trace::operation(rng, family, before.limit, span, &receipts);
        let Some(expected) = model.step(&limit, now, op, retention) else {
            continue;
        };
        let receipt = expected.receipt;
        if receipt.cost > 0 {
            receipts.push(receipt);
            if receipts.len() > 8 {
                receipts.remove(0);
            }
        }
        count("clock back", step == ClockStep::Back);
        count("clock leap", step == ClockStep::Leap);
        count("clock anywhere", step == ClockStep::Anywhere);
        count("denied", matches!(expected.outcome, Outcome::Deny { .. }));
        count("never", expected.outcome == Outcome::Never);
        count("waits", matches!(expected.outcome, Outcome::Wait(_)));
        let gained = expected.status.remaining > before.remaining;
        let charged_more = matches!(op, Op::Settle { receipt, actual } if actual > receipt.cost);
        count("settled upwards", charged_more && receipt.cost > 0);
        count("rate does not divide", does_not_divide(&limit));
        let is_refund = matches!(op, Op::Settle { .. } | Op::Credit(_));
        count("refunded", is_refund && gained);
        let overdrawn = matches!(op, Op::ChargeAlways(_)) && receipt.cost > before.remaining;
        count("overdraft", overdrawn);
        count(
            "beyond 2^53",
            before.limit > 1 << 53 || now.as_nanos() < 1 << 53,
        );
        let note = expected.note;
        count("already reserved", note == ReplyNote::AlreadyReserved);
        count("reservations full", note == ReplyNote::ReservationsFull);
        count("already closed", note == ReplyNote::AlreadyClosed);
        count("expired", note == ReplyNote::ReservationExpired);
        let settled = matches!(op, Op::SettleReserved { .. }) && note == ReplyNote::Plain;
        count("reservation settled", settled);
        count("not held", note == ReplyNote::LeaseNotHeld);
        planned.push(ExpectedStep {
            limit: first_limit(limit),
            key: key.to_be_bytes(),
            op,
            now,
            expected,
        });
    }
    (retention, planned)
}

/// Runs a trace in one pipeline. The error tells where the scripts deviate.
pub(crate) fn run(
    connection: &mut Connection,
    digests: &[String; 8],
    retention: ReservationRetention,
    planned: &[ExpectedStep],
) -> Result<(), String> {
    let mut pipe = redis::pipe();
    for step in planned {
        let check = QuotaCheck {
            key: StoreKey::new(&step.key).unwrap(),
            limit: &step.limit,
            op: step.op,
        };
        let request = ScriptCall::new(SECRET, retention, &[check], Some(step.now)).unwrap();
        let digest = &digests[ScriptKind::DECIDING
            .iter()
            .position(|each| *each == request.kind)
            .unwrap()];
        pipe.cmd("EVALSHA").arg(digest).arg(request.keys.len());
        for bytes in request.keys.iter().chain(&request.args) {
            pipe.arg(bytes);
        }
    }
    let replies: Vec<Vec<i64>> = pipe.query(connection).map_err(|error| error.to_string())?;
    for (position, (step, reply)) in planned.iter().zip(&replies).enumerate() {
        let check = QuotaCheck {
            key: StoreKey::new(&step.key).unwrap(),
            limit: &step.limit,
            op: step.op,
        };
        let mut answer = [BLANK];
        let context = || {
            format!(
                "step {position} at {:?}: {:?} on {:?}\n expected {:?}\n the reply is {reply:?}\n before that {}",
                step.now,
                step.op,
                step.limit.limit,
                step.expected,
                planned[..position].iter().zip(&replies).rev().take(3).fold(
                    String::new(),
                    |all, (step, reply)| format!(
                        "{all}\n  {:?}: {:?} on {:?} -> {:?} {reply:?}",
                        step.now, step.op, step.limit.limit, step.expected
                    )
                )
            )
        };
        let decided = decode(&[check], reply, &mut answer)
            .map_err(|error| format!("{error}: {}", context()))?;
        if answer[0] != step.expected || decided.corrupt != 0 {
            return Err(format!("{}\n answered {:?}", context(), answer[0]));
        }
    }
    Ok(())
}

fn compare(kind: ServerProgram, family: Family, steps: usize, must_occur: &[&str]) {
    let server = RedisServer::start(kind);
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    let digests = load(&mut connection, str::to_owned);
    let mut coverage = Coverage::new();
    for seed in 0..(steps / STEPS_PER_TRACE) as u64 {
        let mut rng = TestRng::new(seed + 1);
        let (retention, planned) = plan(&mut rng, family, seed, &mut coverage);
        if let Err(error) = run(&mut connection, &digests, retention, &planned) {
            panic!("{kind:?} {family:?} seed {seed}: {error}");
        }
    }
    println!("{kind:?} {family:?}: {steps} steps agree; {coverage:?}");
    for what in must_occur {
        let times = coverage.get(what).copied().unwrap_or(0);
        assert!(times > 0, "{family:?}: no trace had {what}");
    }
}

const CLOCK: [&str; 6] = [
    "clock back",
    "clock leap",
    "clock anywhere",
    "quota changed",
    "denied",
    "never",
];
const CHARGES: [&str; 10] = [
    "settled upwards",
    "rate does not divide",
    "refunded",
    "overdraft",
    "beyond 2^53",
    "already reserved",
    "reservations full",
    "already closed",
    "expired",
    "reservation settled",
];

fn must_occur(family: Family) -> Vec<&'static str> {
    let further: &[&str] = match family {
        Family::Leases => &["not held"],
        Family::Leaky => &["waits"],
        Family::Counter => &["window length changed"],
        _ => &[],
    };
    let charges: &[&str] = if family == Family::Leases {
        &[]
    } else {
        &CHARGES
    };
    [&CLOCK, charges, further].concat()
}

#[test]
fn token_bucket_decides_as_core() {
    compare(
        ServerProgram::Redis,
        Family::Token,
        STEPS,
        &must_occur(Family::Token),
    );
}

#[test]
fn leaky_bucket_decides_as_core() {
    compare(
        ServerProgram::Redis,
        Family::Leaky,
        STEPS,
        &must_occur(Family::Leaky),
    );
}

#[test]
fn custom_bucket_decides_as_core() {
    compare(
        ServerProgram::Redis,
        Family::Custom,
        STEPS,
        &must_occur(Family::Custom),
    );
}

#[test]
fn fixed_window_decides_as_core() {
    compare(
        ServerProgram::Redis,
        Family::Window,
        STEPS,
        &must_occur(Family::Window),
    );
}

#[test]
fn sliding_log_decides_as_core() {
    compare(
        ServerProgram::Redis,
        Family::Log,
        STEPS,
        &must_occur(Family::Log),
    );
}

#[test]
fn sliding_counter_decides_as_core() {
    compare(
        ServerProgram::Redis,
        Family::Counter,
        STEPS,
        &must_occur(Family::Counter),
    );
}

#[test]
fn concurrency_decides_as_core() {
    compare(
        ServerProgram::Redis,
        Family::Leases,
        STEPS,
        &must_occur(Family::Leases),
    );
}

#[test]
fn every_promised_server_decides_as_core() {
    let others = ServerProgram::under_test().into_iter();
    for kind in others.filter(|kind| *kind != ServerProgram::Redis) {
        for family in Family::EACH {
            compare(kind, family, STEPS / 10, &must_occur(family));
        }
    }
}

/// How many of twenty traces notice a wrong line in the scripts.
fn traces_that_catch(family: Family, right: &str, wrong: &str) -> u64 {
    let server = RedisServer::start(ServerProgram::Redis);
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    let has_line = |kind: &ScriptKind| kind.script().text.contains(right);
    assert!(
        ScriptKind::DECIDING.iter().any(has_line),
        "no script says `{right}`"
    );
    let digests = load(&mut connection, |text| text.replace(right, wrong));
    let mut traces_that_catch = 0;
    for seed in 0..20 {
        let mut rng = TestRng::new(seed + 1);
        let (retention, planned) = plan(&mut rng, family, seed, &mut Coverage::new());
        traces_that_catch +=
            u64::from(run(&mut connection, &digests, retention, &planned).is_err());
    }
    traces_that_catch
}

/// If parsing a state as one Lua number went unnoticed, the comparison would prove nothing.
#[test]
fn a_script_that_reads_an_instant_as_one_number_is_caught() {
    // In the script for plain spending, and in the one for all other operations on buckets.
    let changes = [
        (
            "th, tl = tonumber(string.sub(raw, 1, -10)) or 0, tonumber(string.sub(raw, -9))",
            "local n = tonumber(raw); th = math.floor(n / 1e9); tl = n - th * 1e9",
        ),
        (
            "local h, l = tonumber(slice(raw, 1, -10)) or 0, tonumber(slice(raw, -9))",
            "local n = tonumber(raw); local h = math.floor(n / 1e9); local l = n - h * 1e9",
        ),
    ];
    for (right, wrong) in changes {
        assert!(
            traces_that_catch(Family::Token, right, wrong) > 0,
            "{wrong}"
        );
    }
}

/// The same for a counter that reads counts of another window length as its own, and for one that does not store the
/// conversion.
#[test]
fn a_script_that_ignores_another_windows_length_is_caught() {
    let changes = [
        ("elseif is_inherited then", "elseif false then"),
        ("is_over = is_inherited or", "is_over ="),
    ];
    for (right, wrong) in changes {
        assert!(
            traces_that_catch(Family::Counter, right, wrong) > 0,
            "{wrong}"
        );
    }
}

/// The same for custom buckets: one that rounds the clock up, one whose new keys start full, one that does not record a denied key, and
/// one that forgets what is left of a step.
#[test]
fn a_script_that_refills_early_or_forgets_new_keys_is_caught() {
    let changes = [
        (
            "now_h, now_l = start_of_span(sh, sl)",
            "now_h, now_l = add(now_h, now_l, sh, sl)",
        ),
        ("if is_new then", "if false then"),
        ("if is_new and not admits", "if false and not admits"),
        ("if rh > 0 or rl > 0 then", "if false then"),
    ];
    for (right, wrong) in changes {
        assert!(
            traces_that_catch(Family::Custom, right, wrong) > 0,
            "{wrong}"
        );
    }
}

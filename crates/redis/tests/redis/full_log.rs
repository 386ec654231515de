//! Logs at their bound.

use tollgate_core::limit::{Limit, State};
use tollgate_core::sliding_log::{Log, LogEntry};
use tollgate_core::{Nanos, SlidingLog, Timestamp};
use tollgate_redis::ReservationRetention;
use tollgate_redis::wire::ScriptCall;
use tollgate_store::{Op, QuotaCheck, StoreKey};
use tollgate_testkit::redis::{RedisServer, ServerProgram};

use crate::SECRET;
use crate::differential::{ExpectedStep, first_limit, load, run};
use crate::model::Model;
use crate::server_time::connection;

const KEY: [u8; 8] = *b"the full";

/// A log with almost the largest number of entries, as core and as the script store it.
fn almost_full(from: u64) -> (Log, Vec<u8>) {
    let entries: Vec<LogEntry> = (0..9_950)
        .map(|n| LogEntry {
            at: from + n * 900,
            blocks: 1 + n % 3,
        })
        .collect();
    let total: u64 = entries.iter().map(|entry| entry.blocks).sum();
    let mut raw = vec![b'l'];
    raw.extend_from_slice(&total.to_be_bytes()[2..]);
    for entry in &entries {
        raw.extend_from_slice(&(entry.at / 1_000_000).to_be_bytes()[3..]);
        raw.extend_from_slice(&(entry.at % 1_000_000 * 1_000).to_be_bytes()[4..]);
        raw.extend_from_slice(&entry.blocks.to_be_bytes()[4..]);
    }
    (entries.into_iter().collect(), raw)
}

/// A full log that is kept for a longer window than the charging limit's drops its oldest entry instead of growing.
#[test]
fn a_full_log_drops_entries_as_core_does() {
    let long = SlidingLog::builder(10_000, Nanos::HOUR).build().unwrap();
    let short = SlidingLog::builder(10_000, Nanos::from_millis(1))
        .build()
        .unwrap()
        .sharing_state_with(&long);
    let server = RedisServer::start(ServerProgram::Redis);
    let mut connection = connection(&server);
    let digests = load(&mut connection, str::to_owned);
    let retention = ReservationRetention::default();
    let mut now = Timestamp::from_secs(1_800_000_000);
    let (log, raw) = almost_full(now.as_nanos() / 1_000);
    now = now.after(Nanos::from_secs(9));
    let mut model = Model::of(State::Log(log));
    let mut steps = Vec::new();
    for step in 0..400_u64 {
        now = now.after(Nanos::from_micros(if step == 390 {
            3_595_000_000
        } else {
            700
        }));
        let (limit, op) = match step % 7 {
            0 => (Limit::new(long), Op::Spend(1)),
            1 => (Limit::new(long), Op::Credit(2)),
            _ => (Limit::new(short), Op::Spend(1 + step % 2)),
        };
        let expected = model.step(&limit, now, op, retention).unwrap();
        steps.push(ExpectedStep {
            limit: first_limit(limit),
            key: KEY,
            op,
            now,
            expected,
        });
    }
    let check = QuotaCheck {
        key: StoreKey::new(&KEY).unwrap(),
        limit: &steps[0].limit,
        op: steps[0].op,
    };
    let request = ScriptCall::new(SECRET, retention, &[check], Some(now)).unwrap();
    let name = request.keys.get(0).unwrap();
    let set = redis::cmd("SET")
        .arg(name)
        .arg(raw)
        .query::<()>(&mut connection);
    set.unwrap();
    let mut longest = 0;
    for trace in steps.chunks(40) {
        run(&mut connection, &digests, retention, trace).unwrap();
        let length: u64 = redis::cmd("STRLEN")
            .arg(name)
            .query(&mut connection)
            .unwrap();
        longest = longest.max((length - 7) / 13);
    }
    assert_eq!(longest, 10_000, "it was filled to the bound and not beyond");
}

//! The same lease requests through core's `LeasedBucket` and through the script: equal grants, times and status at
//! every step.

use std::collections::BTreeMap;

use redis::Connection;
use tollgate_core::limit::Limit;
use tollgate_core::quota_lease::{
    LeaseGrant, LeaseReport, LeaseRequest, LeaseSpec, LeasedBucket, MAX_QUOTA_LEASES, QuotaLeaseId,
};
use tollgate_core::{Nanos, Outcome, Timestamp};
use tollgate_redis::wire::{ScriptCall, ScriptKind, decode_lease_grant, leasable_bucket};
use tollgate_store::{IdentifiedLimit, StoreKey};
use tollgate_testkit::redis::{RedisServer, ServerProgram};

use crate::SECRET;
use crate::differential::first_limit;
use crate::server_time::connection;
use crate::trace::{self, ClockStep, Family, TestRng};

const STEPS_PER_TRACE: usize = 250;
const STEPS: usize = 60_000;

type Coverage = BTreeMap<&'static str, u64>;

/// One step of a trace, and core's grant.
struct ExpectedGrant {
    limit: IdentifiedLimit,
    key: [u8; 8],
    reports: Vec<LeaseReport>,
    spend: u64,
    lease: Option<LeaseSpec>,
    now: Timestamp,
    expected: LeaseGrant,
}

impl ExpectedGrant {
    fn request(&self) -> LeaseRequest<'_> {
        LeaseRequest {
            reports: &self.reports,
            direct_cost: self.spend,
            lease: self.lease,
        }
    }
}

/// A quota that can be leased from.
pub(super) fn limit(rng: &mut TestRng) -> (Limit, u64) {
    loop {
        let family = rng.one_of(&[Family::Token, Family::Token, Family::Leaky]);
        let (limit, span) = trace::limit(rng, family);
        if leasable_bucket(&limit).is_some() {
            return (limit, span);
        }
    }
}

fn reports(rng: &mut TestRng, most: u64, span: u64, ids: u64) -> Vec<LeaseReport> {
    let count = rng.one_of(&[0, 0, 1, 1, 2, 3]);
    let mut one = || LeaseReport {
        id: QuotaLeaseId(u128::from(rng.below(ids))),
        spent: trace::cost(rng, most),
        last_spend_age: Nanos::from_nanos(match rng.below(10) {
            0 => rng.wide(),
            1..4 => 0,
            _ => rng.below(span.saturating_mul(3).max(1)),
        }),
        is_last: rng.chance(30),
    };
    (0..count).map(|_| one()).collect()
}

pub(super) fn lease_spec(rng: &mut TestRng, most: u64, span: u64, ids: u64) -> LeaseSpec {
    LeaseSpec {
        id: QuotaLeaseId(u128::from(rng.below(ids))),
        min_units: rng.one_of(&[0, 1, 1, 2, most / 2]),
        max_units: trace::cost(rng, most),
        duration: Nanos::from_nanos(match rng.below(10) {
            0 => rng.wide(),
            _ => rng.below(span.saturating_mul(6).max(1)),
        }),
    }
}

/// Plans a trace on one key by asking core, and counts its events.
fn plan(rng: &mut TestRng, key: u64, coverage: &mut Coverage) -> Vec<ExpectedGrant> {
    let mut count = |what, is_so: bool| *coverage.entry(what).or_default() += u64::from(is_so);
    let (mut limit, mut span) = limit(rng);
    let ids = rng.one_of(&[3, 8, 40]);
    let mut now = trace::usual(rng);
    let mut leased_bucket = LeasedBucket::default();
    let mut grants = Vec::with_capacity(STEPS_PER_TRACE);
    while grants.len() < STEPS_PER_TRACE {
        if rng.chance(2) {
            (limit, span) = self::limit(rng);
            count("quota changed", true);
        }
        let (next, step) = trace::instant(rng, now, span);
        now = next;
        let bucket = *leasable_bucket(&limit).unwrap();
        let most = bucket.limit();
        let reports = reports(rng, most, span, ids);
        let spend = match rng.chance(40) {
            true => trace::cost(rng, most),
            false => 0,
        };
        let lease = rng.chance(60).then(|| lease_spec(rng, most, span, ids));
        let request = LeaseRequest {
            reports: &reports,
            direct_cost: spend,
            lease,
        };
        let before = leased_bucket.clone();
        let expected = leased_bucket.handle(&bucket, now, &request);
        let is_leased = |id: QuotaLeaseId| before.leases().iter().any(|granted| granted.id == id);
        count("clock back", step == ClockStep::Back);
        count("clock anywhere", step == ClockStep::Anywhere);
        count("leased", expected.units > 0);
        let is_repeated = lease.is_some_and(|lease| is_leased(lease.id)) && expected.units > 0;
        count("repeated", is_repeated);
        count("nothing leased", !expected.retry_after.is_zero());
        count(
            "reported",
            reports.iter().any(|report| is_leased(report.id)),
        );
        let is_expired = |expires: Timestamp| expires <= now;
        count(
            "expired",
            before
                .leases()
                .iter()
                .any(|granted| is_expired(granted.expires)),
        );
        let is_ahead = before
            .leases()
            .iter()
            .any(|granted| granted.granted_at > now);
        count("granted after now", is_ahead && before.leases().len() > 1);
        count(
            "denied",
            matches!(expected.direct_outcome, Outcome::Deny { .. }),
        );
        count("never", expected.direct_outcome == Outcome::Never);
        count("blocks", bucket.block() > 1 && expected.units > 0);
        count("several leases", leased_bucket.leases().len() > 3);
        grants.push(ExpectedGrant {
            limit: first_limit(limit),
            key: key.to_be_bytes(),
            reports,
            spend,
            lease,
            now,
            expected,
        });
    }
    grants
}

/// Runs a trace in one pipeline. The error tells where the script deviates.
fn run(connection: &mut Connection, digest: &str, grants: &[ExpectedGrant]) -> Result<(), String> {
    let mut pipe = redis::pipe();
    for step in grants {
        let key = StoreKey::new(&step.key).unwrap();
        let call =
            ScriptCall::for_lease(SECRET, &key, &step.limit, &step.request(), Some(step.now))
                .unwrap();
        assert_eq!(call.kind, ScriptKind::QuotaLease);
        pipe.cmd("EVALSHA").arg(digest).arg(call.keys.len());
        for bytes in call.keys.iter().chain(&call.args) {
            pipe.arg(bytes);
        }
    }
    let replies: Vec<Vec<i64>> = pipe.query(connection).map_err(|error| error.to_string())?;
    for (position, (step, reply)) in grants.iter().zip(&replies).enumerate() {
        let request = step.request();
        let answered = decode_lease_grant(&step.limit.limit, &request, reply);
        if answered != Ok((step.expected, 0)) {
            let before = grants[..position].iter().zip(&replies).rev().take(3);
            let before = before.map(|(step, reply)| {
                let (now, request) = (step.now, step.request());
                format!("  {now:?}: {request:?} -> {:?} {reply:?}", step.expected)
            });
            return Err(format!(
                "step {position} at {:?}: {request:?} on {:?}\n expected {:?}\n answered {answered:?}\n \
                 the reply is {reply:?}\n before that\n{}",
                step.now,
                step.limit.limit,
                step.expected,
                before.collect::<Vec<_>>().join("\n")
            ));
        }
    }
    Ok(())
}

fn load(connection: &mut Connection, text: &str) -> String {
    let mut load = redis::cmd("SCRIPT");
    load.arg("LOAD").arg(text).query(connection).unwrap()
}

const MUST_OCCUR: [&str; 14] = [
    "quota changed",
    "clock back",
    "clock anywhere",
    "leased",
    "repeated",
    "nothing leased",
    "reported",
    "expired",
    "granted after now",
    "denied",
    "never",
    "blocks",
    "several leases",
    "leased",
];

#[test]
fn a_server_grants_leases_as_core_does() {
    for (kind, steps) in ServerProgram::under_test()
        .into_iter()
        .map(|kind| match kind {
            ServerProgram::Redis => (kind, STEPS),
            _ => (kind, STEPS / 10),
        })
    {
        let server = RedisServer::start(kind);
        let mut connection = connection(&server);
        let digest = load(&mut connection, ScriptKind::QuotaLease.script().text);
        let mut coverage = Coverage::new();
        for seed in 0..(steps / STEPS_PER_TRACE) as u64 {
            let grants = plan(&mut TestRng::new(seed + 1), seed, &mut coverage);
            if let Err(error) = run(&mut connection, &digest, &grants) {
                panic!("{kind:?} seed {seed}: {error}");
            }
        }
        println!("{kind:?}: {steps} requests agree; {coverage:?}");
        for what in MUST_OCCUR {
            assert!(
                coverage.get(what).is_some_and(|times| *times > 0),
                "no {what}"
            );
        }
    }
}

/// If these went unnoticed, the comparison would prove nothing.
#[test]
fn control_every_wrong_line_of_the_script_is_caught() {
    let server = RedisServer::start(ServerProgram::Redis);
    let mut connection = connection(&server);
    let right = ScriptKind::QuotaLease.script().text;
    for (line, wrong) in [
        ("eh[gone], el[gone], kh, kl)", "now_h, now_l, kh, kl)"),
        ("if less(kh, kl, sh[i], sl[i]) then", "if false then"),
        ("if less(at_h, at_l, gh[i], gl[i]) then", "if false then"),
        ("if is_last == 1 or", "if"),
        ("h, l = subtract(bh, bl, out_h, out_l)", "h, l = bh, bl"),
        ("if is_moved then", "if false then"),
        ("if less(far_h, far_l, th, tl) then", "if false then"),
        (
            "known, lent_h, lent_l = true,",
            "known, lent_h, lent_l = false,",
        ),
        ("oh, ol = subtract(oh, ol, xh, xl)", "oh, ol = oh, ol"),
        ("if wants == 1 and decided == 0", "if wants == 1"),
    ] {
        assert_eq!(
            right.matches(line).count(),
            1,
            "the script says `{line}` once"
        );
        let digest = load(&mut connection, &right.replace(line, wrong));
        let is_caught = (0..40).any(|seed| {
            let key = 1_000 + seed;
            let grants = plan(&mut TestRng::new(seed + 1), key, &mut Coverage::new());
            let forget = redis::cmd("FLUSHALL").query::<()>(&mut connection);
            forget.unwrap();
            run(&mut connection, &digest, &grants).is_err()
        });
        assert!(is_caught, "`{wrong}` for `{line}`");
    }
}

#[test]
fn the_number_of_leases_of_one_key_is_bounded() {
    let server = RedisServer::start(ServerProgram::Redis);
    let mut connection = connection(&server);
    let digest = load(&mut connection, ScriptKind::QuotaLease.script().text);
    let bucket = crate::server_time::slow_bucket(50_000);
    let (mut leased_bucket, now) = (LeasedBucket::default(), Timestamp::from_secs(1_700_000_000));
    let grants: Vec<ExpectedGrant> = (0..=MAX_QUOTA_LEASES as u128)
        .map(|id| {
            let lease = Some(LeaseSpec {
                id: QuotaLeaseId(id),
                min_units: 1,
                max_units: 1,
                duration: Nanos::MINUTE,
            });
            let request = LeaseRequest {
                lease,
                ..LeaseRequest::default()
            };
            ExpectedGrant {
                limit: first_limit(bucket.into()),
                key: [7; 8],
                reports: Vec::new(),
                spend: 0,
                lease,
                now,
                expected: leased_bucket.handle(&bucket, now, &request),
            }
        })
        .collect();
    assert_eq!(grants[MAX_QUOTA_LEASES - 1].expected.units, 1);
    assert_eq!(grants[MAX_QUOTA_LEASES].expected.units, 0);
    run(&mut connection, &digest, &grants).unwrap();
}

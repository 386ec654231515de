//! Spends on leased buckets without leases: the short script decides as core's `LeasedBucket` does, and decides nothing
//! while there are leases.

use redis::Connection;
use tollgate_core::quota_lease::{LeaseRequest, LeasedBucket};
use tollgate_core::{Outcome, Timestamp};
use tollgate_redis::wire::{ScriptCall, decode, has_leases, leasable_bucket};
use tollgate_store::{IdentifiedLimit, LeaseBroker as _, Op, QuotaCheck, StoreKey, StoreReply};
use tollgate_testkit::redis::{RedisServer, ServerProgram};

use super::differential::{lease_spec, limit};
use super::server::want;
use crate::SECRET;
use crate::differential::first_limit;
use crate::server_time::{connection, long_timeout_store, numbered_limit, slow_bucket};
use crate::trace::{self, TestRng};

const TRACES: u64 = 30;
const STEPS: usize = 120;

fn call(connection: &mut Connection, call: &ScriptCall) -> Vec<i64> {
    let mut command = redis::cmd("EVAL");
    command.arg(call.kind.script().text).arg(call.keys.len());
    for bytes in call.keys.iter().chain(&call.args) {
        command.arg(bytes);
    }
    command.query(connection).unwrap()
}

/// What the short script decided: outcome, remaining units and time to reset; `None` if it decided nothing.
fn spend(
    connection: &mut Connection,
    check: &QuotaCheck<'_>,
    now: Timestamp,
) -> Option<StoreReply> {
    let request = ScriptCall::for_unleased_spend(SECRET, check, Some(now)).unwrap();
    let reply = call(connection, &request);
    if has_leases(&reply) {
        return None;
    }
    let mut answer = [StoreReply::EMPTY];
    decode(std::slice::from_ref(check), &reply, &mut answer).unwrap();
    Some(answer[0])
}

#[test]
fn a_spend_without_leases_is_decided_as_core_decides_it_and_not_at_all_with_leases() {
    let server = RedisServer::start(ServerProgram::under_test()[0]);
    let mut connection = connection(&server);
    let mut rng = TestRng::new(0x16_2026);
    let (mut decided, mut denied, mut undecided, mut back) = (0, 0, 0, 0);
    for key in 0..TRACES {
        let (limit, span) = limit(&mut rng);
        let limit: IdentifiedLimit = first_limit(limit);
        let bucket = *leasable_bucket(&limit.limit).unwrap();
        let (mut core, mut now) = (LeasedBucket::default(), trace::usual(&mut rng));
        let name = key.to_be_bytes();
        let store_key = StoreKey::new(&name).unwrap();
        for step in 0..STEPS {
            let (next, clock_step) = trace::instant(&mut rng, now, span);
            now = next;
            back += u32::from(clock_step == trace::ClockStep::Back);
            if rng.chance(6) {
                let lease = Some(lease_spec(&mut rng, bucket.limit(), span, 3));
                let request = LeaseRequest {
                    lease,
                    ..LeaseRequest::default()
                };
                core.handle(&bucket, now, &request);
                let lend =
                    ScriptCall::for_lease(SECRET, &store_key, &limit, &request, Some(now)).unwrap();
                call(&mut connection, &lend);
                continue;
            }
            let cost = trace::cost(&mut rng, bucket.limit()).clamp(1, bucket.limit());
            let check = QuotaCheck {
                key: store_key,
                limit: &limit,
                op: Op::Spend(cost),
            };
            let had_leases = !core.leases().is_empty();
            let answer = spend(&mut connection, &check, now);
            assert_eq!(answer.is_none(), had_leases, "key {key}, step {step}");
            let direct = LeaseRequest {
                direct_cost: cost,
                ..LeaseRequest::default()
            };
            match answer {
                None => {
                    undecided += 1;
                    // As the node does then; both now know that expired leases are gone.
                    let request =
                        ScriptCall::for_lease(SECRET, &store_key, &limit, &direct, Some(now))
                            .unwrap();
                    call(&mut connection, &request);
                    core.handle(&bucket, now, &direct);
                }
                Some(answer) => {
                    let expected = core.handle(&bucket, now, &direct);
                    let got = (answer.outcome, answer.status);
                    let wanted = (expected.direct_outcome, expected.status);
                    assert_eq!(got, wanted, "key {key}, step {step}, {limit:?}");
                    decided += 1;
                    denied += u32::from(matches!(answer.outcome, Outcome::Deny { .. }));
                }
            }
        }
    }
    println!("{decided} decided, {denied} denied, {undecided} had leases, {back} steps back");
    assert!(decided > 300 && denied > 30 && undecided > 30 && back > 30);
}

/// One quota, whichever of both ways each request takes.
#[tokio::test]
async fn i01_spends_with_and_without_leases_share_one_quota() {
    for kind in ServerProgram::under_test() {
        let server = RedisServer::start(kind);
        let store = long_timeout_store(server.url()).await;
        let limit = numbered_limit(1, slow_bucket(10));
        let key = StoreKey::new(b"alice").unwrap();
        let check = QuotaCheck {
            key,
            limit: &limit,
            op: Op::Spend(1),
        };
        let spend = || store.spend_unleased(None, &check);
        for remaining in [9, 8, 7] {
            let reply = spend().await.unwrap().unwrap();
            assert_eq!(reply.outcome, Outcome::Allow);
            assert_eq!(reply.status.remaining, remaining);
        }
        let grant = store.grant_lease(None, key, &limit, &want(1, 100)).await;
        assert_eq!(grant.unwrap().units, 7);
        assert_eq!(spend().await.unwrap(), None, "the bucket has a lease");
        let other = StoreKey::new(b"bob").unwrap();
        let too_much = QuotaCheck {
            key: other,
            limit: &limit,
            op: Op::Spend(11),
        };
        let undecided = store.spend_unleased(None, &too_much).await.unwrap();
        assert_eq!(
            undecided, None,
            "a cost above the burst is left to the other script"
        );
    }
}

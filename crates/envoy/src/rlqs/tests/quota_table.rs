//! The table of clients and buckets: what is sent, abandoned and refused, and that buckets under several limits stay within all
//! of them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::Notify;
use tollgate_core::{Nanos, Timestamp};

use super::simulator::SeededRng;
use crate::rlqs::QuotaBounds;
use crate::rlqs::client::BucketReport;
use crate::rlqs::limits::{AppliedLimits, SharedLimit};
use crate::rlqs::message::BucketAction;
use crate::rlqs::strategy::{QuotaTokenBucket, Strategy};
use crate::rlqs::table::QuotaTable;

const START: Timestamp = Timestamp::from_secs(1_000);

fn bounds() -> QuotaBounds {
    QuotaBounds {
        is_first_process: true,
        ..QuotaBounds::default()
    }
}

fn limit(name: &str, units: u64, window: Nanos) -> SharedLimit {
    SharedLimit {
        key: name.as_bytes().into(),
        units,
        window,
    }
}

fn report(name: &str, requests: u64, limits: &[SharedLimit]) -> BucketReport {
    BucketReport {
        id: name.as_bytes().into(),
        elapsed: Nanos::from_secs(5),
        requests,
        limits: AppliedLimits::Limits(limits.to_vec()),
    }
}

fn assigned(actions: &[(Arc<[u8]>, BucketAction)]) -> Vec<u32> {
    let tokens = actions.iter().map(|(_, action)| match action {
        BucketAction::Assign(Strategy::Tokens(QuotaTokenBucket { max_tokens, .. })) => *max_tokens,
        other => panic!("{other:?}"),
    });
    tokens.collect()
}

#[test]
fn an_unchanged_assignment_is_sent_again_only_after_a_report() {
    let mut table = QuotaTable::new(bounds(), START);
    let stream = table.join(Arc::new(Notify::new())).unwrap();
    let one = limit("one", 10, Nanos::SECOND);
    table.record_reports(
        stream,
        vec![report("a", 1, std::slice::from_ref(&one))],
        START,
    );
    assert_eq!(assigned(&table.take_due_actions(stream, START, 9)), [10]);
    assert_eq!(table.take_due_actions(stream, START, 9), []);
    table.record_reports(stream, vec![report("a", 1, &[one])], START);
    assert_eq!(assigned(&table.take_due_actions(stream, START, 9)), [10]);
    let counts = table.counts();
    assert_eq!((counts.changed, counts.repeated, counts.reports), (1, 1, 2));
}

#[test]
fn a_message_has_a_bounded_number_of_buckets_and_the_next_has_the_others() {
    let mut table = QuotaTable::new(bounds(), START);
    let stream = table.join(Arc::new(Notify::new())).unwrap();
    let names: Vec<String> = (0..10).map(|n| n.to_string()).collect();
    let limits = |name: &String| [limit(name, 10, Nanos::SECOND)];
    let all = names.iter().map(|name| report(name, 1, &limits(name)));
    table.record_reports(stream, all.collect(), START);
    let lengths = [4, 4, 4, 4].map(|most| table.take_due_actions(stream, START, most).len());
    assert_eq!(lengths, [4, 4, 2, 0]);
}

#[test]
fn a_share_of_a_limit_that_no_longer_applies_is_free_after_it_expires() {
    let mut table = QuotaTable::new(bounds(), START);
    let [one, other] = [(); 2].map(|()| table.join(Arc::new(Notify::new())).unwrap());
    let (old, new) = (
        limit("old", 10, Nanos::SECOND),
        limit("new", 7, Nanos::SECOND),
    );
    table.record_reports(one, vec![report("a", 1, std::slice::from_ref(&old))], START);
    assert_eq!(assigned(&table.take_due_actions(one, START, 9)), [10]);
    // The policy has changed.
    table.record_reports(one, vec![report("a", 1, &[new])], START);
    assert_eq!(assigned(&table.take_due_actions(one, START, 9)), [7]);
    table.record_reports(other, vec![report("b", 1, &[old])], START);
    assert_eq!(table.take_due_actions(other, START, 9), []);
    let later = START.after(Nanos::from_secs(18));
    table.tick(later);
    assert_eq!(assigned(&table.take_due_actions(other, later, 9)), [10]);
}

#[test]
fn idle_buckets_are_abandoned_sooner_if_there_are_too_many() {
    let mut bounds = bounds();
    bounds.buckets = 3;
    let mut table = QuotaTable::new(bounds, START);
    let stream = table.join(Arc::new(Notify::new())).unwrap();
    let one = [limit("one", 100, Nanos::SECOND)];
    let hear = |table: &mut QuotaTable, names: &[&str], requests, now| {
        let all = names.iter().map(|name| report(name, requests, &one));
        table.record_reports(stream, all.collect(), now);
        table.tick(now);
    };
    hear(&mut table, &["a", "b", "c", "d"], 1, START);
    assert_eq!((table.counts().buckets, table.counts().refused), (3, 1));
    drop(table.take_due_actions(stream, START, 9));
    // Two of them are still used.
    let later = START.after(Nanos::from_secs(10));
    hear(&mut table, &["a", "b", "d"], 1, later);
    let said = table.take_due_actions(stream, later, 9);
    let abandoned = said
        .iter()
        .filter(|(_, action)| *action == BucketAction::Abandon);
    let abandoned: Vec<_> = abandoned.map(|(id, _)| id.to_vec()).collect();
    assert_eq!(abandoned, [b"c"]);
    hear(&mut table, &["d"], 1, later.after(Nanos::from_secs(5)));
    assert_eq!((table.counts().buckets, table.counts().refused), (3, 2));
}

#[test]
fn reconnecting_clients_do_not_exceed_the_bounds() {
    let mut bounds = bounds();
    bounds.buckets = 10;
    let mut table = QuotaTable::new(bounds, START);
    for round in 0..1_000 {
        let stream = table.join(Arc::new(Notify::new())).unwrap();
        let name = round.to_string();
        let limits = [limit(&name, 10, Nanos::SECOND)];
        table.record_reports(stream, vec![report(&name, 1, &limits)], START);
        drop(table.take_due_actions(stream, START, 9));
        table.leave(stream, START);
    }
    assert_eq!(table.counts().buckets, 0);
    assert_eq!(table.counts().changed, 20);
    let later = START.after(Nanos::from_secs(18));
    table.tick(later);
    let stream = table.join(Arc::new(Notify::new())).unwrap();
    let limits = [limit("new", 10, Nanos::SECOND)];
    table.record_reports(stream, vec![report("new", 1, &limits)], later);
    assert_eq!(assigned(&table.take_due_actions(stream, later, 9)), [10]);
}

/// A client's current assignments, and those in flight.
#[derive(Default)]
struct ClientAssignments {
    now: HashMap<Arc<[u8]>, (QuotaTokenBucket, Timestamp)>,
    coming: VecDeque<(Timestamp, Arc<[u8]>, BucketAction)>,
}

/// The shares of every limit in use: the burst, and the requests per hour.
fn in_force(
    clients: &[ClientAssignments],
    limits_of: &HashMap<Arc<[u8]>, Vec<SharedLimit>>,
) -> HashMap<Arc<[u8]>, (u64, f64)> {
    let mut sums: HashMap<Arc<[u8]>, (u64, f64)> = HashMap::new();
    for (id, (tokens, _)) in clients.iter().flat_map(|client| &client.now) {
        for limit in &limits_of[id] {
            let sum = sums.entry(Arc::clone(&limit.key)).or_default();
            sum.0 += u64::from(tokens.max_tokens);
            #[expect(clippy::cast_precision_loss, reason = "seconds are few")]
            let seconds = tokens.seconds as f64;
            sum.1 += f64::from(tokens.tokens_per_fill) * 3_600.0 / seconds;
        }
    }
    sums
}

#[test]
fn buckets_under_several_limits_stay_within_all_of_them() {
    let (grace, life) = (Nanos::from_secs(3), Nanos::from_secs(15));
    for seed in 0..20 {
        let mut rng = SeededRng::new(seed);
        let mut table = QuotaTable::new(bounds(), START);
        let all = limit("all", 500, Nanos::MINUTE);
        let users: Vec<Arc<[u8]>> = (0..6_u8).map(|n| Arc::from([n])).collect();
        let limits_of: HashMap<Arc<[u8]>, Vec<SharedLimit>> = users
            .iter()
            .map(|user| {
                let own = limit(&format!("{user:?}"), 20, Nanos::SECOND);
                (Arc::clone(user), vec![own, all.clone()])
            })
            .collect();
        let join = |table: &mut QuotaTable| table.join(Arc::new(Notify::new())).unwrap();
        let mut streams = [(); 4].map(|()| join(&mut table));
        let mut clients: [ClientAssignments; 4] = Default::default();
        for step in 0..3_000 {
            let now = START.after(Nanos::from_millis(100 * step));
            table.tick(now);
            for (stream, client) in streams.iter_mut().zip(&mut clients) {
                if rng.below(50) == 0 {
                    let user = &users[usize::try_from(rng.below(6)).unwrap()];
                    let report = BucketReport {
                        id: Arc::clone(user),
                        elapsed: Nanos::from_secs(5),
                        requests: rng.below(4) * 300,
                        limits: AppliedLimits::Limits(limits_of[user].clone()),
                    };
                    table.record_reports(*stream, vec![report], now);
                }
                if rng.below(1_000) == 0 {
                    table.leave(*stream, now);
                    *stream = join(&mut table);
                }
                for (id, action) in table.take_due_actions(*stream, now, 9) {
                    let late = now.after(Nanos::from_nanos(rng.below(grace.as_nanos())));
                    let last = client.coming.back().map_or(late, |(at, ..)| late.max(*at));
                    client.coming.push_back((last, id, action));
                }
                while let Some((_, id, action)) = client.coming.pop_front_if(|(at, ..)| *at <= now)
                {
                    match action {
                        BucketAction::Assign(Strategy::Tokens(tokens)) => {
                            client.now.insert(id, (tokens, now.after(life)));
                        }
                        _ => drop(client.now.remove(&id)),
                    }
                }
                client.now.retain(|_, (_, until)| now < *until);
            }
            for (key, (most, in_an_hour)) in in_force(&clients, &limits_of) {
                let is_all = *key == *all.key;
                let (units, rate) = if is_all {
                    (500, 30_000.0)
                } else {
                    (20, 72_000.0)
                };
                assert!(
                    most <= units && in_an_hour <= rate + 0.001,
                    "seed {seed}, step {step}: {most}, {in_an_hour}"
                );
            }
        }
        assert!(table.counts().changed > 100, "{:?}", table.counts());
    }
}

//! Credits with clients that respect them and clients that do not, over random demand.

mod herd;

use super::*;

const POOL: f64 = 1_000.0;

/// A random number after SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

fn client(id: usize) -> CreditClient {
    of_class(id, 0)
}

fn of_class(id: usize, class: usize) -> CreditClient {
    CreditClient {
        id: id as u64,
        class: PriorityClass::new(class).unwrap(),
    }
}

/// The pool with what is issued because not all is used, and one credit for each client.
fn credit_bound(ledger: &CreditLedger) -> f64 {
    let one_each = ledger.accounts.values().map(|account| 1.0 / account.span);
    ledger.pool * MAX_OVERCOMMIT + one_each.sum::<f64>() + 1e-6
}

/// Each client wants a number of requests a second, and sends as many as its credits allow. Nothing is refused, so up to
/// twice the pool is issued. Returns what each sent in the last second.
fn run(
    ledger: &mut CreditLedger,
    wants: &[u32],
    seconds: u64,
    respects: impl Fn(usize) -> bool,
) -> Vec<u32> {
    let mut sent = vec![0; wants.len()];
    let mut blocked = vec![Timestamp::EPOCH; wants.len()];
    for tick in 0..seconds * 10 {
        let now = Timestamp::from_secs(100).after(Nanos::from_millis(100 * tick));
        if tick % 10 == 0 {
            sent.fill(0);
        }
        for (index, want) in wants.iter().enumerate() {
            for _ in 0..want.div_ceil(10) {
                if respects(index) && now < blocked[index] || sent[index] >= *want {
                    break;
                }
                sent[index] += 1;
                let offer = ledger
                    .record_request(now, client(index), Some(POOL))
                    .unwrap();
                if offer.remaining == 0 {
                    blocked[index] = now.after(offer.valid_for);
                }
            }
        }
        let (issued, pool) = ledger.issued_and_pool();
        assert!(issued <= credit_bound(ledger), "{issued} credits of {pool}");
    }
    sent
}

#[test]
fn clients_that_want_more_than_there_is_get_a_max_min_fair_share() {
    let mut ledger = CreditLedger::new(Timestamp::EPOCH);
    let mut wants = vec![20_u32; 10];
    wants.extend([1_000; 10]);
    let sent = run(&mut ledger, &wants, 30, |_| true);
    assert!(sent[..10].iter().all(|sent| *sent == 20), "{sent:?}");
    // 800 of the pool remain for ten clients, 1,800 of twice the pool.
    assert!(
        sent[10..].iter().all(|sent| (60..=180).contains(sent)),
        "{sent:?}"
    );
}

#[test]
fn random_demand_gets_bounded_credits_and_nobody_starves() {
    for seed in 0..20 {
        let mut state = seed;
        let clients = 1 + random(&mut state) % 900;
        let wants: Vec<u32> = (0..clients)
            .map(|_| 1 + u32::try_from(random(&mut state) % 50).unwrap())
            .collect();
        let sent = run(&mut CreditLedger::new(Timestamp::EPOCH), &wants, 10, |_| {
            true
        });
        assert!(sent.iter().all(|sent| *sent >= 1), "seed {seed}");
    }
}

#[test]
fn a_client_that_ignores_its_credits_takes_nothing_from_the_others() {
    let wants: Vec<u32> = std::iter::once(100_000).chain([100; 9]).collect();
    let sent = run(
        &mut CreditLedger::new(Timestamp::EPOCH),
        &wants,
        20,
        |client| client != 0,
    );
    assert!(sent[1..].iter().all(|sent| *sent >= 60), "{sent:?}");
}

#[test]
fn with_more_clients_than_credits_each_credit_lasts_longer() {
    let mut ledger = CreditLedger::new(Timestamp::EPOCH);
    let sent = run(&mut ledger, &[5; 10_000], 40, |_| true);
    let all: u32 = sent.iter().sum();
    assert!(all <= 2_500, "{all} in a second of 1,000 credits");
    let last = ledger
        .record_request(Timestamp::from_secs(140), client(3), Some(POOL))
        .unwrap();
    assert!(last.window >= Nanos::from_secs(5), "{last:?}");
}

#[test]
fn a_million_clients_take_bounded_memory_and_idle_ones_give_their_credits_back() {
    let mut ledger = CreditLedger::new(Timestamp::EPOCH);
    let now = Timestamp::from_secs(1);
    let offers = (0..1_000_000).filter_map(|id| ledger.record_request(now, client(id), Some(POOL)));
    assert_eq!(offers.count(), MAX_CREDIT_CLIENTS);
    assert_eq!(ledger.clients(), MAX_CREDIT_CLIENTS);
    let later = Timestamp::from_secs(200);
    assert!(
        ledger
            .record_request(later, client(2_000_000), Some(POOL))
            .is_some()
    );
    assert_eq!(ledger.clients(), 1);
    assert!(ledger.issued_and_pool().0 < POOL);
}

#[test]
fn refused_clients_return_as_many_in_a_second_as_there_are_credits() {
    let mut ledger = CreditLedger::new(Timestamp::EPOCH);
    let now = Timestamp::from_secs(1);
    let mut returns = [0_u32; 12];
    for id in 0..10_000 {
        let offer = ledger.record_refusal(now, client(id), Some(POOL)).unwrap();
        assert_eq!(offer.remaining, 0);
        // As fields say it.
        let seconds = offer.valid_for.as_nanos().div_ceil(1_000_000_000);
        returns[usize::try_from(seconds).unwrap()] += 1;
        // Asking again changes nothing.
        assert_eq!(
            ledger.record_refusal(now, client(id), Some(POOL)),
            Some(offer)
        );
    }
    assert!(returns.iter().all(|count| *count <= 1_001), "{returns:?}");
}

/// The clients that were still to return were counted without a bound. A flood from new addresses made everybody wait a minute for
/// half an hour after it.
#[test]
fn a_flood_of_refused_clients_is_forgotten_after_the_longest_wait() {
    let (now, rate) = (Timestamp::from_secs(100), Some(10.0));
    let mut ledger = CreditLedger::new(now);
    let mut longest = Nanos::ZERO;
    for id in 0..MAX_CREDIT_CLIENTS {
        let offer = ledger.record_refusal(now, client(id), rate).unwrap();
        longest = longest.max(offer.valid_for);
    }
    assert_eq!(longest, Nanos::from_secs(60));
    let later = now.after(Nanos::from_secs(63));
    let offer = ledger.record_refusal(later, client(MAX_CREDIT_CLIENTS), rate);
    assert_eq!(offer.unwrap().valid_for, Nanos::SECOND);
}

#[test]
fn strange_rates_and_times_are_harmless() {
    let mut ledger = CreditLedger::new(Timestamp::MAX);
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let now = Timestamp::EPOCH;
        assert_eq!(ledger.record_request(now, client(1), Some(rate)), None);
        assert_eq!(ledger.record_refusal(now, client(1), Some(rate)), None);
    }
    for (round, rate) in [1e-9, 1e300, 1.0].into_iter().cycle().take(300).enumerate() {
        let now = Timestamp::from_secs(round as u64 % 7);
        let offer = ledger
            .record_request(now, client(round % 5), Some(rate))
            .unwrap();
        assert!(offer.quota >= 1 && offer.valid_for <= Nanos::from_secs(70));
        let offer = ledger.record_refusal(Timestamp::MAX, client(3), Some(rate));
        assert!(offer.unwrap().valid_for <= Nanos::from_secs(60));
    }
}

/// Fifty batch clients have all credits when five critical ones begin, which want 120 requests/s each. All respect their credits. Returns
/// the critical requests of the last second.
fn critical_requests(batch_class: usize) -> u32 {
    let mut ledger = CreditLedger::new(Timestamp::EPOCH);
    let mut blocked = [Timestamp::EPOCH; 55];
    let mut critical = 0;
    for tick in 0..200 {
        let now = Timestamp::from_secs(100).after(Nanos::from_millis(100 * tick));
        if tick % 10 == 0 {
            critical = 0;
        }
        let first = if tick < 100 { 5 } else { 0 };
        for (id, blocked) in blocked.iter_mut().enumerate().skip(first) {
            let (class, wants) = if id < 5 { (0, 12) } else { (batch_class, 100) };
            for _ in 0..wants {
                if now < *blocked {
                    break;
                }
                critical += u32::from(id < 5);
                let request = of_class(id, class);
                let offer = ledger.record_request(now, request, Some(POOL)).unwrap();
                if offer.remaining == 0 {
                    *blocked = now.after(offer.valid_for);
                }
            }
        }
    }
    critical
}

#[test]
fn important_classes_get_credits_first() {
    let critical = critical_requests(1);
    assert!((540..=600).contains(&critical), "{critical}");
    // In one class each gets an equal share.
    let critical = critical_requests(0);
    assert!(critical <= 300, "{critical}");
}

#[test]
fn refused_requests_take_no_credits_from_others() {
    let mut ledger = CreditLedger::new(Timestamp::EPOCH);
    let mut last = None;
    for tick in 0..200 {
        let now = Timestamp::from_secs(100).after(Nanos::from_millis(100 * tick));
        for _ in 0..1_000 {
            ledger.record_refusal(now, client(1), Some(POOL)).unwrap();
        }
        for _ in 0..50 {
            last = ledger.record_request(now, of_class(2, 1), Some(POOL));
        }
    }
    // It wants 500 of 1,000, and gets them and half of the rest.
    assert!(last.unwrap().quota >= 600, "{last:?}");
}

/// An account that a refusal made had at least one credit. So refused requests from many addresses left a client that was there before one
/// credit in several seconds.
#[test]
fn refused_requests_from_many_addresses_take_no_credits_from_others() {
    let mut ledger = CreditLedger::new(Timestamp::EPOCH);
    let mut last = None;
    for tick in 0..200_usize {
        let now = Timestamp::from_secs(100).after(Nanos::from_millis(100 * tick as u64));
        for id in 0..100 {
            ledger.record_refusal(now, client(10 + 100 * tick + id), Some(POOL));
        }
        for _ in 0..20 {
            last = ledger.record_request(now, client(1), Some(POOL));
        }
    }
    let last = last.unwrap();
    let rate = f64::from(last.quota) / seconds(last.window);
    assert!(rate >= 200.0, "{last:?}");
    assert_eq!(ledger.clients(), 1);
}

/// The share by bisection, which has nothing in common with the code that is tested.
fn bisected_share(wants: &[f64], pool: f64) -> f64 {
    let given = |share: f64| wants.iter().map(|want| want.min(share)).sum::<f64>();
    let (mut low, mut high) = (0.0, 1e12);
    if given(high) <= pool {
        return f64::INFINITY;
    }
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        match given(middle) <= pool {
            true => low = middle,
            false => high = middle,
        }
    }
    low
}

/// Random wants, some of them equal, zero or far apart.
fn random_wants(state: &mut u64) -> (Vec<f64>, f64) {
    let count = random(state) % 400;
    let wants = (0..count).map(|_| match random(state) % 4 {
        0 => (random(state) % 3) as f64,
        1 => 64.0,
        2 => (random(state) % 1_000) as f64 / 7.0,
        _ => (random(state) % 40) as f64 * (random(state) % 1_000_000) as f64,
    });
    (wants.collect(), (random(state) % 1_000_000) as f64 / 10.0)
}

/// Shares that differ from the bisected ones, in 2,000 random cases.
fn wrong_shares(share_of: impl Fn(&mut [f64], f64) -> f64) -> usize {
    let mut state = 19;
    let is_wrong = |_: &usize| {
        let (mut wants, pool) = random_wants(&mut state);
        let expected = bisected_share(&wants, pool);
        let share = share_of(&mut wants, pool);
        let is_near = (share - expected).abs() <= 1e-6 * expected.max(1.0);
        !(is_near || share.is_infinite() && expected.is_infinite())
    };
    (0..2_000).filter(is_wrong).count()
}

#[test]
fn the_share_is_max_min_fair() {
    assert_eq!(wrong_shares(max_min_share), 0);
    // Equal parts, and a share that gives away what small wants leave only once, are found wrong.
    let equal = |wants: &mut [f64], pool: f64| pool / wants.len() as f64;
    assert!(wrong_shares(equal) > 1_000);
    let once = |wants: &mut [f64], pool: f64| {
        let equal = pool / wants.len() as f64;
        let (below, above): (Vec<f64>, Vec<f64>) = wants.iter().partition(|want| **want < equal);
        (pool - below.iter().sum::<f64>()) / above.len() as f64
    };
    assert!(wrong_shares(once) > 300);
}

#[test]
fn a_pool_that_shrinks_takes_credits_back_when_they_expire() {
    let mut ledger = CreditLedger::new(Timestamp::EPOCH);
    for tick in 0..100 {
        let pool = if tick < 50 { POOL } else { POOL / 10.0 };
        let now = Timestamp::from_secs(100).after(Nanos::from_millis(100 * tick));
        for id in 0..10 {
            for _ in 0..20 {
                ledger.record_request(now, client(id), Some(pool)).unwrap();
            }
        }
        if tick >= 62 {
            assert!(
                ledger.issued_and_pool().0 <= credit_bound(&ledger),
                "{tick}"
            );
        }
    }
}

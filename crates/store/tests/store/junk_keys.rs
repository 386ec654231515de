//! Junk keys: a client that makes up keys fills the memory of one limit. Other limits must not notice, and a limit that
//! refuses when it is full must not forget what a key has used.

use tollgate_core::concurrency::LeaseId;
use tollgate_core::limit::Limit;
use tollgate_core::{
    Concurrency, FixedWindow, Nanos, Outcome, Rate, SlidingCounter, SlidingLog, TokenBucket, Window,
};
use tollgate_store::{IdentifiedLimit, Op, QuotaCheck, ReplyNote, StoreKey, StoreReply, WhenFull};

use crate::support::{Random, TestStore, bucket, id, numbered_limit, store};

/// Room in the tables, and the junk keys of the attack: three for each place.
const ROOM: usize = 100_000;
const JUNK: u64 = 300_000;

fn ask(store: &TestStore, limit: &IdentifiedLimit, key: &[u8], op: Op) -> StoreReply {
    let key = StoreKey::new(key).unwrap();
    let (_, [answer]) = store.decide_array([QuotaCheck { key, limit, op }]).unwrap();
    answer
}

fn is_admitted(store: &TestStore, limit: &IdentifiedLimit, key: &[u8]) -> bool {
    ask(store, limit, key, Op::Spend(1)).outcome.is_admitted()
}

/// How many of 300 keys are admitted under the limit.
fn admitted_of_300(store: &TestStore, limit: &IdentifiedLimit, kind: &str) -> usize {
    let keys = (0..300).map(|n| format!("{kind}-{n}"));
    keys.filter(|key| is_admitted(store, limit, key.as_bytes()))
        .count()
}

fn per_minute(units: u64) -> TokenBucket {
    TokenBucket::builder(Rate::per_minute(units))
        .build()
        .unwrap()
}

/// The attack: a limit `small` of 1 a day, keyed by a header that clients choose, beside `perip` of 1000 a minute. 300,000
/// requests with made-up header values filled the tables with keys that were denied for a day. Every key without a slot was
/// then decided by one sketch for all limits, whose cells held debts of a day: of 300 known addresses 37 were admitted under
/// `perip`, and of 300 fresh ones none, for as long as the debts of `small` lasted.
#[test]
fn i10_junk_keys_of_one_limit_lock_nobody_out_of_another() {
    for when_full in [WhenFull::Forget, WhenFull::Refuse] {
        let (store, _clock) = store(ROOM);
        let small = numbered_limit(1, bucket(1, Nanos::DAY));
        let per_ip = numbered_limit(2, per_minute(1_000));
        store.set_when_full(small.id, when_full);
        assert_eq!(admitted_of_300(&store, &per_ip, "known"), 300);
        for n in 0..JUNK {
            is_admitted(&store, &small, &n.to_le_bytes());
        }
        assert_eq!(admitted_of_300(&store, &per_ip, "known"), 300);
        assert_eq!(admitted_of_300(&store, &per_ip, "fresh"), 300);
        let usage = store.limit_usage(per_ip.id);
        // While the junk is still within its share, a group that is full by chance may give up one of another limit.
        assert!(usage.evictions <= 12, "{usage:?}");
        assert_eq!(usage.overflow_refusals, 0);
        // The known ones kept their states: each has used two units.
        let state = |n: u32| {
            let key = format!("known-{n}");
            ask(&store, &per_ip, key.as_bytes(), Op::Peek(1)).status
        };
        assert!((0..300).all(|n| state(n).remaining == 998));
        // What the limit under attack itself says to newcomers is its own choice.
        let fresh = admitted_of_300(&store, &small, "honest");
        match when_full {
            WhenFull::Forget => assert_eq!(fresh, 300),
            WhenFull::Refuse => assert!(fresh < 300, "{fresh} of 300"),
        }
    }
}

/// The same with windows and logs under attack, and with places: whatever a limit keeps, other limits of its kind have room.
#[test]
fn i10_junk_keys_lock_nobody_out_whatever_the_algorithm() {
    let window = |units| FixedWindow::builder(units, Window::FirstHit(Nanos::DAY));
    let counter = |units| SlidingCounter::builder(units, Nanos::DAY);
    let log = |units| SlidingLog::builder(units, Nanos::DAY);
    let pairs: [(Limit, Limit); 3] = [
        (
            window(1).build().unwrap().into(),
            window(1_000).build().unwrap().into(),
        ),
        (
            counter(1).build().unwrap().into(),
            counter(1_000).build().unwrap().into(),
        ),
        (
            log(1).build().unwrap().into(),
            log(1_000).build().unwrap().into(),
        ),
    ];
    for (small, large) in pairs {
        for when_full in [WhenFull::Forget, WhenFull::Refuse] {
            let (store, _clock) = store(2_000);
            let [small, large] = [numbered_limit(1, small), numbered_limit(2, large)];
            store.set_when_full(small.id, when_full);
            assert_eq!(admitted_of_300(&store, &large, "known"), 300);
            for n in 0..20_000_u64 {
                is_admitted(&store, &small, &n.to_le_bytes());
            }
            assert_eq!(admitted_of_300(&store, &large, "known"), 300);
            assert_eq!(admitted_of_300(&store, &large, "fresh"), 300, "{large:?}");
        }
    }
}

/// Nothing stands in for a place that is held, so a key without room for its leases was refused: junk keys that each held
/// one place of one limit refused everybody under every other concurrency limit, for as long as a lease lasts.
#[test]
fn i10_junk_leases_of_one_limit_lock_nobody_out_of_another() {
    let (store, _clock) = store(2_000);
    let gate = Concurrency::new(2, Nanos::HOUR).unwrap();
    let [by_header, by_ip] = [1, 2].map(|number| numbered_limit(number, gate));
    store.set_when_full(by_header.id, WhenFull::Forget);
    let acquire = |limit: &IdentifiedLimit, key: &[u8], lease: u64| {
        let id = LeaseId(u128::from(lease));
        ask(&store, limit, key, Op::Acquire { id, weight: 1 }).outcome
    };
    for n in 0..20_000_u64 {
        acquire(&by_header, &n.to_le_bytes(), n);
    }
    for n in 0..300 {
        let key = format!("fresh-{n}");
        assert_eq!(acquire(&by_ip, key.as_bytes(), n), Outcome::Allow, "{key}");
    }
}

/// How often of 6 times a victim's key is admitted under 5 an hour while three junk keys for each place in the store ask twice
/// between its own requests.
fn admitted_among_junk(when_full: WhenFull, room: usize, limit: Limit) -> usize {
    let (store, _clock) = store(room);
    let junk = room as u64 * 3;
    let login = numbered_limit(1, limit);
    store.set_when_full(login.id, when_full);
    let round = |round: u64| {
        for n in 0..junk {
            let key = (round * junk + n).to_le_bytes();
            is_admitted(&store, &login, &key);
            is_admitted(&store, &login, &key);
        }
        is_admitted(&store, &login, b"victim")
    };
    (0..6).filter(|n| round(*n)).count()
}

/// The attack: passwords are guessed under a limit of 5 an hour by name. Between two guesses 60,000 junk names asked twice
/// each. The victim's key, which had used less than they, was evicted and forgotten, and started fresh with every guess: 20
/// of 20 guesses were admitted. What is evicted is now kept in a sketch, unless the limit says that it may be forgotten.
#[test]
fn i01_junk_keys_do_not_make_a_partly_used_key_be_forgotten() {
    let limit = bucket(5, Nanos::from_secs(12 * 60));
    let admitted = admitted_among_junk(WhenFull::Refuse, 20_000, limit.into());
    assert!(admitted <= 5, "{admitted} of 5");
}

/// The control: a limit that forgets is escaped by the same attack, so the test above can fail.
#[test]
fn a_limit_that_forgets_admits_a_victim_among_junk_beyond_its_quota() {
    let limit = bucket(5, Nanos::from_secs(12 * 60));
    let admitted = admitted_among_junk(WhenFull::Forget, 2_000, limit.into());
    assert_eq!(admitted, 6);
}

/// Whatever the order of requests, the algorithm and the crowd: under `refuse` no key is admitted beyond its quota before
/// the first unit is back, though nearly all of them are evicted again and again.
#[test]
fn i01_no_key_is_admitted_beyond_its_quota_by_a_limit_that_refuses() {
    let window = Window::FirstHit(Nanos::HOUR);
    let limits: [Limit; 4] = [
        bucket(5, Nanos::HOUR).into(),
        FixedWindow::builder(5, window).build().unwrap().into(),
        SlidingCounter::builder(5, Nanos::HOUR)
            .build()
            .unwrap()
            .into(),
        SlidingLog::builder(5, Nanos::HOUR).build().unwrap().into(),
    ];
    for (seed, limit) in (1..).zip(limits) {
        let (store, clock) = store(40);
        let limits = [1, 2, 3].map(|number| numbered_limit(number, limit));
        store.set_when_full(id(3), WhenFull::Forget);
        let mut random = Random(seed);
        let mut spent = std::collections::BTreeMap::new();
        for _ in 0..40_000 {
            clock.advance(Nanos::from_millis(random.below(100)));
            let (limit, key) = (random.below(3), random.below(500));
            let ruled = &limits[usize::try_from(limit).unwrap()];
            let cost = 1 + random.below(2);
            let answer = ask(&store, ruled, &key.to_le_bytes(), Op::Spend(cost));
            if answer.outcome.is_admitted() {
                *spent.entry((limit, key)).or_insert(0) += cost;
            }
        }
        let over = |wanted: bool| {
            let all = spent.iter();
            all.filter(|((limit, _), spent)| (*limit == 2) == wanted && **spent > 5)
                .count()
        };
        assert_eq!(over(false), 0, "{limits:?}");
        assert!(over(true) > 10, "the control: {limits:?}");
        assert!(store.usage().evictions > 1_000, "{:?}", store.usage());
    }
}

/// A key that finds no room anywhere is told so, and not that it was too fast.
#[test]
fn who_is_refused_for_want_of_room_is_told_so() {
    let (store, _clock) = store(1);
    let limit = numbered_limit(1, bucket(1, Nanos::HOUR));
    let answers = (0..200_000_u64).map(|n| ask(&store, &limit, &n.to_le_bytes(), Op::Spend(1)));
    let refused: Vec<StoreReply> = answers
        .filter(|answer| !answer.outcome.is_admitted())
        .collect();
    assert!(refused.len() > 1_000, "{}", refused.len());
    let honest = Outcome::Deny {
        retry_after: Nanos::HOUR,
    };
    for answer in &refused {
        assert_eq!((answer.note, answer.outcome), (ReplyNote::Overflow, honest));
    }
    let usage = store.limit_usage(limit.id);
    assert_eq!(usage.overflow_refusals, refused.len() as u64);
    assert!(store.usage().overflow_bytes > 0);
}

//! Growth with the number of keys, with their length and with threads: the library's check and the policy engine.
//!
//! Must not know: how states are kept.

use std::hint::black_box;
use std::num::NonZeroU16;
use std::sync::Barrier;

use tollgate_core::{Nanos, Rate, TokenBucket};
use tollgate_engine::{CheckOptions, Engine};
use tollgate_policy::load;
use tollgate_policy::rules::Rules;
use tollgate_policy::source::SourceFormat;
use tollgate_store::{IdentifiedLimit, LimitId, MemoryStore, StoreKey};

use crate::Failure;
use crate::clock::{Stopwatch, thread_time};
use crate::node::SECRET;
use crate::options::Options;
use crate::requests::{KeyedRequest, Random, key};
use crate::series::Growth;

const LIBRARY: &str = "library check";
const ENGINE: &str = "policy engine, one limit";
pub(crate) const NANOS: &str = "ns of CPU per decision";

/// Bytes that a key takes in the store, with room to spare.
const BYTES_PER_KEY: u64 = 48;
/// Keys of the studies that count something else.
const KEYS: usize = 100_000;
const KEY_LEN: usize = 12;
/// How often a thread goes through its requests in a lap. The system may start both threads on one processor and moves one of them
/// only after some milliseconds, so a lap must take far longer than that.
const TURNS: usize = 20;

/// The library's check: one token bucket, by key.
struct Library {
    store: MemoryStore,
    id: LimitId,
    quota: TokenBucket,
}

impl Library {
    fn new(keys: usize) -> Result<Self, Failure> {
        let store = MemoryStore::for_keys(keys)?;
        let id = LimitId(NonZeroU16::MIN);
        let rate = Rate::new(1_000, Nanos::from_secs(1));
        let quota = TokenBucket::builder(rate).burst(1 << 32).build()?;
        let limit = quota.into();
        store.add_limit(&IdentifiedLimit { id, limit });
        Ok(Self { store, id, quota })
    }

    fn check(&self, key: &[u8]) -> bool {
        let key = StoreKey::new(black_box(key));
        key.is_ok_and(|key| {
            self.store
                .spend(&key, self.id, &self.quota, 1)
                .is_admitted()
        })
    }
}

/// An engine with this policy and room for so many keys.
pub(crate) fn engine(policy: &str, keys: usize) -> Result<Engine<MemoryStore>, Failure> {
    let policy = load(policy, "policy.yaml", SourceFormat::Yaml).map_err(|bad| bad.to_string())?;
    let rules = Rules::compile(&policy, SECRET).map_err(|bad| format!("{bad:?}"))?;
    Ok(Engine::new(rules, MemoryStore::for_keys(keys)?)?)
}

/// Whether the engine admits.
pub(crate) fn admits(engine: &Engine<MemoryStore>, request: &KeyedRequest) -> bool {
    let verdict = engine.check(black_box(request), CheckOptions::default());
    verdict.is_admitted()
}

/// Nanoseconds of processor time for each, once around all requests before the clock starts and once for each round.
/// All must be admitted.
pub(crate) fn laps<T>(
    rounds: usize,
    requests: &[T],
    check: impl Fn(&T) -> bool,
) -> Result<Vec<f64>, Failure> {
    let mut all = Vec::new();
    for round in 0..=rounds {
        let before = thread_time();
        let admitted = requests.iter().filter(|request| check(request)).count();
        let used = thread_time().saturating_sub(before);
        if admitted != requests.len() {
            return Err(format!("{admitted} of {} were admitted", requests.len()).into());
        }
        if round > 0 {
            all.push(used.as_secs_f64() * 1e9 / count(requests.len()));
        }
    }
    Ok(all)
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

const ONE_LIMIT: &str =
    "limits:\n  - { name: per-key, key: header.x-api-key, rate: 1000/s, burst: 4000000000 }\n";

/// Keys from a thousand to a hundred million, each as likely as any other.
pub(crate) fn by_count(options: &Options) -> Result<Vec<Growth>, Failure> {
    let mut growth = Growth::new("growth keys", "keys in the store", NANOS);
    let sizes = (3..=8).map(|power| 10_usize.pow(power));
    for size in sizes.take_while(|size| *size <= options.most_keys) {
        let needed = u64::try_from(size)? * BYTES_PER_KEY;
        if needed > available_memory()? / 4 {
            eprintln!(
                "{size} keys are left out: they would take more than a quarter of the free memory"
            );
            break;
        }
        let mut random = Random::new();
        let numbers: Vec<usize> = (0..options.requests).map(|_| random.below(size)).collect();
        let keys: Vec<Vec<u8>> = numbers.iter().map(|number| key(*number, KEY_LEN)).collect();
        let library = Library::new(size)?;
        let is_full = (0..size).all(|number| library.check(&key(number, KEY_LEN)));
        if !is_full {
            return Err("a key was refused while the store was filled".into());
        }
        let points = laps(options.rounds, &keys, |key| library.check(key))?;
        growth.point(LIBRARY, count(size), points);
        drop(library);
        let engine = engine(ONE_LIMIT, size)?;
        if !(0..size).all(|number| admits(&engine, &KeyedRequest::new(key(number, KEY_LEN)))) {
            return Err("a key was refused while the engine was filled".into());
        }
        let requests: Vec<KeyedRequest> = keys.into_iter().map(KeyedRequest::new).collect();
        let points = laps(options.rounds, &requests, |one| admits(&engine, one))?;
        growth.point(ENGINE, count(size), points);
    }
    Ok(vec![growth])
}

/// Keys of 8 to 512 bytes.
pub(crate) fn by_length(options: &Options) -> Result<Vec<Growth>, Failure> {
    let mut growth = Growth::new("growth key length", "bytes of a key", NANOS);
    for length in [8, 16, 32, 64, 128, 256, 512] {
        let mut random = Random::new();
        // Fewer keys, so that reading them from memory is not what is seen.
        let numbers = (0..1_000).map(|_| random.zipf(KEYS));
        let keys: Vec<Vec<u8>> = numbers.map(|number| key(number, length)).collect();
        let requests: Vec<KeyedRequest> = keys.iter().cloned().map(KeyedRequest::new).collect();
        let times = options.requests.div_ceil(keys.len());
        let (library, engine) = (Library::new(KEYS)?, engine(ONE_LIMIT, KEYS)?);
        let again = |laps: Vec<f64>| laps.into_iter().map(|lap| lap / count(times)).collect();
        let points = laps(options.rounds, &keys, |key| {
            (0..times).all(|_| library.check(key))
        })?;
        growth.point(LIBRARY, count(length), again(points));
        let points = laps(options.rounds, &requests, |one| {
            (0..times).all(|_| admits(&engine, one))
        })?;
        growth.point(ENGINE, count(length), again(points));
    }
    Ok(vec![growth])
}

/// One thread and two on the same store, each with its own sequence over the same keys.
pub(crate) fn by_threads(options: &Options) -> Result<Vec<Growth>, Failure> {
    let unit = "million decisions per second";
    let mut growth = Growth::new("growth threads", "threads", unit);
    let (library, engine) = (Library::new(KEYS)?, engine(ONE_LIMIT, KEYS)?);
    let mut random = Random::new();
    let sequences: [Vec<KeyedRequest>; 2] = std::array::from_fn(|_| {
        let numbers = (0..options.requests).map(|_| random.zipf(KEYS));
        numbers
            .map(|number| KeyedRequest::new(key(number, KEY_LEN)))
            .collect()
    });
    for threads in 1..=2_usize.min(std::thread::available_parallelism()?.get()) {
        let sequences = sequences.get(..threads).unwrap_or_default();
        let check = |request: &KeyedRequest| library.check(&request.key);
        growth.point(
            LIBRARY,
            count(threads),
            parallel_laps(options.rounds, sequences, check)?,
        );
        let check = |request: &KeyedRequest| admits(&engine, request);
        growth.point(
            ENGINE,
            count(threads),
            parallel_laps(options.rounds, sequences, check)?,
        );
    }
    Ok(vec![growth])
}

/// Millions of decisions in a second, once for each round. A lap before them fills the store.
fn parallel_laps(
    rounds: usize,
    sequences: &[Vec<KeyedRequest>],
    check: impl Fn(&KeyedRequest) -> bool + Copy + Sync + Send,
) -> Result<Vec<f64>, Failure> {
    parallel_lap(sequences, check)?;
    (0..rounds)
        .map(|_| parallel_lap(sequences, check))
        .collect()
}

/// Runs the sequences at once, each on a thread of its own, and returns millions of decisions in a second.
fn parallel_lap(
    sequences: &[Vec<KeyedRequest>],
    check: impl Fn(&KeyedRequest) -> bool + Copy + Sync + Send,
) -> Result<f64, Failure> {
    let barrier = Barrier::new(sequences.len());
    let spans: Vec<Option<f64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = sequences
            .iter()
            .map(|requests| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    let watch = Stopwatch::start();
                    let is_admitted = (0..TURNS).all(|_| requests.iter().all(check));
                    is_admitted.then(|| watch.elapsed().as_secs_f64())
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or(None))
            .collect()
    });
    let slowest = spans
        .iter()
        .try_fold(0.0_f64, |most, span| Some(most.max((*span)?)));
    let slowest = slowest.ok_or("a generous quota denied")?;
    let total: usize = sequences.iter().map(Vec::len).sum();
    Ok(count(total * TURNS) / slowest / 1e6)
}

/// Bytes that can be had without pushing anything out.
fn available_memory() -> Result<u64, Failure> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes = line.and_then(|rest| rest.trim().strip_suffix("kB"));
    let kilobytes: u64 = kilobytes.ok_or("no MemAvailable")?.trim().parse()?;
    Ok(kilobytes * 1_024)
}

//! The stories of `docs/client.md` in real time: a hidden quota that drops, fifty clients that read a reported one, and a retry loop.
//!
//! Each client has a pacer of its own, as if it were a process. Must not know: how a pacer decides.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tollgate_client::{PaceRequest, PacerSettings, ResponseReader, SharedPacer};
use tollgate_testkit::process::{Process, TempFolder, free_address};

use crate::Failure;
use crate::connection::Connection;

/// 3,000 requests a minute.
pub(crate) const RATE: u64 = 50;
const STORY: Duration = Duration::from_secs(60);
const DROP: [Duration; 2] = [Duration::from_secs(20), Duration::from_secs(35)];
const RETRIES: Duration = Duration::from_secs(10);
/// The requests of each of the fifty clients.
const WORK: u64 = 30;

/// What one client saw. Admissions are counted for each tenth of a second.
pub(crate) struct Tally {
    start: Instant,
    admitted: AtomicU64,
    refused: AtomicU64,
    bins: Vec<AtomicU64>,
}

impl Tally {
    pub(crate) fn new(story: Duration) -> Arc<Self> {
        let bins = story.as_secs() * 10;
        Arc::new(Self {
            start: Instant::now(),
            admitted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            bins: (0..bins).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    fn count(&self, status: u16) {
        if status != 200 {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.admitted.fetch_add(1, Ordering::Relaxed);
        let bin = self.start.elapsed().as_millis() / 100;
        let bin = usize::try_from(bin).ok().and_then(|bin| self.bins.get(bin));
        if let Some(bin) = bin {
            bin.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counters = [&self.admitted, &self.refused];
        for counter in counters.into_iter().chain(&self.bins) {
            write!(out, "{} ", counter.load(Ordering::Relaxed))?;
        }
        Ok(())
    }
}

/// Starts a server with one quota. Returns its process, its address and its policy file.
pub(crate) fn serve(program: &Path) -> Result<(Process, SocketAddr, PathBuf), Failure> {
    let folder = TempFolder::new("client")?;
    let policy = folder.write("policy.yaml", &policy(RATE))?;
    let server = free_address()?;
    let mut command = Command::new(program);
    command.arg("serve").arg("--config").arg(&policy);
    command.args(["--listen", &server.to_string()]);
    for listener in ["--listen-grpc", "--listen-resp", "--listen-admin"] {
        command.args([listener, "off"]);
    }
    let process = Process::start("tollgate", &mut command, folder)?;
    process.until("it listens", || std::net::TcpStream::connect(server).ok())?;
    Ok((process, server, policy))
}

/// Runs the stories, one after another, and prints what came of them.
pub(crate) fn run(program: &Path) -> Result<(), Failure> {
    let (process, server, policy) = serve(program)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        // One after another: the drop of the hidden quota is a new policy, which would reduce the reported one as well.
        reported_quota(server).await?;
        hidden_quota(server, &process, &policy).await?;
        retry_loop(server).await
    })
}

pub(crate) fn policy(rate: u64) -> String {
    format!("limits: [{{ name: per-key, key: header.x-api-key, rate: {rate}/s, burst: {rate} }}]\n")
}

/// Two clients that see only the status of each response.
async fn hidden_quota(
    server: SocketAddr,
    process: &Process,
    policy_file: &Path,
) -> Result<(), Failure> {
    let clients: Vec<Arc<Tally>> = (0..2).map(|_| Tally::new(STORY)).collect();
    let mut tasks = JoinSet::new();
    for tally in &clients {
        let pacer = SharedPacer::new(PacerSettings::default());
        for _ in 0..16 {
            let connection = Connection::open(server, "hidden").await?;
            tasks.spawn(paced(connection, pacer.clone(), Arc::clone(tally), None));
        }
    }
    let start = Instant::now();
    for (at, rate) in [(DROP[0], RATE / 2), (DROP[1], RATE)] {
        tokio::time::sleep(at.saturating_sub(start.elapsed())).await;
        std::fs::write(policy_file, policy(rate))?;
        process.signal("HUP")?;
    }
    tokio::time::sleep(STORY.saturating_sub(start.elapsed())).await;
    tasks.abort_all();
    let admitted: Vec<u64> = counts(&clients, |tally| &tally.admitted);
    let refused: u64 = counts(&clients, |tally| &tally.refused).iter().sum();
    let reduced = (DROP[1] - DROP[0]).as_secs() * (RATE - RATE / 2);
    let quota = RATE * STORY.as_secs() - reduced;
    println!(
        "hidden quota of {RATE}/s, halved from {:?} to {:?}, {STORY:?}, two clients",
        DROP[0], DROP[1]
    );
    println!(
        "  quota used {:.1} %, refused {refused}, recovery {:.1} s, fairness {:.3}",
        percent(admitted.iter().sum(), quota),
        recovery(&sum_bins(&clients), DROP[1]),
        fairness(&admitted)
    );
    Ok(())
}

/// Fifty clients that read the reported limits, each with a piece of work.
async fn reported_quota(server: SocketAddr) -> Result<(), Failure> {
    let clients: Vec<Arc<Tally>> = (0..50).map(|_| Tally::new(STORY)).collect();
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for tally in &clients {
        let pacer = SharedPacer::new(PacerSettings::default());
        let connection = Connection::open(server, "reported").await?;
        tasks.spawn(paced(connection, pacer, Arc::clone(tally), Some(WORK)));
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let refused: u64 = counts(&clients, |tally| &tally.refused).iter().sum();
    let ideal = Duration::from_secs((50 * WORK - RATE) / RATE);
    println!("reported quota of {RATE}/s, 50 clients with {WORK} requests each");
    println!(
        "  {:.1} s (ideal {ideal:?}), {:.2} % refused",
        start.elapsed().as_secs_f64(),
        percent(refused, 50 * WORK + refused)
    );
    Ok(())
}

/// Two clients with four workers each that ask again at once.
async fn retry_loop(server: SocketAddr) -> Result<(), Failure> {
    let tally = Tally::new(RETRIES);
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let mut connection = Connection::open(server, "retry").await?;
        let tally = Arc::clone(&tally);
        tasks.spawn(async move {
            while let Ok(status) = connection.ask(None).await {
                tally.count(status);
            }
        });
    }
    tokio::time::sleep(RETRIES).await;
    tasks.abort_all();
    let refused = tally.refused.load(Ordering::Relaxed);
    println!("retry loop, two clients with four workers each, {RETRIES:?}");
    println!(
        "  refused {refused}: {} in a second",
        refused / RETRIES.as_secs()
    );
    Ok(())
}

/// Sends one request after another as the pacer permits: `work` admitted ones that read the limits, or without end and blind to them.
pub(crate) async fn paced(
    mut connection: Connection,
    pacer: SharedPacer,
    tally: Arc<Tally>,
    work: Option<u64>,
) -> std::io::Result<()> {
    let is_done = || work.is_some_and(|work| tally.admitted.load(Ordering::Relaxed) >= work);
    while !is_done() {
        let Ok(permit) = pacer.acquire(&PaceRequest::new("server")).await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let mut reader = ResponseReader::new(pacer.now());
        let status = connection
            .ask(work.is_some().then_some(&mut reader))
            .await?;
        tally.count(status);
        let _refusal = permit.finish(status, &reader.finish());
    }
    Ok(())
}

fn counts(clients: &[Arc<Tally>], counter: impl Fn(&Tally) -> &AtomicU64) -> Vec<u64> {
    let load = |tally: &Arc<Tally>| counter(tally).load(Ordering::Relaxed);
    clients.iter().map(load).collect()
}

/// Admissions of all clients in each tenth of a second.
fn sum_bins(clients: &[Arc<Tally>]) -> Vec<u64> {
    let bins = clients.first().map_or(0, |tally| tally.bins.len());
    let load = |tally: &Arc<Tally>, bin: usize| {
        let count = tally.bins.get(bin);
        count.map_or(0, |count| count.load(Ordering::Relaxed))
    };
    (0..bins)
        .map(|bin| clients.iter().map(|tally| load(tally, bin)).sum())
        .collect()
}

/// The seconds from the end of the drop until a second has 90 % of the quota.
pub(crate) fn recovery(bins: &[u64], drop_end: Duration) -> f64 {
    let first = usize::try_from(drop_end.as_millis() / 100).unwrap_or(0);
    let mut seconds = bins.get(first..).unwrap_or_default().windows(10);
    let bin = seconds.position(|second| second.iter().sum::<u64>() * 10 >= RATE * 9);
    bin.and_then(|bin| u32::try_from(bin).ok())
        .map_or(f64::INFINITY, |bin| f64::from(bin) / 10.0)
}

pub(crate) fn fairness(admitted: &[u64]) -> f64 {
    let sum: f64 = admitted.iter().map(|count| number(*count)).sum();
    let squares: f64 = admitted.iter().map(|count| number(*count).powi(2)).sum();
    sum * sum / (squares * number(admitted.len().try_into().unwrap_or(1)))
}

pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    number(part) / number(whole) * 100.0
}

fn number(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

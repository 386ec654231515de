//! The hidden quota at its published length, with one operating system process for each client: 15 minutes, halved for 60 s.
//!
//! Two servers run at the same time, one for two clients and one for fifty. Must not know: how a pacer decides.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::task::JoinSet;
use tollgate_client::{PacerSettings, SharedPacer};
use tollgate_testkit::process::Process;

use crate::Failure;
use crate::connection::Connection;
use crate::real_time::{RATE, Tally, fairness, paced, percent, policy, recovery, serve};

const STORY: Duration = Duration::from_secs(900);
const DROP: [Duration; 2] = [Duration::from_secs(400), Duration::from_secs(460)];
/// The study stops clients that still run this long after the story.
const GRACE: Duration = Duration::from_secs(30);
/// From the start of the first process until the story begins.
const PREPARATION: Duration = Duration::from_secs(3);

/// The server of one story, and its clients.
struct Story {
    process: Process,
    policy: PathBuf,
    clients: Vec<Child>,
}

/// Runs both stories at once, and prints what came of them.
pub(crate) fn run(program: &Path) -> Result<(), Failure> {
    let begin = SystemTime::now() + PREPARATION;
    let start = Instant::now() + PREPARATION;
    let mut stories = Vec::new();
    for clients in [2, 50] {
        stories.push(begin_story(program, clients, begin)?);
    }
    for (at, rate) in [(DROP[0], RATE / 2), (DROP[1], RATE)] {
        sleep_until(start + at);
        for story in &stories {
            std::fs::write(&story.policy, policy(rate))?;
            story.process.signal("HUP")?;
        }
    }
    sleep_until(start + STORY);
    println!(
        "hidden quota of {RATE}/s, halved from {:?} to {:?}, {STORY:?}",
        DROP[0], DROP[1]
    );
    for story in stories {
        end_story(story, start + STORY + GRACE)?;
    }
    Ok(())
}

fn begin_story(program: &Path, clients: usize, begin: SystemTime) -> Result<Story, Failure> {
    let (process, server, policy) = serve(program)?;
    let begin = begin.duration_since(UNIX_EPOCH)?.as_millis().to_string();
    let start_client = |_| {
        Command::new(std::env::current_exe()?)
            .args(["--client", &server.to_string(), &begin])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
    };
    let clients = (0..clients).map(start_client).collect::<Result<_, _>>()?;
    Ok(Story {
        process,
        policy,
        clients,
    })
}

fn end_story(mut story: Story, until: Instant) -> Result<(), Failure> {
    let (mut admitted, mut refused, mut bins) = (Vec::new(), 0, Vec::new());
    for mut client in story.clients.drain(..) {
        while client.try_wait()?.is_none() && Instant::now() < until {
            sleep_until(Instant::now() + Duration::from_millis(50));
        }
        // This does nothing to a client that has ended.
        client.kill()?;
        let output = String::from_utf8(client.wait_with_output()?.stdout)?;
        let mut counts = output.split_whitespace().map(str::parse::<u64>);
        let mut next = || counts.next().ok_or("a client ended without its counts");
        admitted.push(next()??);
        refused += next()??;
        for (bin, count) in counts.enumerate() {
            if bins.len() <= bin {
                bins.push(0);
            }
            if let Some(total) = bins.get_mut(bin) {
                *total += count?;
            }
        }
    }
    let reduced = (DROP[1] - DROP[0]).as_secs() * (RATE - RATE / 2);
    let quota = RATE * STORY.as_secs() - reduced;
    println!(
        "  {} processes: quota used {:.1} %, refused {refused} ({:.1} each), recovery {:.1} s, fairness {:.3}",
        admitted.len(),
        percent(admitted.iter().sum(), quota),
        percent(refused, admitted.len().try_into()?) / 100.0,
        recovery(&bins, DROP[1]),
        fairness(&admitted)
    );
    Ok(())
}

/// One client: sends as the pacer permits until the story ends. It prints the admitted and the refused requests, then the admitted
/// ones of each tenth of a second. `begin` is in milliseconds since 1970.
pub(crate) fn run_client(server: &str, begin: &str) -> Result<(), Failure> {
    let server: SocketAddr = server.parse()?;
    let begin = UNIX_EPOCH + Duration::from_millis(begin.parse()?);
    let wait = begin.duration_since(SystemTime::now()).unwrap_or_default();
    sleep_until(Instant::now() + wait.min(PREPARATION));
    let tally = Tally::new(STORY);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let pacer = SharedPacer::new(PacerSettings::default());
        let mut tasks = JoinSet::new();
        for _ in 0..8 {
            let (pacer, tally) = (pacer.clone(), Arc::clone(&tally));
            tasks.spawn(keep_asking(server, pacer, tally));
        }
        tokio::time::sleep(STORY).await;
        tasks.abort_all();
        Ok::<_, Failure>(())
    })?;
    println!("{tally}");
    Ok(())
}

/// The server closes connections that are idle for long.
async fn keep_asking(server: SocketAddr, pacer: SharedPacer, tally: Arc<Tally>) {
    let end = Instant::now() + STORY;
    while Instant::now() < end {
        if let Ok(connection) = Connection::open(server, "hidden").await {
            // An error of the connection: the next one.
            let _closed = paced(connection, pacer.clone(), Arc::clone(&tally), None).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a story in real time waits in real time"
)]
fn sleep_until(at: Instant) {
    std::thread::sleep(at.saturating_duration_since(Instant::now()));
}

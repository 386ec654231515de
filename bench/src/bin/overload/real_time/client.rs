//! Clients that do not wait for one another: requests are due at random instants, and each is timed from the instant at which it was due.
//!
//! Must not know: who answers.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tollgate_bench::overload::{Random, Scenario};

use super::http1::read_message;
use super::score::Outcome;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: upstream\r\n\r\n";

/// A response that takes longer counts as none.
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// When a request is due, counted from the start of the trace.
pub(super) type Arrival = Duration;

type Connection = BufReader<TcpStream>;

/// Idle connections. The one that was used last is used next.
type Pool = Arc<Mutex<Vec<Connection>>>;

/// The instants of a trace: exponentially distributed times between requests, at the demand of each stage.
pub(super) fn arrivals(scenario: &Scenario) -> Vec<Arrival> {
    let (mut random, mut all, mut begin) = (Random::new(scenario.seed), Vec::new(), 0.0);
    for stage in &scenario.stages {
        let end = begin + stage.seconds;
        let mut due = begin;
        loop {
            due += random.exponential() / stage.demand();
            if due >= end {
                break;
            }
            all.push(Duration::from_secs_f64(due));
        }
        begin = end;
    }
    all
}

/// Sends all requests of a trace to a contender. Returns what became of each, in the order in which they ended.
pub(super) async fn send_all(
    server: SocketAddr,
    start: Instant,
    schedule: Arc<[Arrival]>,
) -> Vec<Outcome> {
    let pool: Pool = Arc::default();
    let mut requests = JoinSet::new();
    for due in schedule.iter() {
        tokio::time::sleep(due.saturating_sub(start.elapsed())).await;
        requests.spawn(send(server, start, *due, Arc::clone(&pool)));
    }
    let mut outcomes = Vec::with_capacity(requests.len());
    while let Some(ended) = requests.join_next().await {
        outcomes.push(ended.unwrap_or(Outcome::Failed));
    }
    outcomes
}

async fn send(server: SocketAddr, start: Instant, due: Arrival, pool: Pool) -> Outcome {
    match tokio::time::timeout(LONGEST_WAIT, ask(server, &pool)).await {
        Ok(Ok(200)) => Outcome::Served(start.elapsed().saturating_sub(due)),
        Ok(Ok(503)) => Outcome::Refused,
        Ok(_) | Err(_) => Outcome::Failed,
    }
}

/// Asks once. Returns the status.
async fn ask(server: SocketAddr, pool: &Pool) -> io::Result<u16> {
    let idle = pool.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let mut connection = match idle {
        Some(connection) => connection,
        None => {
            let stream = TcpStream::connect(server).await?;
            stream.set_nodelay(true)?;
            BufReader::new(stream)
        }
    };
    connection.write_all(REQUEST).await?;
    let Some((first, closes)) = read_message(&mut connection).await? else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    if !closes {
        let mut pool = pool.lock().unwrap_or_else(PoisonError::into_inner);
        pool.push(connection);
    }
    let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
    status.ok_or_else(|| io::Error::other("a response without a status"))
}

#[cfg(test)]
mod tests {
    use tollgate_bench::overload::gcl;

    use super::*;

    #[test]
    fn requests_are_due_in_order_at_the_demand_of_the_trace() {
        let all = arrivals(&gcl(80.0).scaled_down(100));
        assert!(all.is_sorted());
        assert!((7_700..8_300).contains(&all.len()), "{}", all.len());
        let of = |from: u64, to: u64| {
            let is_between = |due: &&Duration| (from..to).contains(&due.as_secs());
            all.iter().filter(is_between).count()
        };
        for from in (0..80).step_by(20) {
            let count = of(from, from + 20);
            assert!((1_800..2_200).contains(&count), "{count} from {from} s on");
        }
    }
}

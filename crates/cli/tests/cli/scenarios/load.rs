//! Load: clients on threads that send checks during a fault and record the responses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tollgate_testkit::history::{History, Operation, RecordedReply, RecordedVerdict, Recorder};
use tollgate_testkit::redis::until;

use super::client::Client;

/// The pause of a client between two requests. All clients together send a few hundred requests per second.
const PACE: Duration = Duration::from_millis(5);

/// Clients that run until `end`.
pub(super) struct Load {
    is_over: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    recorder: Arc<Recorder>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts `each` clients per server. Each client uses the keys in turn.
    pub(super) fn start(servers: &[SocketAddr], each: usize, keys: &[&str]) -> Self {
        let mut load = Self {
            is_over: Arc::default(),
            rounds: Arc::default(),
            recorder: Arc::new(Recorder::of_process(1)),
            clients: Vec::new(),
        };
        for (number, server) in servers
            .iter()
            .cycle()
            .take(servers.len() * each)
            .enumerate()
        {
            let (is_over, rounds) = (Arc::clone(&load.is_over), Arc::clone(&load.rounds));
            let (recorder, mut client) = (Arc::clone(&load.recorder), Client::new(*server));
            let mut keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
            let first = number % keys.len();
            keys.rotate_left(first);
            load.clients.push(std::thread::spawn(move || {
                for key in keys.iter().cycle() {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    ask(&mut client, key, &recorder);
                    rounds.fetch_add(1, Ordering::Relaxed);
                    std::thread::park_timeout(PACE);
                }
            }));
        }
        load
    }

    /// Waits for this many further responses.
    pub(super) fn wait_for_answers(&self, rounds: u64) {
        let goal = self.rounds.load(Ordering::Relaxed) + rounds;
        until("the load goes on", || {
            self.rounds.load(Ordering::Relaxed) >= goal
        });
    }

    /// Waits until this many requests in a row were decided by the store.
    pub(super) fn until_decided_by_the_store(&self, in_a_row: usize) {
        until("the store decides again", || {
            let history = self.recorder.history();
            let last = history.records.iter().rev().take(in_a_row);
            history.records.len() >= in_a_row && last.into_iter().all(|record| !record.is_degraded)
        });
    }

    /// Waits until this many requests in a row were decided without the store.
    pub(super) fn until_decided_without(&self, in_a_row: usize) {
        until("servers decide by themselves", || {
            let history = self.recorder.history();
            let last = history.records.iter().rev().take(in_a_row);
            history.records.len() >= in_a_row && last.into_iter().all(|record| record.is_degraded)
        });
    }

    pub(super) fn history(&self) -> History {
        self.recorder.history()
    }

    pub(super) fn end(self) -> History {
        self.is_over.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().unwrap();
        }
        self.recorder.history()
    }
}

/// Checks one unit and records the response.
pub(super) fn ask(client: &mut Client, key: &str, recorder: &Recorder) {
    let pending = recorder.invoke();
    let reply = match client.check(key) {
        Some(answer) => answer.to_recorded(),
        None => RecordedReply::only(RecordedVerdict::Lost),
    };
    recorder.complete(&pending, Operation::Spend, &[(key, 1)], reply);
}

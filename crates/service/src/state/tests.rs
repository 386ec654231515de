//! A restart: what survives it, what does not, and what becomes of a file that cannot be used.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use tollgate_core::{Nanos, Timestamp};
use tollgate_engine::control::{Attribution, Halt, Switch};
use tollgate_engine::{CheckMode, CheckOptions};
use tollgate_policy::model::Policy;
use tollgate_policy::source::SourceFormat;
use tollgate_store::{ManualClock, MemoryStore, SnapshotError};
use tollgate_testkit::test_requests::TestCaller;

use super::*;
use crate::tickets::TakenTicket;

const START: Timestamp = Timestamp::from_secs(1_700_000_000);
const BY: Attribution<'_> = Attribution {
    who: "ada",
    why: "a test",
};

type TestService = RateLimitService<Arc<ManualClock>>;

fn policy(text: &str) -> Policy {
    tollgate_policy::load(text, "policy.yaml", SourceFormat::Yaml).unwrap()
}

/// A service and its clock.
struct Process {
    service: TestService,
    throttle: MemoryStore<Arc<ManualClock>>,
    clock: Arc<ManualClock>,
}

impl Process {
    fn start(text: &str) -> Self {
        let clock = Arc::new(ManualClock::at(START));
        let initial = InitialState::empty(1_000, Arc::clone(&clock)).unwrap();
        let service = TestService::with_state(&policy(text), initial, Secret::random()).unwrap();
        let throttle = MemoryStore::with_clock(1_000, Arc::clone(&clock)).unwrap();
        Self {
            service,
            throttle,
            clock,
        }
    }

    fn saved(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_state(&mut bytes, &self.service, &self.throttle).unwrap();
        bytes
    }

    /// The next process, with another policy and another number of keys.
    fn restarted_with(&self, text: &str, keys: usize, bytes: &[u8]) -> Self {
        let clock = Arc::new(ManualClock::at(self.service.now()));
        let restored = read_state(&mut &*bytes, keys, || Arc::clone(&clock)).unwrap();
        let secret = restored.process.secret();
        assert_eq!(secret, self.service.secret());
        let service = TestService::with_state(&policy(text), restored.initial, secret).unwrap();
        service.restore(restored.process);
        Self {
            service,
            throttle: restored.throttle,
            clock,
        }
    }

    fn is_admitted(&self, name: &str) -> bool {
        let caller = TestCaller::named(name);
        self.service.engine().decide(&caller).is_admitted()
    }

    fn remaining(&self, name: &str) -> u64 {
        let verdict = self.service.engine().peek(&TestCaller::named(name));
        verdict.limits()[0].status.remaining
    }

    fn issue(&self, name: &str) -> Option<u128> {
        let options = CheckOptions::new(CheckMode::Reserve);
        let caller = TestCaller::named(name);
        let mut verdict = self.service.engine().check(&caller, options);
        self.service.issue_ticket(&mut verdict)
    }

    async fn settle(&self, id: u128, cost: u64) -> bool {
        match self.service.take_ticket(id).await {
            TakenTicket::Open(ticket) => {
                self.service.settle(ticket, cost).await.unwrap();
                true
            }
            _ => false,
        }
    }
}

fn limit(fields: &str) -> String {
    format!("limits:\n  - name: api\n    key: header.user\n    {fields}\n")
}

#[test]
fn counters_and_operator_settings_survive_a_restart_with_another_number_of_keys() {
    let text = limit("rate: 5/day");
    let before = Process::start(&text);
    assert!((0..5).all(|_| before.is_admitted("alice")));
    assert!(before.is_admitted("bob"));
    let control = before.service.engine().control();
    let carol = TestCaller::named("carol");
    control.block_key("api", &["carol"], None, BY).unwrap();
    control
        .override_key("api", &["dora"], "9/day", None, BY)
        .unwrap();
    for keys in [1_000, 77, 50_000] {
        let after = before.restarted_with(&text, keys, &before.saved());
        assert!(!after.is_admitted("alice"), "{keys}");
        assert_eq!(after.remaining("bob"), 4);
        assert!(!after.service.engine().decide(&carol).is_admitted());
        assert_eq!(after.remaining("dora"), 9);
        let events = after.service.engine().control().events();
        assert_eq!(events.last().unwrap().who.as_ref(), "tollgate");
    }
    control.switch(None, Switch::halted(Halt::Off), BY).unwrap();
    let halted = before.restarted_with(&text, 1_000, &before.saved());
    assert!(halted.is_admitted("alice"), "the kill switch stays thrown");
}

#[test]
fn a_policy_that_changed_meanwhile_finds_its_states_by_the_identity_of_its_limits() {
    let before = Process::start(&limit("rate: 10/h\n    algorithm: sliding_window"));
    assert!((0..8).all(|_| before.is_admitted("alice")));
    let bytes = before.saved();
    let with = |fields: &str| before.restarted_with(&limit(fields), 1_000, &bytes);
    let counter = "algorithm: sliding_window";
    assert_eq!(
        with(&format!("rate: 12/h\n    {counter}")).remaining("alice"),
        4
    );
    let longer = with(&format!("rate: 20/day\n    {counter}"));
    assert_eq!(
        longer.remaining("alice"),
        12,
        "another length keeps the estimate"
    );
    assert_eq!(
        with("rate: 10/h").remaining("alice"),
        10,
        "another algorithm"
    );
    // A limit that is gone keeps its states for a policy that has it again.
    let other = "limits:\n  - name: other\n    key: header.user\n    rate: 10/h\n";
    let without = before.restarted_with(other, 1_000, &bytes);
    assert_eq!(without.remaining("alice"), 10);
    let again = limit(&format!("rate: 10/h\n    {counter}"));
    let again = without.restarted_with(&again, 1_000, &without.saved());
    assert_eq!(again.remaining("alice"), 2);
}

/// A ticket that was issued before the restart is settled after it, once. A lease that no ticket names belonged to a connection or
/// a call of the earlier process, and is released.
#[tokio::test]
async fn tickets_survive_a_restart_and_leases_of_connections_are_released() {
    let text = "limits:\n  - name: jobs\n    key: header.user\n    concurrency: 3\n  - name: api\n    key: header.user\n    rate: 100/h\n    cost: 10\n";
    let before = Process::start(text);
    let ticket = before.issue("alice").unwrap();
    let settled = before.issue("alice").unwrap();
    assert!(before.settle(settled, 1).await);
    // Held by a connection: nobody has its id.
    let held = before.service.engine().decide(&TestCaller::named("alice"));
    assert!(held.is_admitted());
    assert_eq!(before.remaining("alice"), 1);
    let after = before.restarted_with(text, 1_000, &before.saved());
    assert_eq!(after.remaining("alice"), 2);
    assert!(after.settle(ticket, 4).await);
    assert_eq!(after.remaining("alice"), 3);
    let units = |process: &Process| {
        let verdict = process.service.engine().peek(&TestCaller::named("alice"));
        verdict.limits()[1].status.remaining
    };
    assert_eq!(units(&after), 100 - 1 - 4 - 10);
    assert!(!after.settle(ticket, 0).await, "a ticket is settled once");
    assert!(!after.settle(settled, 0).await);
    let known = after.service.take_ticket(settled).await;
    assert!(matches!(known, TakenTicket::AlreadySettled));
    // After another restart it is still settled, and after its time it is forgotten.
    let third = after.restarted_with(text, 1_000, &after.saved());
    assert!(!third.settle(ticket, 0).await);
    third.clock.advance(Nanos::from_secs(601));
    let fourth = third.restarted_with(text, 1_000, &third.saved());
    let known = fourth.service.take_ticket(ticket).await;
    assert!(matches!(known, TakenTicket::Unknown));
}

/// Calls `between` once the stores begin to be written.
struct Between<'a, F>(Vec<u8>, Option<F>, &'a Process);

impl<F: FnOnce(&Process)> Write for Between<'_, F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(between) = self.1.take() {
            between(self.2);
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// If a ticket was saved as open although its charge was refunded before the store was written, it would be refunded twice. If a
/// ticket was issued after the store was written, its charge would not be in the saved state.
#[test]
fn i02_a_ticket_issued_or_settled_while_saving_refunds_nothing_after_a_restart() {
    let text = limit("rate: 100/h\n    cost: 10");
    let before = Process::start(&text);
    let settled = before.issue("alice").unwrap();
    let open = before.issue("alice").unwrap();
    let mut issued = None;
    let mut out = Between(
        Vec::new(),
        Some(|process: &Process| {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            assert!(runtime.unwrap().block_on(process.settle(settled, 0)));
            issued = process.issue("bob");
        }),
        &before,
    );
    write_state(&mut out, &before.service, &before.throttle).unwrap();
    let bytes = out.0;
    let after = before.restarted_with(&text, 1_000, &bytes);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let settle = |id| runtime.block_on(after.settle(id, 0));
    assert!(!settle(settled) && !settle(issued.unwrap()));
    assert!(settle(open));
    assert_eq!(after.remaining("alice"), 100);
}

#[test]
fn a_state_that_is_damaged_at_any_byte_or_cut_off_anywhere_is_refused() {
    let process = Process::start(&limit("rate: 5/day"));
    let clock = Arc::clone(&process.clock);
    let read = |bytes: &[u8]| read_state(&mut &*bytes, 1_000, || Arc::clone(&clock)).err();
    assert!(process.is_admitted("alice") && process.issue("bob").is_some());
    let whole = process.saved();
    assert!(read(&whole).is_none());
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 + u8::try_from(at % 255).unwrap();
        assert!(read(&damaged).is_some(), "byte {at}");
        let cut = read(&whole[..at]);
        assert!(
            matches!(cut, Some(SnapshotError::Truncated)),
            "{at} {cut:?}"
        );
    }
    let longer = [&*whole, b"0"].concat();
    assert!(matches!(read(&longer), Some(SnapshotError::Corrupted)));
    assert!(matches!(
        read(b"#!/bin/sh\nexit"),
        Some(SnapshotError::NotASnapshot)
    ));
}

/// A folder that is deleted on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = format!("tollgate-state-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.join("state")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn a_full_disk_is_counted_and_leaves_the_previous_file() {
    let folder = Folder::new("full");
    let file = StateFile::open(&folder.file()).unwrap();
    file.save(START, |out| out.write_all(b"old")).unwrap();
    for _ in 0..3 {
        let full = file.save(START.after(Nanos::SECOND), |out| {
            out.write_all(b"new")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(full.unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
    let status = file.status();
    assert_eq!((status.saves(), status.failed_saves()), (1, 3));
    assert_eq!(status.saved_at(), START);
    assert!(status.error().is_some());
    assert_eq!(fs::read(folder.file()).unwrap(), b"old");
    file.save(START, |out| out.write_all(b"new")).unwrap();
    assert_eq!(status.error(), None);
}

#[test]
fn a_state_file_has_one_process_and_at_most_ten_damaged_ones_are_kept() {
    let folder = Folder::new("damaged");
    let file = StateFile::open(&folder.file()).unwrap();
    let second = StateFile::open(&folder.file()).unwrap_err().to_string();
    assert!(second.contains("another process uses the state file"));
    let load = || file.load(read_process_state);
    assert!(matches!(load(), LoadOutcome::Missing));
    for n in 0..15 {
        fs::write(folder.file(), n.to_string()).unwrap();
        assert!(matches!(load(), LoadOutcome::Damaged(_)));
        file.keep_aside().unwrap();
    }
    assert!(file.status().was_damaged());
    let kept = |name: &str| fs::read_to_string(folder.0.join(name)).unwrap();
    assert_eq!(
        (kept("state.damaged"), kept("state.damaged.9")),
        ("0".into(), "14".into())
    );
    // Ten of them, and the lock.
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 11);
    drop(file);
    assert!(StateFile::open(&folder.file()).is_ok());
    let nowhere = StateFile::open(&folder.0.join("none/state")).unwrap_err();
    assert!(nowhere.to_string().contains("cannot lock"), "{nowhere}");
}

/// `--state /var/lib/tollgate` renamed that folder, with all that was in it, as if it were a damaged file.
#[test]
fn a_folder_is_no_state_file_and_stays_where_it_is() {
    let folder = Folder::new("folder");
    fs::create_dir(folder.file()).unwrap();
    let error = StateFile::open(&folder.file()).unwrap_err().to_string();
    assert!(error.contains("is not a regular file"), "{error}");
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
}

/// A disk error at the start counted as damage: the intact file was renamed, and every quota began anew.
#[test]
fn a_disk_that_fails_is_no_damage_and_the_file_stays() {
    let folder = Folder::new("unreadable");
    fs::write(folder.file(), "intact").unwrap();
    fs::write(folder.0.join(".state.7.0.new"), "half").unwrap();
    let file = StateFile::open(&folder.file()).unwrap();
    for kind in [io::ErrorKind::Other, io::ErrorKind::PermissionDenied] {
        let loaded = file.load::<()>(move |_| Err(SnapshotError::Io(kind.into())));
        assert!(matches!(loaded, LoadOutcome::Unreadable(error) if error.kind() == kind));
    }
    assert!(!file.status().was_damaged());
    assert_eq!(fs::read(folder.file()).unwrap(), b"intact");
    assert!(!folder.0.join(".state.7.0.new").exists(), "a crash left it");
}

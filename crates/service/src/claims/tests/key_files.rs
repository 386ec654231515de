//! The file with the keys: rotation, half-written and invalid versions, and what is wrong at the start.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::signer::Signer;
use super::*;
use crate::KeyFileWatcher;
use crate::reload::{ReloadOutcome, WatchTiming};
use tollgate_core::Nanos;

const SETTLE: Duration = Duration::from_secs(1);

/// A folder for one test, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("tollgate-keys-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.join("jwks.json")
    }

    fn write(&self, keys: &[String]) {
        fs::write(self.file(), format!(r#"{{"keys": [{}]}}"#, keys.join(", "))).unwrap();
    }

    fn policy(&self) -> String {
        who(&format!("{{ keys_file: {} }}", self.file().display()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn keys_rotate_and_tokens_of_a_removed_key_are_refused_although_they_were_cached() {
    let folder = Folder::new("rotation");
    let (old, new) = (Signer::eddsa(1), Signer::es256());
    folder.write(&[old.jwk("old")]);
    let (service, clock) = service(&folder.policy());
    let reload = || service.claims().reload_keys(SETTLE, service.now()).unwrap();
    let settle = || clock.advance(Nanos::from(SETTLE));
    let (of_old, of_new) = (
        caller(&old.good("old", "ada")),
        caller(&new.good("new", "bob")),
    );
    assert_eq!(sub_of(&service, &of_old).as_deref(), Some("ada"));
    assert_eq!(sub_of(&service, &of_new), None);
    assert_eq!(reload(), ReloadOutcome::Unchanged);

    folder.write(&[old.jwk("old"), new.jwk("new")]);
    assert_eq!(
        reload(),
        ReloadOutcome::Settling,
        "it may still be written to"
    );
    assert_eq!(sub_of(&service, &of_new), None);
    settle();
    assert_eq!(reload(), ReloadOutcome::Reloaded(2));
    assert_eq!(sub_of(&service, &of_old).as_deref(), Some("ada"));
    assert_eq!(
        sub_of(&service, &of_new).as_deref(),
        Some("bob"),
        "the cached refusal is gone"
    );

    folder.write(&[new.jwk("new")]);
    assert_eq!(reload(), ReloadOutcome::Settling);
    settle();
    assert_eq!(reload(), ReloadOutcome::Reloaded(3));
    assert_eq!(sub_of(&service, &of_old), None, "revoked");
    assert_eq!(sub_of(&service, &of_new).as_deref(), Some("bob"));
}

#[test]
fn half_written_invalid_and_missing_files_leave_the_keys_in_force() {
    let folder = Folder::new("invalid");
    let signer = Signer::hs256(super::signer::SHARED_SECRET);
    folder.write(&[signer.jwk("k")]);
    let whole = fs::read(folder.file()).unwrap();
    let (service, clock) = service(&folder.policy());
    let of_key = caller(&signer.good("k", "ada"));
    let reload = || {
        let now = || service.now();
        let first = service.claims().reload_keys(SETTLE, now()).unwrap();
        clock.advance(Nanos::from(SETTLE));
        match first {
            ReloadOutcome::Settling => service.claims().reload_keys(SETTLE, now()).unwrap(),
            other => other,
        }
    };
    let broken: [&[u8]; 7] = [
        &whole[..whole.len() / 2],
        b"",
        b"{\"keys\": []}",
        b"{\"keys\": [{\"kty\": \"weird\"}]}",
        b"{\"keys\": [{\"kty\": \"oct\", \"alg\": \"HS256\", \"k\": \"c2hvcnQ\"}]}",
        b"{\"keys\": [{\"kty\": \"OKP\", \"crv\": \"Ed25519\", \"x\": \"!\"}]}",
        b"{\"keys\": [1]}",
    ];
    for text in broken {
        fs::write(folder.file(), text).unwrap();
        assert_eq!(
            reload(),
            ReloadOutcome::Rejected,
            "{}",
            String::from_utf8_lossy(text)
        );
        assert_eq!(sub_of(&service, &of_key).as_deref(), Some("ada"));
    }
    fs::remove_file(folder.file()).unwrap();
    assert_eq!(reload(), ReloadOutcome::Rejected);
    assert_eq!(sub_of(&service, &of_key).as_deref(), Some("ada"));
    fs::write(folder.file(), &whole).unwrap();
    assert_eq!(reload(), ReloadOutcome::Unchanged);
}

#[test]
fn a_policy_whose_keys_cannot_be_used_does_not_start_and_says_why() {
    let folder = Folder::new("start");
    let clock = || Arc::new(ManualClock::at(Timestamp::from_secs(START)));
    let error = |text: &str| {
        let service = RateLimitService::new(&load(text), 1_000, clock(), Secret::random());
        service.unwrap_err().to_string()
    };
    assert!(error(&folder.policy()).contains("jwks.json cannot be used: "));
    fs::create_dir(folder.file()).unwrap();
    assert!(error(&folder.policy()).contains("it is a directory, not a regular file"));
    let inline = who("{ keys: [{ kty: EC, crv: P-256, x: AA, y: AA }] }");
    assert!(error(&inline).contains("the key is invalid: `x` or `y` has the wrong length"));
    let other = who("{ keys: [{ kty: RSA, alg: none, n: AA, e: AQAB }] }");
    assert!(error(&other).contains("the key cannot verify a signature"));
    let short = who("{ keys: [{ kty: RSA, n: AA, e: AQAB }] }");
    assert!(error(&short).contains("2048 to 8192 bits"));
}

#[test]
fn a_reload_with_the_same_settings_keeps_the_cache_and_others_do_not() {
    let signer = Signer::eddsa(1);
    let text = who(&format!(
        "{{ keys: [{}], audiences: api }}",
        signer.jwk("k")
    ));
    let (service, _) = service(&text);
    let token = caller(&signer.good("k", "ada"));
    let verified = || service.claims().counters().verified();
    assert_eq!(sub_of(&service, &token).as_deref(), Some("ada"));
    service
        .replace(&load(&text.replace("1000/s", "999/s")))
        .unwrap();
    assert_eq!(sub_of(&service, &token).as_deref(), Some("ada"));
    assert_eq!(verified(), 1);
    service
        .replace(&load(&text.replace("audiences: api", "audiences: web")))
        .unwrap();
    assert_eq!(
        sub_of(&service, &token),
        None,
        "a cached token is not believed under other settings"
    );
    service
        .replace(&load(
            "limits: [{ name: sub-forged, match: { claim.sub: forged }, rate: 1/s }]",
        ))
        .unwrap();
    assert_eq!(
        sub_of(&service, &token).as_deref(),
        Some("forged"),
        "without `jwt`, callers vouch for claims"
    );
}

/// A policy without `jwt` was replaced by one with a `keys_file`, and the file was not watched until the next start.
#[test]
fn a_keys_file_that_a_later_policy_introduces_is_watched_from_then_on() {
    let (first, second) = (Folder::new("later-first"), Folder::new("later-second"));
    let (old, new) = (Signer::eddsa(1), Signer::es256());
    first.write(&[old.jwk("old")]);
    second.write(&[old.jwk("old")]);
    let (service, clock) = service("limits: [{ name: all, rate: 1000/s }]");
    let service = Arc::new(service);
    let timing = WatchTiming {
        settle: Duration::from_millis(1),
        ..WatchTiming::default()
    };
    let watcher = KeyFileWatcher::new(Arc::clone(&service), timing);
    watcher.follow_policy().unwrap();
    assert_eq!(watcher.watched_path(), None);
    for folder in [&first, &second] {
        service.replace(&load(&folder.policy())).unwrap();
        watcher.follow_policy().unwrap();
        assert_eq!(watcher.watched_path(), Some(folder.file()));
        let token = caller(&new.good("new", "bob"));
        assert_eq!(sub_of(&service, &token), None);
        folder.write(&[new.jwk("new")]);
        // The watcher looks on its own thread, and the settle time passes on the service's clock.
        let (_never, tick) = std::sync::mpsc::sync_channel::<()>(1);
        let looks = (0..3_000).any(|_| {
            clock.advance(Nanos::from_millis(10));
            let _timeout = tick.recv_timeout(Duration::from_millis(10));
            sub_of(&service, &token).is_some()
        });
        assert!(looks, "it is not watched");
    }
    service
        .replace(&load("limits: [{ name: all, rate: 1000/s }]"))
        .unwrap();
    watcher.follow_policy().unwrap();
    assert_eq!(watcher.watched_path(), None);
}

//! Values that differ between clients: scopes, partition keys and jitter.

use tollgate_core::Nanos;
use tollgate_http::Dialect;

use super::{app, check, field, header_fields};

#[test]
fn discord_fields_name_the_scope_and_shared_buckets_have_one_name() {
    let (app, _clock) = app("
limits:
  - { name: mine, match: { path: /mine }, key: header.user, rate: 1/h }
  - { name: everywhere, match: { path: /all }, key: [header.user, route], rate: 1/h }
  - { name: ours, match: { path: /ours }, rate: 1/h }
  - { name: read, match: { path: /read }, key: header.user, rate: 1/h, bucket: files }
  - { name: write, match: { path: /write }, key: header.user, rate: 1/h, bucket: files }
");
    let app = app.with_dialects(Dialect::Discord.into());
    let refused = |user: &str, path: &str| {
        let says = [("header.user", user), ("path", path)];
        check(&app, &says, 1);
        let decided = check(&app, &says, 1);
        assert!(!decided.is_admitted(), "{path}");
        header_fields(&app, &decided)
    };
    for (path, scope) in [("/mine", "user"), ("/all", "user"), ("/ours", "shared")] {
        let fields = refused("a", path);
        assert_eq!(
            field(&fields, "x-ratelimit-scope").as_deref(),
            Some(scope),
            "{path}"
        );
        assert_eq!(field(&fields, "x-ratelimit-global"), None);
    }
    let buckets = ["/read", "/write"].map(|path| field(&refused("b", path), "x-ratelimit-bucket"));
    assert_eq!(buckets[0].as_ref().unwrap().len(), 16);
    assert_eq!(buckets[0], buckets[1], "one bucket, one name");
    assert_ne!(
        buckets[0],
        field(&refused("c", "/mine"), "x-ratelimit-bucket")
    );
}

/// One client has the same key under all limits with the same key attributes, another client has another, and limits without
/// keys have none.
#[test]
fn partition_keys_are_digests_and_reveal_no_key() {
    let (app, _clock) = app("
limits:
  - { name: all, rate: 100/s }
  - { name: user, key: header.user, rate: 100/s }
  - { name: day, key: header.user, rate: 1000/d }
");
    let keys = |user: &str| -> Vec<Option<String>> {
        let fields = header_fields(&app, &check(&app, &[("header.user", user)], 1));
        let policy = field(&fields, "ratelimit-policy").unwrap();
        assert!(!policy.contains(user), "{policy}");
        let key = |item: &str| item.split_once(";pk=").map(|(_, key)| key.to_owned());
        let of = |name: &str| -> Vec<Option<String>> {
            field(&fields, name).unwrap().split(", ").map(key).collect()
        };
        assert_eq!(of("ratelimit"), of("ratelimit-policy"));
        of("ratelimit")
    };
    let (alice, bob) = (keys("alice-the-first"), keys("bob-the-second"));
    assert_eq!(alice[0], None);
    assert!(alice[1].is_some() && alice[1] == alice[2]);
    assert_eq!(alice, keys("alice-the-first"));
    assert_ne!(alice[1], bob[1]);
}

/// Jitter only adds, at most the configured amount, and varies between denials.
#[test]
fn jitter_spreads_retries_and_never_shortens_them() {
    let (app, _clock) = app("limits: [{ name: all, rate: 1/m }]");
    let app = app.with_retry_jitter(Nanos::from_secs(20));
    let admitted = header_fields(&app, &check(&app, &[], 1));
    assert_eq!(
        field(&admitted, "ratelimit").as_deref(),
        Some(r#""all";r=0;t=60"#)
    );
    let mut waits = Vec::new();
    for _ in 0..50 {
        let fields = header_fields(&app, &check(&app, &[], 1));
        let retry: u64 = field(&fields, "retry-after").unwrap().parse().unwrap();
        assert_eq!(
            field(&fields, "ratelimit"),
            Some(format!(r#""all";r=0;t={retry}"#))
        );
        assert!((60..=80).contains(&retry), "{retry}");
        waits.push(retry);
    }
    waits.sort_unstable();
    waits.dedup();
    assert!(waits.len() > 10, "{waits:?}");
}

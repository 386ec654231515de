//! Header fields follow the quota that decided.

use tollgate_engine::control::Attribution;

use super::{app, check, field, header_fields};

fn policy_of(says: &[(&str, &str)], text: &str) -> String {
    let (app, _clock) = app(text);
    let fields = header_fields(&app, &check(&app, says, 1));
    field(&fields, "ratelimit-policy").unwrap()
}

/// Quotas were once identified by their largest admission, so the slow tier reported the window of the limit's own quota:
/// twenty in two seconds instead of twenty in twenty.
#[test]
fn tiers_with_one_burst_and_different_rates_have_windows_of_their_own() {
    let text = "
limits:
  - name: api
    rate: 10/s
    burst: 20
    tiers: { by: header.plan, slow: { rate: 1/s, burst: 20 }, fast: { rate: 20/s, burst: 20 } }
";
    for (plan, policy) in [
        ("none", r#""api";q=20;w=2"#),
        ("slow", r#""api";q=20;w=20"#),
        ("fast", r#""api";q=20;w=1"#),
    ] {
        assert_eq!(policy_of(&[("header.plan", plan)], text), policy);
    }
}

/// Computed quotas are in no list, so their window and unit were once missing.
#[test]
fn a_computed_quota_has_its_window_and_its_unit() {
    let text = "
limits:
  - { name: app, rate: \"1000/h + 500/h × header.repos, at most 3000/h\", algorithm: fixed_window, unit: tokens }
";
    for (repos, quota) in [("0", 1_000), ("1", 1_500), ("3", 2_500), ("99", 3_000)] {
        let policy = format!(r#""app";q={quota};qu="tokens";w=3600"#);
        assert_eq!(policy_of(&[("header.repos", repos)], text), policy);
    }
}

/// One after another on one API: the fields of the first client must not be sent to the second.
#[test]
fn clients_with_different_quotas_each_get_their_own_fields() {
    let (app, _clock) = app("
limits:
  - name: api
    key: header.user
    rate: \"100/m + 10/m × header.seats, at most 500/m\"
    tiers: { by: header.plan, free: 5/m }
    overrides: [{ key: vip, rate: 50/s }]
");
    let policy = |user: &str, plan: &str, seats: &str| {
        let says = [
            ("header.user", user),
            ("header.plan", plan),
            ("header.seats", seats),
        ];
        let policy = field(
            &header_fields(&app, &check(&app, &says, 1)),
            "ratelimit-policy",
        )
        .unwrap();
        policy.split(";pk=").next().unwrap().to_owned()
    };
    for _ in 0..3 {
        assert_eq!(policy("a", "", "2"), r#""api";q=120;w=60"#);
        assert_eq!(policy("b", "", "7"), r#""api";q=170;w=60"#);
        assert_eq!(policy("c", "free", "7"), r#""api";q=5;w=60"#);
        assert_eq!(policy("vip", "free", "7"), r#""api";q=50;w=1"#);
    }
}

/// Waiting enlarges the internal bucket, which must not be visible.
#[test]
fn a_limit_that_delays_reports_its_own_quota() {
    let text = "limits: [{ name: api, rate: 2/s, wait: 1m }]";
    assert_eq!(policy_of(&[], text), r#""api";q=2;w=1"#);
}

#[test]
fn concurrency_has_neither_window_nor_reset_and_months_have_no_window() {
    let (app, _clock) = app("
limits:
  - { name: in-flight, concurrency: 2 }
  - { name: monthly, rate: 1000/month, algorithm: fixed_window }
");
    let fields = header_fields(&app, &check(&app, &[], 1));
    let policy = r#""in-flight";q=2;qu="concurrent-requests", "monthly";q=1000"#;
    assert_eq!(field(&fields, "ratelimit-policy").as_deref(), Some(policy));
    let limit = field(&fields, "ratelimit").unwrap();
    assert!(
        limit.starts_with(r#""in-flight";r=1, "monthly";r=999;t="#),
        "{limit}"
    );
}

/// The longest names that a policy may have.
#[test]
fn a_level_with_the_longest_names_is_reported_too() {
    let (name, level) = ("n".repeat(64), "l".repeat(64));
    let text = format!(
        "
limits:
  - name: {name}
    levels: [{{ name: {level}, key: header.org, rate: 5/s }}]
"
    );
    let policy = policy_of(&[("header.org", "o")], &text);
    assert!(
        policy.starts_with(&format!(r#""{name}/{level}";q=5;w=1"#)),
        "{policy}"
    );
}

/// A verdict from before a reload is rendered with the policy that it was decided by.
#[test]
fn a_reload_between_decision_and_rendering_changes_no_field() {
    let (app, _clock) = app("limits: [{ name: before, rate: 5/s }]");
    let early = check(&app, &[], 1);
    let other =
        crate::harness::policy("limits: [{ name: first, rate: 9/s }, { name: after, rate: 7/m }]");
    app.service().replace(&other).unwrap();
    let late = check(&app, &[], 1);
    let policy = |decided| field(&header_fields(&app, decided), "ratelimit-policy").unwrap();
    for _ in 0..2 {
        assert_eq!(policy(&late), r#""first";q=9;w=1, "after";q=7;w=60"#);
        assert_eq!(policy(&early), r#""before";q=5;w=1"#);
    }
}

#[test]
fn a_quota_override_is_reported_with_its_window() {
    let (app, _clock) = app("limits: [{ name: api, key: header.user, rate: 10/s, unit: tokens }]");
    let by = Attribution {
        who: "ada",
        why: "a test",
    };
    let control = app.engine().control();
    control
        .override_key("api", &["carol"], "50/m", None, by)
        .unwrap();
    for (user, policy) in [
        ("carol", r#""api";q=50;qu="tokens";w=60;pk=:"#),
        ("dora", r#""api";q=10;qu="tokens";w=1;pk=:"#),
    ] {
        let fields = header_fields(&app, &check(&app, &[("header.user", user)], 1));
        let field = field(&fields, "ratelimit-policy").unwrap();
        assert!(field.starts_with(policy), "{field}");
    }
}

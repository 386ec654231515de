//! Properties that hold for every policy, from the file to the field: an independent parser reads every field, and the wait of
//! every denial is long enough.
//!
//! Policies and requests are generated from seeds. Tests whose names start with `control_` give the checkers wrong input.

use sfv::{Dictionary, FieldType as _, Item, List, ListEntry, Parser};
use tollgate_core::{Nanos, Outcome};
use tollgate_engine::{EnforcementMode, Verdict};
use tollgate_http::Dialect;
use tollgate_policy::rules::{MeterRole, Rules};
use tollgate_policy::source::SourceFormat;

use super::{app, check, field, header_fields};

/// Random numbers from a seed (splitmix64).
struct TestRng(u64);

impl TestRng {
    const fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % bound
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let len = u64::try_from(from.len()).unwrap();
        from[usize::try_from(self.below(len)).unwrap()]
    }
}

const SPANS: [&str; 4] = ["s", "m", "h", "d"];

fn rate(dice: &mut TestRng) -> String {
    format!("{}/{}", 1 + dice.below(9), dice.pick(&SPANS))
}

/// The text of a limit. Invalid combinations are generated again.
fn limit(dice: &mut TestRng, name: u64) -> String {
    let mut text = format!("  - name: limit-{name}\n");
    let mut say = |line: String| text.push_str(&format!("    {line}\n"));
    match dice.below(3) {
        0 => {}
        1 => say("key: header.user".to_owned()),
        _ => say("key: [header.user, header.plan]".to_owned()),
    }
    if dice.below(8) == 0 {
        say(format!("concurrency: {}", 1 + dice.below(4)));
        return text;
    }
    match dice.below(4) {
        0 => {
            let (base, span) = (1 + dice.below(5), dice.pick(&SPANS));
            say(format!(
                "rate: \"{base}/{span} + 2/{span} × header.seats, at most 20/{span}\""
            ));
        }
        1 => say(format!("rate: [{}, {}]", rate(dice), rate(dice))),
        _ => say(format!("rate: {}", rate(dice))),
    }
    say(format!(
        "algorithm: {}",
        dice.pick(&[
            "token_bucket",
            "token_bucket",
            "leaky_bucket",
            "leaky_queue",
            "fixed_window",
            "sliding_window",
            "sliding_log",
        ])
    ));
    if dice.below(3) == 0 {
        say(format!("burst: {}", 1 + dice.below(9)));
    }
    if dice.below(3) == 0 {
        say(format!("tiers: {{ by: header.plan, pro: {} }}", rate(dice)));
    }
    if dice.below(4) == 0 {
        say(format!("unit: {}", dice.pick(&["bytes", "tokens"])));
    }
    if dice.below(4) == 0 {
        say(format!("wait: {}s", 1 + dice.below(3)));
    }
    match dice.below(6) {
        0 => say("penalty: count".to_owned()),
        1 => say("penalty: block 90s".to_owned()),
        _ => {}
    }
    text
}

fn policy_text(dice: &mut TestRng) -> String {
    loop {
        let limits: String = (0..=dice.below(4)).map(|name| limit(dice, name)).collect();
        let text = format!("limits:\n{limits}");
        let loaded = tollgate_policy::load(&text, "drawn.yaml", SourceFormat::Yaml).ok();
        if loaded.is_some_and(|policy| Rules::compile(&policy, [7; 16]).is_ok()) {
            return text;
        }
    }
}

fn items(value: &str) -> Result<Vec<Item>, String> {
    let list: List = Parser::new(value)
        .parse()
        .map_err(|error| format!("{value}: {error}"))?;
    if list.serialize().as_deref() != Some(value) {
        return Err(format!("{value}: it is not in canonical form"));
    }
    let item = |entry| match entry {
        ListEntry::Item(item) => Ok(item),
        ListEntry::InnerList(_) => Err(format!("{value}: a member is a list")),
    };
    list.into_iter().map(item).collect()
}

fn integer(item: &Item, key: &str) -> Option<u64> {
    u64::try_from(i64::from(item.params.get(key)?.as_integer()?)).ok()
}

/// Whether a structured-field parser accepts a field, as its dialect defines it.
fn check_syntax(dialect: Dialect, name: &str, value: &str) -> Result<(), String> {
    let failed = |error: sfv::Error| format!("{name}: {value}: {error}");
    match (name, dialect) {
        ("ratelimit", Dialect::Draft07) => {
            Parser::new(value).parse::<Dictionary>().map_err(failed)?;
        }
        ("ratelimit" | "ratelimit-policy" | "ratelimit-partition", _)
        | ("ratelimit-limit" | "x-ratelimit-limit", _) => {
            items(value)?;
        }
        // A name and sixteen hexadecimal digits, which are not structured fields.
        ("x-ratelimit-resource" | "x-ratelimit-bucket", _) => {
            if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(format!("{name}: {value}"));
            }
        }
        _ => {
            Parser::new(value).parse::<Item>().map_err(failed)?;
        }
    }
    Ok(())
}

/// Checks the reported waits against the decision: never absent, never early, never before `t` of a limit that refuses.
fn check_wait(
    outcome: Outcome,
    refuses: &[bool],
    ratelimit: Option<&str>,
    retry: Option<u64>,
) -> Result<(), String> {
    match (outcome, retry) {
        (Outcome::Deny { .. }, None) => return Err("nobody says when".to_owned()),
        (Outcome::Deny { .. }, Some(0)) => return Err("a wait of nothing".to_owned()),
        (Outcome::Deny { retry_after }, Some(retry)) if Nanos::from_secs(retry) < retry_after => {
            return Err(format!("{retry} s is before {retry_after:?}"));
        }
        (Outcome::Deny { .. }, Some(_)) | (_, None) => {}
        (_, Some(retry)) => return Err(format!("{outcome:?} with {retry}")),
    }
    let Some(ratelimit) = ratelimit else {
        return Ok(());
    };
    let items = items(ratelimit)?;
    if items.len() != refuses.len() {
        return Err(format!("{ratelimit}: not every limit is told"));
    }
    for (item, refuses) in items.iter().zip(refuses) {
        let t = integer(item, "t").or_else(|| integer(item, "w"));
        if let (Some(retry), Some(t), true) = (retry, t, refuses)
            && retry < t
        {
            return Err(format!("{ratelimit}: {retry} is before {t}"));
        }
    }
    Ok(())
}

/// Which of the reported limits refuse.
fn refusing(verdict: &Verdict) -> Vec<bool> {
    let states = verdict.limits().iter();
    let enforced = states.filter(|state| state.enforcement == EnforcementMode::Enforced);
    let ratelimit_field =
        enforced.filter(|state| state.role() == MeterRole::Main || !state.outcome.is_admitted());
    ratelimit_field
        .map(|state| !state.outcome.is_admitted())
        .collect()
}

#[test]
fn i12_a_denied_request_is_admitted_after_its_retry_after() {
    let (mut denials, mut returned) = (0, 0);
    for seed in 0..200 {
        let mut dice = TestRng(seed);
        let text = policy_text(&mut dice);
        let (app, clock) = app(&text);
        let dialect = if seed % 2 == 0 {
            Dialect::Draft11
        } else {
            dice.pick(&Dialect::ALL)
        };
        let app = app.with_dialects(dialect.into());
        for _ in 0..40 {
            let says = [
                ("header.user", dice.pick(&["a", "b"])),
                ("header.plan", dice.pick(&["", "pro"])),
                ("header.seats", dice.pick(&["0", "3", "90"])),
            ];
            let cost = dice.below(4);
            let decided = check(&app, &says, cost);
            let fields = header_fields(&app, &decided);
            for (name, value) in &fields {
                check_syntax(dialect, name, value)
                    .unwrap_or_else(|wrong| panic!("{seed}: {wrong}"));
            }
            let verdict = &decided;
            let lists = matches!(dialect, Dialect::Draft11 | Dialect::Next);
            let ratelimit = field(&fields, "ratelimit").filter(|_| lists);
            let retry = field(&fields, "retry-after").map(|value| value.parse().unwrap());
            let (outcome, refuses) = (verdict.outcome(), refusing(verdict));
            check_wait(outcome, &refuses, ratelimit.as_deref(), retry)
                .unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}\n{text}{verdict:?}"));
            let no_store = field(&fields, "cache-control");
            assert_eq!(
                no_store.as_deref() == Some("no-store"),
                !verdict.is_admitted()
            );
            match retry {
                Some(retry) => {
                    denials += 1;
                    if dice.below(3) == 0 {
                        clock.advance(Nanos::from_secs(retry));
                        let again = check(&app, &says, cost);
                        assert!(
                            again.is_admitted(),
                            "seed {seed}, after {retry} s\n{text}{again:?}"
                        );
                        returned += 1;
                    }
                }
                None => clock.advance(Nanos::from_millis(dice.below(700))),
            }
        }
    }
    assert!(denials > 500 && returned > 150, "{denials} {returned}");
}

#[test]
fn control_fields_that_cannot_be_read_are_noticed() {
    for (dialect, name, value) in [
        (Dialect::Draft11, "ratelimit", r#""a;r=1"#),
        (Dialect::Draft11, "ratelimit-policy", r#""a";q=1,"b";q=2"#),
        (Dialect::Next, "ratelimit-policy", "a b;q=1"),
        (Dialect::Draft07, "ratelimit", "limit=, remaining=1"),
        (Dialect::Draft06, "ratelimit-reset", "1 s"),
        (Dialect::GitHub, "x-ratelimit-resource", "a\nb"),
        (Dialect::Draft11, "retry-after", "9999999999999999"),
    ] {
        assert!(
            check_syntax(dialect, name, value).is_err(),
            "{name}: {value}"
        );
    }
}

#[test]
fn control_a_wait_that_is_too_short_is_noticed() {
    let denied = Outcome::Deny {
        retry_after: Nanos::from_millis(2_001),
    };
    let ratelimit_field = r#""a";r=0;t=4, "b";r=5;t=60"#;
    assert_eq!(
        check_wait(denied, &[true, false], Some(ratelimit_field), Some(4)),
        Ok(())
    );
    for (outcome, refuses, retry) in [
        (denied, [true, false], None),
        (denied, [true, false], Some(0)),
        (denied, [true, false], Some(2)),
        (denied, [true, false], Some(3)),
        (denied, [true, true], Some(4)),
        (Outcome::Allow, [false, false], Some(1)),
    ] {
        let checked = check_wait(outcome, &refuses, Some(ratelimit_field), retry);
        assert!(checked.is_err(), "{outcome:?} {retry:?}");
    }
    assert!(check_wait(denied, &[true], Some(ratelimit_field), Some(4)).is_err());
}

//! How readers handle invalid numbers, truncated files and values of the wrong type.
//!
//! Must not know: exact messages; the corpus has those.

use crate::load;
use crate::source::SourceFormat;

const EVERYTHING: &str = include_str!("../../corpus/valid/everything.yaml");

/// Texts that must never be read as a number.
const NO_NUMBERS: [&str; 14] = [
    "NaN",
    ".nan",
    "inf",
    "-.inf",
    "-1",
    "-0",
    "1e400",
    "1e-400",
    "1O0",
    "0x1F",
    "1.5",
    "''",
    "99999999999999999999",
    "true",
];

/// Every field with a number; `@` marks the number.
const NUMBERS: [(&str, &str); 22] = [
    ("nodes", "fleet: { nodes: @ }\nlimits: none"),
    (
        "divergence_threshold",
        "divergence_threshold: '@%'\nlimits: none",
    ),
    ("status", "deny: [{ match: { method: GET }, status: @ }]"),
    ("id", "limits: [{ name: a, id: @, rate: 9/s }]"),
    ("rate", "limits: [{ name: a, rate: '@/s' }]"),
    ("rate", "limits: [{ name: a, rate: '9/@s' }]"),
    (
        "rate",
        "limits: [{ name: a, rate: '9/h + @/h × claim.n, at most 99/h' }]",
    ),
    (
        "base",
        "limits: [{ name: a, rate: { base: '@/h', each: 1/h, times: claim.n, at_most: 99/h } }]",
    ),
    ("burst", "limits: [{ name: a, rate: 9/s, burst: @ }]"),
    ("concurrency", "limits: [{ name: a, concurrency: @ }]"),
    (
        "lease",
        "limits: [{ name: a, concurrency: 9, lease: '@s' }]",
    ),
    (
        "v4",
        "limits: [{ name: a, rate: 9/s, key: { attribute: ip, v4: @ } }]",
    ),
    (
        "v6",
        "limits: [{ name: a, rate: 9/s, key: { attribute: ip, v6: @ } }]",
    ),
    ("cost", "limits: [{ name: a, rate: 9/s, cost: @ }]"),
    (
        "GET",
        "limits: [{ name: a, rate: 9/s, cost: { by: method, GET: @ } }]",
    ),
    (
        "at_most",
        "limits: [{ name: a, rate: 9/s, cost: { from: header.n, at_most: @ } }]",
    ),
    (
        "estimate",
        "limits: [{ name: a, rate: 9/s, cost: { response: n, estimate: @ } }]",
    ),
    (
        "overdraft",
        "limits: [{ name: a, rate: 9/s, charge: always, overdraft: @ }]",
    ),
    ("enforce", "limits: [{ name: a, rate: 9/s, enforce: '@%' }]"),
    ("wait", "limits: [{ name: a, rate: 9/s, wait: '@s' }]"),
    (
        "penalty",
        "limits: [{ name: a, rate: 9/s, penalty: 'block @s' }]",
    ),
    (
        "responses",
        "limits: [{ name: a, rate: 9/s, count: { responses: @ } }]",
    ),
];

#[test]
fn s_30_invalid_numbers_are_rejected_in_every_field_by_name() {
    for (field, form) in NUMBERS {
        for number in NO_NUMBERS {
            // Percentages may have decimals, and a period without a number means one.
            let decimals = number == "1.5" && form.contains('%');
            let one = number == "''" && form.contains("/@s");
            if decimals || one {
                continue;
            }
            let inside = form.contains("'@") || form.contains("@s'") || form.contains("@/h ×");
            let number = if inside {
                number.trim_matches('\'')
            } else {
                number
            };
            let text = form.replace('@', number);
            let diagnostics = load(&text, "a.yaml", SourceFormat::Yaml).expect_err(&text);
            let named = diagnostics
                .list
                .iter()
                .any(|diagnostic| diagnostic.message.contains(&format!("`{field}`")));
            assert!(named, "{text}: {diagnostics}");
        }
    }
}

#[test]
fn control_the_same_fields_accept_a_number() {
    for (_, form) in NUMBERS {
        let number = if form.contains("status") {
            "404"
        } else if form.contains("responses") {
            "401"
        } else {
            "7"
        };
        let text = form.replace('@', number);
        load(&text, "a.yaml", SourceFormat::Yaml)
            .unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
    }
}

#[test]
fn s_41_a_truncated_policy_never_panics_the_reader() {
    let mut refused = 0;
    for end in (0..EVERYTHING.len())
        .step_by(13)
        .filter(|end| EVERYTHING.is_char_boundary(*end))
    {
        refused += usize::from(load(&EVERYTHING[..end], "a.yaml", SourceFormat::Yaml).is_err());
    }
    assert!(refused > 100);
}

#[test]
fn values_of_the_wrong_type_never_panic_the_reader() {
    let strange = ["~", "[]", "{ a: b }", "absent", "\"\0\"", "-0"];
    let lines: Vec<&str> = EVERYTHING.lines().collect();
    let mut refused = 0;
    for (index, line) in lines.iter().enumerate() {
        let Some((name, _)) = line.split_once(": ") else {
            continue;
        };
        for value in strange {
            let changed = format!("{name}: {value}");
            let mut text = lines.clone();
            text[index] = &changed;
            refused += usize::from(load(&text.join("\n"), "a.yaml", SourceFormat::Yaml).is_err());
        }
    }
    assert!(refused > 200, "only {refused} were refused");
}

#[test]
fn all_mistakes_of_a_file_are_reported_at_once() {
    let text = "mode: on\nlimits:\n  - { name: a b, rate: 1, brust: 2 }\n  - { name: c, rate: 1/s, burst: x, key: path }\n";
    let diagnostics = load(text, "a.yaml", SourceFormat::Yaml).unwrap_err();
    assert_eq!(diagnostics.list.len(), 6, "{diagnostics}");
    assert!(
        diagnostics
            .list
            .is_sorted_by_key(|diagnostic| diagnostic.location)
    );
}

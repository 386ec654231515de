//! The examples of `docs/headers.md` equal the real output.
//!
//! Must not know: how anything is written.

use tollgate_core::Outcome;

use super::support::{NOW, Sample, denied, lines};
use crate::{Dialect, ProblemType, RateLimitStatus};

const PAGE: &str = include_str!("../../../../docs/headers.md");

/// The text blocks of the section with this title.
fn blocks<'p>(page: &'p str, title: &str) -> Vec<&'p str> {
    let section = page.split("\n## ").find(|section| {
        let heading = section.lines().next().unwrap_or_default();
        heading.trim_matches('`') == title
    });
    let section = section.unwrap_or_else(|| panic!("there is no section {title:?}"));
    section.split("```").skip(1).step_by(2).collect()
}

/// The header fields with names in the usual case.
fn shown(rate_limit: &RateLimitStatus<'_>, dialect: Dialect) -> String {
    let mut text = String::from("http\n");
    for line in lines(rate_limit, dialect.name()) {
        let (name, value) = line.split_once(": ").unwrap();
        let name = match name {
            "ratelimit" => "RateLimit".to_owned(),
            name => {
                let parts = name.split('-').map(|part| match part {
                    "ratelimit" => "RateLimit".to_owned(),
                    part => part[..1].to_ascii_uppercase() + &part[1..],
                });
                parts.collect::<Vec<_>>().join("-")
            }
        };
        text += &format!("{name}: {value}\n");
    }
    text
}

#[test]
fn the_examples_of_the_headers_page_equal_the_output() {
    let sample = Sample::new();
    let (admitted, refused) = (sample.admitted(), sample.refused());
    let admission = RateLimitStatus::new(Outcome::Allow, &admitted).with_now(NOW);
    let refusal = RateLimitStatus::new(denied(86_399_100), &refused).with_now(NOW);
    for dialect in Dialect::ALL {
        let expected = [shown(&admission, dialect), shown(&refusal, dialect)];
        assert_eq!(blocks(PAGE, dialect.name()), expected, "{dialect}");
    }
    let mut body = Vec::new();
    refusal.write_problem(ProblemType::QuotaExceeded, 429, &mut body);
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let shown = blocks(PAGE, "Problem details")[0];
    let shown: serde_json::Value =
        serde_json::from_str(shown.strip_prefix("json\n").unwrap()).unwrap();
    assert_eq!(shown, body);
}

#[test]
#[should_panic(expected = "there is no section")]
fn control_a_page_without_a_dialect_is_detected() {
    blocks("# Headers\n\n## `next`\n\n```http\n```\n", "draft-11");
}

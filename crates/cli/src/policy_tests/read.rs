//! Reads a test file from its parsed tree, or reports all problems.
//!
//! Must not know: engines, output.

use tollgate_core::{Nanos, Timestamp};
use tollgate_policy::grammar::{self, GrammarError, quote};
use tollgate_policy::read::{FieldReader, TreeReader};
use tollgate_policy::source::{Diagnostic, Located, SourceNode, SourceValue};

use super::expect::{EXPECT_FIELDS, read_expectations};
use super::model::{PolicyTest, TestFile, TestStep, UpstreamResponse};
use super::request_template::RequestTemplate;
use super::start_time::{self, MAX_DURATION};

/// The largest number of requests of one step.
const MAX_REQUESTS_PER_STEP: u64 = 1_000_000;

/// The values that a step inherits if it does not set them.
struct StepDefaults<'a> {
    at: Nanos,
    template: &'a RequestTemplate,
}

/// Reads a test file.
pub(super) fn read_tests(tree: &SourceNode) -> Result<TestFile, Vec<Diagnostic>> {
    let mut reader = TreeReader::new(tree);
    let file = read_file(&mut reader, tree);
    match file {
        Some(file) if reader.is_clean() => Ok(file),
        _ => Err(reader.finish()),
    }
}

fn read_file(reader: &mut TreeReader, tree: &SourceNode) -> Option<TestFile> {
    let mut fields = open_fields(reader, tree, "a test file")?;
    let policy = fields.require(reader, "policy", "limits.yaml");
    let policy = policy.map_or(&[][..], |node| as_list(node));
    let policy = policy
        .iter()
        .filter_map(|node| read_name(reader, node, "policy"))
        .collect();
    let start = read_start(reader, &mut fields, start_time::DEFAULT_START);
    let tests = fields.require(reader, "tests", "[{ name: …, steps: […] }]");
    fields.finish(reader);
    let tests = tests?;
    if as_list(tests).is_empty() {
        reader.report(
            tests.location,
            "there are no tests",
            "add a test, or remove the file",
        );
    }
    let mut all: Vec<PolicyTest> = Vec::new();
    for node in as_list(tests) {
        let Some(test) = read_test(reader, node, start) else {
            continue;
        };
        if all.iter().any(|other| other.name == test.name) {
            reader.report(
                test.name.location,
                format!("there are two tests named {}", quote(&test.name.value)),
                "give each a name of its own",
            );
        }
        all.push(test);
    }
    Some(TestFile { policy, tests: all })
}

fn read_test(reader: &mut TreeReader, node: &SourceNode, start: Timestamp) -> Option<PolicyTest> {
    let mut fields = open_fields(reader, node, "a test")?;
    let name = fields.require(reader, "name", "ten a minute");
    let name = name.and_then(|node| read_name(reader, node, "name"));
    let start = read_start(reader, &mut fields, start);
    let mut asked = RequestTemplate::default();
    if let Some(node) = fields.take(reader, "request") {
        asked = asked.with_overrides(reader, node);
    }
    let steps = fields.require(
        reader,
        "steps",
        "[{ at: 0s, send: 11, expect: { allowed: 10 } }]",
    );
    fields.finish(reader);
    let mut at = Nanos::ZERO;
    let mut all = Vec::new();
    for node in as_list(steps?) {
        let before = StepDefaults {
            at,
            template: &asked,
        };
        let Some(step) = read_step(reader, node, &before) else {
            continue;
        };
        at = step.at;
        all.push(step);
    }
    let name = name?;
    if reader.is_clean() && all.iter().all(|step| step.expect.is_empty()) {
        reader.report(
            name.location,
            format!("{} expects nothing", quote(&name.value)),
            "add `expect: allowed` to a step",
        );
    }
    check_holds_and_finishes(reader, &all);
    Some(PolicyTest {
        name,
        start,
        steps: all,
    })
}

fn read_step(
    reader: &mut TreeReader,
    node: &SourceNode,
    before: &StepDefaults<'_>,
) -> Option<TestStep> {
    let mut fields = open_fields(reader, node, "a step")?;
    let at = fields.take(reader, "at");
    let at = at.and_then(|node| with_location(node, reader.parse(node, "at", parse_offset)));
    if let Some(at) = at.filter(|at| at.value < before.at) {
        reader.report(
            at.location,
            "this step is earlier than the one above it",
            "order steps by time",
        );
    }
    let finish = fields.take(reader, "finish");
    let finish = finish.and_then(|node| read_name(reader, node, "finish"));
    let send = fields.take(reader, "send");
    let send = send.and_then(|node| reader.number(node, "send", 0, MAX_REQUESTS_PER_STEP));
    let send = send.unwrap_or(u64::from(finish.is_none()));
    let asked = match fields.take(reader, "request") {
        Some(node) => before.template.with_overrides(reader, node),
        None => before.template.clone(),
    };
    let cost = fields.take(reader, "cost");
    let cost = cost.and_then(|node| reader.number(node, "cost", 0, u64::MAX));
    let respond = fields.take(reader, "respond");
    let respond = respond.and_then(|node| read_response(reader, node));
    let hold = fields.take(reader, "hold");
    let hold = hold.and_then(|node| read_name(reader, node, "hold"));
    let expected = fields.take(reader, "expect");
    let expect = expected
        .map(|node| read_expectations(reader, node, send))
        .unwrap_or_default();
    fields.finish_with(reader, |name| {
        EXPECT_FIELDS
            .contains(&name)
            .then(|| "write it in `expect`".to_owned())
    });
    Some(TestStep {
        place: node.location,
        at: at.map_or(before.at, |at| at.value),
        send,
        template: asked,
        cost,
        respond: respond.unwrap_or(UpstreamResponse {
            status: 200,
            headers: Vec::new(),
        }),
        hold,
        finish,
        expect,
    })
}

/// Checks that every `finish` names requests that an earlier step holds and that are not finished yet.
fn check_holds_and_finishes(reader: &mut TreeReader, steps: &[TestStep]) {
    let mut held: Vec<&str> = Vec::new();
    for step in steps {
        if let Some(finish) = &step.finish {
            match held.iter().position(|name| **name == *finish.value) {
                Some(index) => drop(held.swap_remove(index)),
                None => reader.report(
                    finish.location,
                    format!("no requests are held as {} here", quote(&finish.value)),
                    format!("add `hold: {}` to an earlier step", finish.value),
                ),
            }
        }
        if let Some(hold) = &step.hold
            && !held.contains(&&*hold.value)
        {
            held.push(&hold.value);
        }
    }
}

fn read_start(
    reader: &mut TreeReader,
    fields: &mut FieldReader<'_>,
    default: Timestamp,
) -> Timestamp {
    let given = fields.take(reader, "start");
    let given = given.and_then(|node| reader.parse(node, "start", start_time::parse_start));
    given.unwrap_or(default)
}

fn read_response(reader: &mut TreeReader, node: &SourceNode) -> Option<UpstreamResponse> {
    let status = |reader: &mut TreeReader, node: &SourceNode| {
        let number = reader.number(node, "respond", 0, 599)?;
        u16::try_from(number).ok()
    };
    if !matches!(node.value, SourceValue::Map(_)) {
        let status = status(reader, node)?;
        let headers = Vec::new();
        return Some(UpstreamResponse { status, headers });
    }
    let mut fields = open_fields(reader, node, "`respond`")?;
    let code = fields.take(reader, "status");
    let code = code.map_or(Some(200), |node| status(reader, node));
    let mut headers = Vec::new();
    if let Some(SourceValue::Map(entries)) = fields.find("headers").map(|node| &node.value) {
        for entry in entries {
            let value = reader.text(&entry.value, &entry.name.value);
            let name = entry.name.value.to_ascii_lowercase().into();
            headers.extend(value.map(|value| (name, value.into())));
        }
    }
    fields.finish(reader);
    code.map(|status| UpstreamResponse { status, headers })
}

/// Reads a text that is not empty.
pub(super) fn read_name(
    reader: &mut TreeReader,
    node: &SourceNode,
    field: &str,
) -> Option<Located<Box<str>>> {
    let name = reader.parse(node, field, |text| match text.trim() {
        "" => Err(GrammarError::with_help("it is empty", "give it a name")),
        _ => Ok(text.into()),
    });
    with_location(node, name)
}

/// Opens the fields of a map.
pub(super) fn open_fields<'a>(
    reader: &mut TreeReader,
    node: &'a SourceNode,
    of: &str,
) -> Option<FieldReader<'a>> {
    FieldReader::open(reader, node, of, "{ name: value }")
}

/// A value with the location of its node.
pub(super) fn with_location<T>(node: &SourceNode, value: Option<T>) -> Option<Located<T>> {
    value.map(|value| Located::new(value, node.location))
}

/// Reads a number with its location.
pub(super) fn read_number(
    reader: &mut TreeReader,
    node: &SourceNode,
    field: &str,
    most: u64,
) -> Option<Located<u64>> {
    with_location(node, reader.number(node, field, 0, most))
}

/// The values of a list. A single value is a list with one value.
pub(super) fn as_list(node: &SourceNode) -> &[SourceNode] {
    match &node.value {
        SourceValue::List(values) => values,
        SourceValue::Null => &[],
        _ => std::slice::from_ref(node),
    }
}

/// Parses the time since the start of a test. It may be zero.
pub(super) fn parse_offset(text: &str) -> Result<Nanos, GrammarError> {
    let unit = text.trim().trim_start_matches('0');
    let is_zero = unit.len() < text.trim().len() && unit.chars().all(char::is_alphabetic);
    let is_unit = unit.is_empty() || grammar::parse_duration(&format!("1{unit}")).is_ok();
    if is_zero && is_unit {
        return Ok(Nanos::ZERO);
    }
    // `retry_after` may have a fraction of a microsecond, which policies cannot express. So tests also accept nanoseconds.
    let nanos = text.trim().strip_suffix("ns");
    if let Some(nanos) = nanos.and_then(|digits| digits.trim_end().parse().ok()) {
        return Ok(Nanos::from_nanos(nanos));
    }
    let span = grammar::parse_duration(text)?;
    if span > MAX_DURATION {
        return Err(GrammarError::with_help(
            format!("{} is too long", quote(text)),
            "tests end within 200 years",
        ));
    }
    Ok(span)
}

#[cfg(test)]
mod tests {
    use tollgate_policy::source::{SourceFormat, parse};

    use super::*;

    #[test]
    fn offsets_may_be_zero_and_have_nanoseconds() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            (" 00ms ", 0),
            ("300ns", 300),
            ("6s", 6_000_000_000),
            ("1h1s", 3_601_000_000_000),
        ] {
            assert_eq!(parse_offset(text), Ok(Nanos::from_nanos(nanos)), "{text}");
        }
        for text in [
            "",
            "0x",
            "6",
            "-1s",
            "300y",
            "99999999w",
            "0s1",
            "ns",
            "1.5ns",
        ] {
            assert!(parse_offset(text).is_err(), "{text}");
        }
    }

    /// Truncates and corrupts a file at every third character: it is read, or refused with locations.
    #[test]
    fn no_corrupt_file_panics() {
        let text = include_str!("../../../../policies/stripe.test.yaml");
        let mut corrupt: Vec<String> = Vec::new();
        for (index, old) in text.char_indices().step_by(3) {
            corrupt.push(text[..index].to_owned());
            let new = if old == '{' { '[' } else { '{' };
            let rest = &text[index + old.len_utf8()..];
            corrupt.push(format!("{}{new}{rest}", &text[..index]));
        }
        let mut read = 0;
        for text in &corrupt {
            let Ok(tree) = parse(text, SourceFormat::Yaml) else {
                continue;
            };
            read += 1;
            if let Err(problems) = read_tests(&tree) {
                assert!(!problems.is_empty());
                assert!(problems.iter().all(|problem| problem.location.line > 0));
            }
        }
        assert!(read > 100, "only {read} of {} were trees", corrupt.len());
    }
}

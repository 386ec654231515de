//! A tree of values becomes tests, or a list of everything that is wrong with it.
//!
//! Must not know: engines, output.

use tollgate_core::{Nanos, Timestamp};
use tollgate_policy::read::{FieldReader, Reader};
use tollgate_policy::source::{At, Diagnostic, SourceNode, SourceValue};
use tollgate_policy::words::{self, Wrong, quoted};

use super::expect::{NAMES, expect};
use super::model::{Reply, Step, Test, TestFile};
use super::requests::Asked;
use super::start::{self, LONGEST};

/// The most requests of one step.
const MOST_SENT: u64 = 1_000_000;

/// What holds for a step unless it says otherwise.
struct Before<'a> {
    at: Nanos,
    asked: &'a Asked,
}

/// Reads a file of tests.
pub(super) fn tests(tree: &SourceNode) -> Result<TestFile, Vec<Diagnostic>> {
    let mut reader = Reader::new(tree);
    let file = file(&mut reader, tree);
    match file {
        Some(file) if reader.is_clean() => Ok(file),
        _ => Err(reader.finish()),
    }
}

fn file(reader: &mut Reader, tree: &SourceNode) -> Option<TestFile> {
    let mut fields = fields(reader, tree, "a file of tests")?;
    let policy = fields.require(reader, "policy", "limits.yaml");
    let policy = policy.map_or(&[][..], |node| one_or_more(node));
    let policy = policy
        .iter()
        .filter_map(|node| named(reader, node, "policy"))
        .collect();
    let start = beginning(reader, &mut fields, start::USUAL);
    let tests = fields.require(reader, "tests", "[{ name: …, steps: […] }]");
    fields.finish(reader);
    let tests = tests?;
    if one_or_more(tests).is_empty() {
        reader.say(
            tests.place,
            "there are no tests",
            "add one, or leave the file out",
        );
    }
    let mut all: Vec<Test> = Vec::new();
    for node in one_or_more(tests) {
        let Some(test) = test(reader, node, start) else {
            continue;
        };
        if all.iter().any(|other| other.name == test.name) {
            reader.say(
                test.name.place,
                format!("there are two tests named {}", quoted(&test.name.value)),
                "give each a name of its own",
            );
        }
        all.push(test);
    }
    Some(TestFile { policy, tests: all })
}

fn test(reader: &mut Reader, node: &SourceNode, start: Timestamp) -> Option<Test> {
    let mut fields = fields(reader, node, "a test")?;
    let name = fields.require(reader, "name", "ten a minute");
    let name = name.and_then(|node| named(reader, node, "name"));
    let start = beginning(reader, &mut fields, start);
    let mut asked = Asked::default();
    if let Some(node) = fields.take(reader, "request") {
        asked = asked.overridden(reader, node);
    }
    let steps = fields.require(
        reader,
        "steps",
        "[{ at: 0s, send: 11, expect: { allowed: 10 } }]",
    );
    fields.finish(reader);
    let mut at = Nanos::ZERO;
    let mut all = Vec::new();
    for node in one_or_more(steps?) {
        let before = Before { at, asked: &asked };
        let Some(step) = step(reader, node, &before) else {
            continue;
        };
        at = step.at;
        all.push(step);
    }
    let name = name?;
    if reader.is_clean() && all.iter().all(|step| step.expect.is_empty()) {
        reader.say(
            name.place,
            format!("{} expects nothing", quoted(&name.value)),
            "add `expect: allowed` to a step",
        );
    }
    held_before_finished(reader, &all);
    Some(Test {
        name,
        start,
        steps: all,
    })
}

fn step(reader: &mut Reader, node: &SourceNode, before: &Before<'_>) -> Option<Step> {
    let mut fields = fields(reader, node, "a step")?;
    let at = fields.take(reader, "at");
    let at = at.and_then(|node| placed(node, reader.parse(node, "at", instant)));
    if let Some(at) = at.filter(|at| at.value < before.at) {
        reader.say(
            at.place,
            "this step comes before the one above it",
            "write steps in the order of time",
        );
    }
    let finish = fields.take(reader, "finish");
    let finish = finish.and_then(|node| named(reader, node, "finish"));
    let send = fields.take(reader, "send");
    let send = send.and_then(|node| reader.number(node, "send", 0, MOST_SENT));
    let send = send.unwrap_or(u64::from(finish.is_none()));
    let asked = match fields.take(reader, "request") {
        Some(node) => before.asked.overridden(reader, node),
        None => before.asked.clone(),
    };
    let cost = fields.take(reader, "cost");
    let cost = cost.and_then(|node| reader.number(node, "cost", 0, u64::MAX));
    let respond = fields.take(reader, "respond");
    let respond = respond.and_then(|node| reply(reader, node));
    let hold = fields.take(reader, "hold");
    let hold = hold.and_then(|node| named(reader, node, "hold"));
    let expected = fields.take(reader, "expect");
    let expect = expected
        .map(|node| expect(reader, node, send))
        .unwrap_or_default();
    fields.finish_with(reader, |name| {
        NAMES
            .contains(&name)
            .then(|| "write it in `expect`".to_owned())
    });
    Some(Step {
        place: node.place,
        at: at.map_or(before.at, |at| at.value),
        send,
        asked,
        cost,
        respond: respond.unwrap_or(Reply {
            status: 200,
            headers: Vec::new(),
        }),
        hold,
        finish,
        expect,
    })
}

/// What is finished must have been held, and is finished once.
fn held_before_finished(reader: &mut Reader, steps: &[Step]) {
    let mut held: Vec<&str> = Vec::new();
    for step in steps {
        if let Some(finish) = &step.finish {
            match held.iter().position(|name| **name == *finish.value) {
                Some(index) => drop(held.swap_remove(index)),
                None => reader.say(
                    finish.place,
                    format!("nothing is held as {} here", quoted(&finish.value)),
                    format!("say `hold: {}` in a step above", finish.value),
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

fn beginning(reader: &mut Reader, fields: &mut FieldReader<'_>, usual: Timestamp) -> Timestamp {
    let given = fields.take(reader, "start");
    let given = given.and_then(|node| reader.parse(node, "start", start::start));
    given.unwrap_or(usual)
}

fn reply(reader: &mut Reader, node: &SourceNode) -> Option<Reply> {
    let status = |reader: &mut Reader, node: &SourceNode| {
        let number = reader.number(node, "respond", 0, 599)?;
        u16::try_from(number).ok()
    };
    if !matches!(node.value, SourceValue::Map(_)) {
        let status = status(reader, node)?;
        let headers = Vec::new();
        return Some(Reply { status, headers });
    }
    let mut fields = fields(reader, node, "`respond`")?;
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
    code.map(|status| Reply { status, headers })
}

/// A text that is not empty.
pub(super) fn named(reader: &mut Reader, node: &SourceNode, field: &str) -> Option<At<Box<str>>> {
    let name = reader.parse(node, field, |text| match text.trim() {
        "" => Err(Wrong::with("it is empty", "give it a name")),
        _ => Ok(text.into()),
    });
    placed(node, name)
}

/// The fields of a map.
pub(super) fn fields<'a>(
    reader: &mut Reader,
    node: &'a SourceNode,
    of: &str,
) -> Option<FieldReader<'a>> {
    FieldReader::open(reader, node, of, "{ name: value }")
}

/// A value with the place of its node.
pub(super) fn placed<T>(node: &SourceNode, value: Option<T>) -> Option<At<T>> {
    value.map(|value| At::new(value, node.place))
}

/// A number with its place.
pub(super) fn number(
    reader: &mut Reader,
    node: &SourceNode,
    field: &str,
    most: u64,
) -> Option<At<u64>> {
    placed(node, reader.number(node, field, 0, most))
}

/// The values of a list. A single value is a list of one.
pub(super) fn one_or_more(node: &SourceNode) -> &[SourceNode] {
    match &node.value {
        SourceValue::List(values) => values,
        SourceValue::Nothing => &[],
        _ => std::slice::from_ref(node),
    }
}

/// How long after the start: a length of time, which may be zero.
pub(super) fn instant(text: &str) -> Result<Nanos, Wrong> {
    let unit = text.trim().trim_start_matches('0');
    let is_zero = unit.len() < text.trim().len() && unit.chars().all(char::is_alphabetic);
    let is_unit = unit.is_empty() || words::duration(&format!("1{unit}")).is_ok();
    if is_zero && is_unit {
        return Ok(Nanos::ZERO);
    }
    // What is admitted again may be off by less than the smallest unit that policies need.
    let nanos = text.trim().strip_suffix("ns");
    if let Some(nanos) = nanos.and_then(|digits| digits.trim_end().parse().ok()) {
        return Ok(Nanos::from_nanos(nanos));
    }
    let span = words::duration(text)?;
    if span > LONGEST {
        return Err(Wrong::with(
            format!("{} is too long", quoted(text)),
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
    fn instants_may_be_zero_and_finer_than_policies_need() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            (" 00ms ", 0),
            ("300ns", 300),
            ("6s", 6_000_000_000),
            ("1h1s", 3_601_000_000_000),
        ] {
            assert_eq!(instant(text), Ok(Nanos::from_nanos(nanos)), "{text}");
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
            assert!(instant(text).is_err(), "{text}");
        }
    }

    /// Every beginning of a file, and every file with a character changed, is read or refused, and refused with a place.
    #[test]
    fn no_damaged_file_panics() {
        let text = include_str!("../../../../policies/stripe.test.yaml");
        let mut damaged: Vec<String> = Vec::new();
        for (index, old) in text.char_indices().step_by(3) {
            damaged.push(text[..index].to_owned());
            let new = if old == '{' { '[' } else { '{' };
            let rest = &text[index + old.len_utf8()..];
            damaged.push(format!("{}{new}{rest}", &text[..index]));
        }
        let mut read = 0;
        for text in &damaged {
            let Ok(tree) = parse(text, SourceFormat::Yaml) else {
                continue;
            };
            read += 1;
            if let Err(problems) = tests(&tree) {
                assert!(!problems.is_empty());
                assert!(problems.iter().all(|problem| problem.place.line > 0));
            }
        }
        assert!(read > 100, "only {read} of {} were trees", damaged.len());
    }
}

//! Any bytes as a policy: nothing panics, every problem points into the text, and what is accepted says the
//! same in JSON.
//!
//! Random bytes are hardly ever a policy, so half of all inputs are read as edits to one that is.
//!
//! Must not know: which fuzzer calls it.

use tollgate_policy::source::{
    Diagnostics, MAX_DIAGNOSTICS, SourceFormat, SourceNode, SourceValue, parse,
};

/// Where edits begin.
const SEEDS: [(&str, SourceFormat); 3] = [
    (include_str!("seed.yaml"), SourceFormat::Yaml),
    (include_str!("seed.toml"), SourceFormat::Toml),
    (include_str!("seed.json"), SourceFormat::Json),
];

/// What edits put in: pieces that mean something in a policy or in a format.
const PIECES: [&str; 40] = [
    "",
    "\n",
    "  ",
    "\t",
    ": ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    "\"",
    "'",
    ",",
    "#",
    "&a ",
    "*a",
    "!t ",
    "<<: ",
    "---\n",
    "=",
    "|\n",
    "\u{feff}",
    "é",
    "\r",
    "0",
    "18446744073709551616",
    "/s",
    " per 1us",
    "/month",
    "limits",
    "rate: 1/s\n",
    "levels:\n",
    "ip",
    "header.x",
    "absent",
    "{ not: a }",
    "unlimited",
    "auto",
    "100%",
    "\\u0000",
];

/// The longest text, so that one input takes no time worth measuring. Lengths have tests of their own.
const LONGEST: usize = 16 * 1024;

/// Reads the bytes as a policy, or as edits to one, and panics if a promise is broken.
///
/// # Panics
/// If reading breaks a promise that holds for every input; that is what fuzzing is for.
pub fn policy(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else {
        return;
    };
    let Some((seed, format)) = pick(&SEEDS, *choice) else {
        return;
    };
    if *choice < 128 {
        let valid = rest.utf8_chunks().next().map_or("", |chunk| chunk.valid());
        check(shortened(valid), format);
    } else {
        check(shortened(&edited(seed, rest)), format);
    }
}

fn pick<T: Copy>(all: &[T], byte: u8) -> Option<T> {
    all.get(usize::from(byte) % all.len().max(1)).copied()
}

fn shortened(text: &str) -> &str {
    text.get(..text.floor_char_boundary(LONGEST))
        .unwrap_or_default()
}

/// The text after edits of four bytes each: where (two bytes), how much is taken out, what is put in.
fn edited(text: &str, edits: &[u8]) -> String {
    let mut text = text.to_owned();
    for edit in edits.chunks_exact(4).take(32) {
        let [high, low, taken, piece] = edit else {
            continue;
        };
        let length = text.len().max(1);
        let start = usize::from(u16::from_be_bytes([*high, *low])) % length;
        let start = text.floor_char_boundary(start);
        let end = text.floor_char_boundary(start + usize::from(*taken % 24));
        text.replace_range(start..end, pick(&PIECES, *piece).unwrap_or_default());
    }
    text
}

fn check(text: &str, format: SourceFormat) {
    match tollgate_policy::load(text, "policy", format) {
        Ok(policy) => {
            let tree = parse(text, format);
            let Some(json) = tree.ok().and_then(|tree| json(&tree, format)) else {
                return;
            };
            let again = tollgate_policy::load(&json, "json", SourceFormat::Json);
            assert_eq!(
                again,
                Ok(policy),
                "the same says something else in JSON:\n{json}"
            );
        }
        Err(problems) => check_problems(text, &problems),
    }
}

/// The same values in JSON; none where it has no words for them: in YAML alone, `"absent"` in quotes is not `absent`.
fn json(node: &SourceNode, format: SourceFormat) -> Option<String> {
    Some(match &node.value {
        SourceValue::Null => "null".to_owned(),
        SourceValue::Scalar {
            text,
            quoted: false,
        } if matches!(&**text, "true" | "false") => text.to_string(),
        SourceValue::Scalar { text, .. } => json_text(text),
        SourceValue::List(nodes) => {
            let nodes: Option<Vec<_>> = nodes.iter().map(|node| json(node, format)).collect();
            format!("[{}]", nodes?.join(","))
        }
        SourceValue::Map(entries) => {
            let mut fields = Vec::with_capacity(entries.len());
            for entry in entries {
                if let SourceValue::Scalar { text, quoted: true } = &entry.value.value
                    && format == SourceFormat::Yaml
                    && matches!(&**text, "present" | "absent")
                {
                    return None;
                }
                let value = json(&entry.value, format)?;
                fields.push(format!("{}:{value}", json_text(&entry.name.value)));
            }
            format!("{{{}}}", fields.join(","))
        }
    })
}

fn json_text(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            control if control < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => out.push(other),
        }
    }
    out + "\""
}

fn check_problems(text: &str, problems: &Diagnostics) {
    assert!(!problems.list.is_empty() && problems.list.len() <= MAX_DIAGNOSTICS);
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let unix = text.replace("\r\n", "\n").replace('\r', "\n");
    let lines: Vec<usize> = unix.split('\n').map(|line| line.chars().count()).collect();
    for problem in &problems.list {
        let place = problem.location;
        let (line, column) = (place.line as usize, place.column as usize);
        let length = lines.get(line.wrapping_sub(1));
        assert!(
            length.is_some_and(|length| (1..=length + 1).contains(&column)) && place.width > 0,
            "a problem points outside of the text: {problem:?}\n{text}"
        );
        assert!(!problem.message.is_empty());
    }
    let shown = problems.render(false);
    assert!(shown.len() < 1 << 20, "a report of {} bytes", shown.len());
    assert!(
        !shown.contains(['\x1b', '\r']),
        "a file talks to the terminal: {shown:?}"
    );
}

#[cfg(test)]
mod tests {
    use tollgate_policy::source::{Diagnostic, Diagnostics, SourceLocation};

    use super::{SEEDS, check, check_problems, edited, json, policy};
    use crate::fuzzing::pseudo_random_bytes;

    #[test]
    fn i13_no_bytes_read_as_a_policy_break_a_promise() {
        for seed in 0..2_000 {
            policy(&pseudo_random_bytes(seed, 2 + (seed % 60) as usize));
        }
    }

    #[test]
    fn the_texts_that_are_edited_are_policies_themselves() {
        for (seed, format) in SEEDS {
            if let Err(problems) = tollgate_policy::load(seed, "seed", format) {
                panic!("{problems}");
            }
            check(seed, format);
        }
    }

    #[test]
    fn some_edits_leave_a_policy_and_some_do_not() {
        let (seed, format) = SEEDS[0];
        let fine = (0..300)
            .map(|number| edited(seed, &pseudo_random_bytes(number, 5)))
            .filter(|text| tollgate_policy::load(text, "edited", format).is_ok())
            .count();
        assert!((10..290).contains(&fine), "{fine} of 300 are accepted");
    }

    #[test]
    fn the_seeds_are_compared_in_json_and_a_word_in_quotes_is_not() {
        for (seed, format) in SEEDS {
            let tree = tollgate_policy::source::parse(seed, format).unwrap();
            assert!(json(&tree, format).is_some());
        }
        let yaml = tollgate_policy::source::SourceFormat::Yaml;
        let quoted = tollgate_policy::source::parse("a: \"absent\"\n", yaml).unwrap();
        assert_eq!(json(&quoted, yaml), None);
    }

    #[test]
    #[should_panic(expected = "points outside of the text")]
    fn a_problem_beyond_the_text_is_seen() {
        let place = SourceLocation {
            line: 1,
            column: 4,
            width: 1,
        };
        let list = vec![Diagnostic::without_help(place, "wrong")];
        check_problems("ab\n", &Diagnostics::new("f", "ab\n", list));
    }
}

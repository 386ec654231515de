//! Reading an access log in Apache's combined format: who asked, and when.
//!
//! `address identity user [day/month/year:hour:minute:second zone] "request" status bytes "referer" "agent"`
//!
//! The whole line is checked although two fields are used: a line that is not what it should be means that the file
//! is not what it should be. Errors name the line and the reason. One fault is forgiven and counted: a line that was cut
//! off within its last field still says who and when, and the log this study is published with has such a line.
//!
//! Must not know: limits, decisions.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// More requests than a log may have here: the study keeps them all, for the lines are not in order of time.
const MOST_LINES: usize = 20_000_000;

/// A request: the source's number, in order of first appearance, and the second since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) source: usize,
    pub(crate) second: u64,
}

/// An access log in memory.
#[derive(Debug, Default)]
pub(crate) struct AccessLog {
    /// In the order of the file.
    pub(crate) requests: Vec<Request>,
    pub(crate) sources: usize,
    /// Lines that were cut off within their last field.
    pub(crate) cut_off: usize,
}

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
struct LogLine<'a> {
    address: &'a str,
    second: u64,
    is_cut_off: bool,
}

impl AccessLog {
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let file = std::fs::File::open(path).map_err(|error| {
            format!(
                "cannot open the access log {}: {error}\nIt is a web server's log in Apache's combined format, replayed \
                 beside the synthetic traffic. docs/accuracy.md says where the one it was written with comes from. Name another with --log FILE, or leave it out with --no-log.",
                path.display()
            )
        })?;
        Self::read(BufReader::new(file)).map_err(|error| format!("{}: {error}", path.display()))
    }

    pub(crate) fn read(lines: impl BufRead) -> Result<Self, String> {
        let mut log = Self::default();
        let mut numbers = HashMap::new();
        for (index, line) in lines.lines().enumerate() {
            let fault = |reason: &str| format!("line {}: {reason}", index + 1);
            if index >= MOST_LINES {
                return Err(fault("the log is too long to replay"));
            }
            let line = line.map_err(|error| fault(&error.to_string()))?;
            let line = parse(&line).map_err(|reason| fault(&reason))?;
            let source = match numbers.get(line.address) {
                Some(number) => *number,
                None => {
                    numbers.insert(line.address.to_owned(), log.sources);
                    log.sources += 1;
                    log.sources - 1
                }
            };
            log.cut_off += usize::from(line.is_cut_off);
            log.requests.push(Request {
                source,
                second: line.second,
            });
        }
        Ok(log)
    }
}

fn parse(line: &str) -> Result<LogLine<'_>, String> {
    let (address, rest) = word(line, "address")?;
    let (_, rest) = word(rest, "identity")?;
    // A user's name may contain spaces; the bracket ends it.
    let (_, rest) = rest.split_once('[').ok_or("no `[` before the time")?;
    let (time, rest) = rest.split_once(']').ok_or("no `]` after the time")?;
    let second = second(time).map_err(|reason| format!("time `{time}`: {reason}"))?;
    let rest = quoted(rest, "request")?;
    let (status, rest) = word(rest.trim_start(), "status")?;
    if status.len() != 3 || !status.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("status `{status}` is not three digits"));
    }
    let (bytes, rest) = word(rest, "bytes")?;
    if bytes != "-" && !bytes.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("bytes `{bytes}` is neither a number nor `-`"));
    }
    let rest = quoted(rest, "referer")?;
    let after_agent = match quoted(rest, "agent") {
        Ok(after) => Some(after.trim()),
        Err(_) if rest.trim_start().starts_with('"') => None,
        Err(reason) => return Err(reason),
    };
    match after_agent {
        Some(more) if !more.is_empty() => Err(format!("`{more}` after the agent")),
        _ => Ok(LogLine {
            address,
            second,
            is_cut_off: after_agent.is_none(),
        }),
    }
}

fn word<'a>(text: &'a str, what: &str) -> Result<(&'a str, &'a str), String> {
    match text.split_once(' ') {
        Some((word, rest)) if !word.is_empty() => Ok((word, rest)),
        _ => Err(format!("no {what}")),
    }
}

/// Skips a quoted field, in which a backslash takes the next character literally; what follows it.
fn quoted<'a>(text: &'a str, what: &str) -> Result<&'a str, String> {
    let inner = text
        .trim_start()
        .strip_prefix('"')
        .ok_or_else(|| format!("no quote before the {what}"))?;
    let mut is_escaped = false;
    for (index, byte) in inner.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return Ok(inner.get(index + 1..).unwrap_or_default()),
            _ => {}
        }
    }
    Err(format!("no quote after the {what}"))
}

/// `17/May/2015:10:05:03 +0000` as seconds since 1970.
fn second(time: &str) -> Result<u64, &'static str> {
    let (date, zone) = time.split_once(' ').ok_or("no zone")?;
    let mut parts = date.split(['/', ':']);
    let mut part = |reason| parts.next().ok_or(reason);
    let day = number(part("no day")?, 1, 31).ok_or("the day is not 1 to 31")?;
    let month = month(part("no month")?).ok_or("the month is not Jan to Dec")?;
    let year = number(part("no year")?, 1970, 9999).ok_or("the year is not 1970 to 9999")?;
    let hour = number(part("no hour")?, 0, 23).ok_or("the hour is not 0 to 23")?;
    let minute = number(part("no minute")?, 0, 59).ok_or("the minute is not 0 to 59")?;
    // A leap second is written as 60.
    let second = number(part("no second")?, 0, 60).ok_or("the second is not 0 to 60")?;
    if parts.next().is_some() {
        return Err("more than day, month, year, hour, minute and second");
    }
    if day > days_in(month, year) {
        return Err("the month has no such day");
    }
    let local = days_since_1970(day, month, year) * 86_400 + hour * 3_600 + minute * 60 + second;
    u64::try_from(local - offset(zone)?).map_err(|_before| "before 1970")
}

/// `+0130` as seconds east of Greenwich.
fn offset(zone: &str) -> Result<i64, &'static str> {
    const WRONG: &str = "the zone is not like +0130";
    let (sign, digits) = match zone.split_at_checked(1).ok_or(WRONG)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return Err(WRONG),
    };
    let (hours, minutes) = digits.split_at_checked(2).ok_or(WRONG)?;
    let hours = number(hours, 0, 14)
        .filter(|_| digits.len() == 4)
        .ok_or(WRONG)?;
    let minutes = number(minutes, 0, 59).ok_or(WRONG)?;
    Ok(sign * (hours * 3_600 + minutes * 60))
}

fn number(text: &str, least: i64, most: i64) -> Option<i64> {
    // `parse` would take a sign.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = text.parse().ok()?;
    (least..=most).contains(&number).then_some(number)
}

fn month(name: &str) -> Option<i64> {
    const NAMES: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    (1..)
        .zip(NAMES)
        .find(|(_, known)| *known == name)
        .map(|(number, _)| number)
}

fn days_in(month: i64, year: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Counted from the first of March, so that the leap day is the last of its year.
fn days_since_1970(day: i64, month: i64, year: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"83.149.9.216 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 203023 "http://b/" "Mozilla/5.0 (X; \"Y\")""#;

    fn fault(line: &str) -> String {
        AccessLog::read(format!("{GOOD}\n{line}\n").as_bytes()).unwrap_err()
    }

    #[test]
    fn a_line_gives_address_and_second() {
        let line = |address, second| LogLine {
            address,
            second,
            is_cut_off: false,
        };
        assert_eq!(parse(GOOD), Ok(line("83.149.9.216", 1_431_857_103)));
        let other = r#"2001:db8::1 - Jane Doe [29/Feb/2016:00:59:59 +0100] "-" 408 - "-" "-""#;
        assert_eq!(parse(other), Ok(line("2001:db8::1", 1_456_703_999)));
    }

    #[test]
    fn sources_are_numbered_by_first_appearance_and_order_is_kept() {
        let text = [GOOD, &GOOD.replace("216", "9"), GOOD].join("\n");
        let log = AccessLog::read(text.as_bytes()).unwrap();
        assert_eq!(log.sources, 2);
        let sources: Vec<usize> = log.requests.iter().map(|request| request.source).collect();
        assert_eq!(sources, [0, 1, 0]);
    }

    #[test]
    fn bad_lines_are_named_with_their_number_and_reason() {
        let cases = [
            ("", "line 2: no address"),
            ("1.2.3.4", "line 2: no address"),
            (" - - [", "line 2: no address"),
            ("1.2.3.4 - - 17/May", "line 2: no `[` before the time"),
            ("1.2.3.4 - - [17/May", "line 2: no `]` after the time"),
            (
                &GOOD.replace("\"GET", "GET"),
                "line 2: no quote before the request",
            ),
            (
                &GOOD.replace("200", "2000"),
                "line 2: status `2000` is not three digits",
            ),
            (
                &GOOD.replace("203023", "-1"),
                "line 2: bytes `-1` is neither a number nor `-`",
            ),
            (
                &GOOD.replace("\"http://b/\" ", ""),
                "line 2: no quote before the agent",
            ),
            (&format!("{GOOD} 17"), "line 2: `17` after the agent"),
        ];
        for (line, expected) in cases {
            assert_eq!(fault(line), expected, "{line}");
        }
    }

    #[test]
    fn a_line_cut_off_in_its_last_field_is_kept_and_counted_and_no_other_cut_is() {
        let cut = &GOOD[..GOOD.len() - 7];
        let log = AccessLog::read(format!("{GOOD}\n{cut}\n{GOOD}").as_bytes()).unwrap();
        assert_eq!((log.requests.len(), log.cut_off), (3, 1));
        let cut = &GOOD[..GOOD.find("b/").unwrap()];
        assert_eq!(fault(cut), "line 2: no quote after the referer");
    }

    #[test]
    fn bad_times_are_named_with_their_reason() {
        let cases = [
            ("17/May/2015:10:05:03", "no zone"),
            ("32/May/2015:10:05:03 +0000", "the day is not 1 to 31"),
            ("+7/May/2015:10:05:03 +0000", "the day is not 1 to 31"),
            ("31/Jun/2015:10:05:03 +0000", "the month has no such day"),
            ("29/Feb/2015:10:05:03 +0000", "the month has no such day"),
            ("17/may/2015:10:05:03 +0000", "the month is not Jan to Dec"),
            ("17/May/15:10:05:03 +0000", "the year is not 1970 to 9999"),
            ("17/May/2015:24:05:03 +0000", "the hour is not 0 to 23"),
            ("17/May/2015:10:60:03 +0000", "the minute is not 0 to 59"),
            ("17/May/2015:10:05:61 +0000", "the second is not 0 to 60"),
            ("17/May/2015:10:05 +0000", "no second"),
            (
                "17/May/2015:10:05:03:1 +0000",
                "more than day, month, year, hour, minute and second",
            ),
            ("17/May/2015:10:05:03 UTC", "the zone is not like +0130"),
            ("17/May/2015:10:05:03 +00000", "the zone is not like +0130"),
            ("17/May/2015:10:05:03 +é0", "the zone is not like +0130"),
            ("01/Jan/1970:00:00:00 +0100", "before 1970"),
        ];
        for (time, reason) in cases {
            let line = GOOD.replace("17/May/2015:10:05:03 +0000", time);
            assert_eq!(fault(&line), format!("line 2: time `{time}`: {reason}"));
        }
    }

    #[test]
    fn text_that_is_not_utf_8_is_named_with_its_line() {
        let bytes = [GOOD.as_bytes(), b"\n\xff\n"].concat();
        let error = AccessLog::read(bytes.as_slice()).unwrap_err();
        assert!(error.starts_with("line 2: "), "{error}");
    }

    #[test]
    fn days_follow_the_calendar() {
        assert_eq!(days_since_1970(1, 1, 1970), 0);
        assert_eq!(days_since_1970(1, 3, 2000), 11_017);
        assert_eq!(days_since_1970(31, 12, 2100), 47_846);
    }

    #[test]
    fn a_missing_file_is_explained() {
        let error = AccessLog::open(Path::new("there/is/no.log")).unwrap_err();
        assert!(
            error.contains("there/is/no.log") && error.contains("--no-log"),
            "{error}"
        );
    }
}

//! Reads when and what clients asked from an access log in the common or combined format.
//!
//! Such a log has whole seconds, so the requests of one second are spread evenly over it. Must not know: how requests are sent.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::time::Duration;

use super::schedule::{DueRequest, LogRequest, Schedule};
use crate::output::{CommandError, print_error};

/// The longest line that is read; a longer one is an error.
const MAX_LINE_BYTES: u64 = 65_536;
/// The most requests that are kept in memory.
const MAX_LINES: usize = 5_000_000;

/// Reads a log. Skips lines that are not requests, and prints how many there are. A log without any request is an error.
pub(super) fn read(path: &Path, speed: f64) -> Result<Schedule, CommandError> {
    let failed = |error: String| CommandError::Other(format!("{}: {error}", path.display()).into());
    let file = File::open(path).map_err(|error| failed(error.to_string()))?;
    let mut reader = BufReader::new(file);
    let mut seconds: BTreeMap<i64, Vec<LogRequest>> = BTreeMap::new();
    let (mut kept, mut skipped, mut number) = (0_usize, 0_u64, 0_u64);
    let mut line = Vec::new();
    loop {
        line.clear();
        number += 1;
        let read = (&mut reader)
            .take(MAX_LINE_BYTES + 1)
            .read_until(b'\n', &mut line);
        if read.map_err(|error| failed(error.to_string()))? == 0 {
            break;
        }
        if u64::try_from(line.len()).unwrap_or(u64::MAX) > MAX_LINE_BYTES {
            return Err(failed(format!(
                "line {number} is longer than {MAX_LINE_BYTES} bytes"
            )));
        }
        let Some((second, request)) = parse_line(&String::from_utf8_lossy(&line)) else {
            skipped += 1;
            continue;
        };
        kept += 1;
        if kept > MAX_LINES {
            return Err(failed(format!(
                "the log has more than {MAX_LINES} requests"
            )));
        }
        seconds.entry(second).or_default().push(request);
    }
    if kept == 0 {
        return Err(failed(
            "no line is a request in the common or combined format, for example \
             `192.0.2.7 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 12`"
                .to_owned(),
        ));
    }
    if skipped > 0 {
        print_error(&format!(
            "{}: lines skipped because they are no requests: {skipped}\n",
            path.display()
        ));
    }
    Ok(Schedule::from_log(spread(seconds, speed)))
}

fn spread(seconds: BTreeMap<i64, Vec<LogRequest>>, speed: f64) -> Vec<DueRequest> {
    let first = seconds.keys().next().copied().unwrap_or_default();
    let mut requests = Vec::new();
    for (second, lines) in seconds {
        let begin = second.saturating_sub(first);
        let count = lines.len();
        for (place, line) in lines.into_iter().enumerate() {
            #[expect(
                clippy::cast_precision_loss,
                reason = "seconds and lines of a log are small"
            )]
            let offset = begin as f64 + place as f64 / count as f64;
            let at = Duration::try_from_secs_f64(offset / speed).unwrap_or(Duration::MAX);
            requests.push(DueRequest {
                at,
                line: Some(line),
            });
        }
    }
    requests
}

/// The second since 1970 and the request of a line, if it is one.
fn parse_line(line: &str) -> Option<(i64, LogRequest)> {
    let (_, rest) = line.split_once('[')?;
    let (time, rest) = rest.split_once(']')?;
    let (_, rest) = rest.split_once('"')?;
    let (request, _) = rest.split_once('"')?;
    let mut words = request.split(' ');
    let (method, path) = (words.next()?, words.next()?);
    if !path.starts_with('/') || !method.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return None;
    }
    // What a client sent as a path may not be one; the URI says so before anything is sent.
    path.parse::<http::uri::PathAndQuery>().ok()?;
    let request = LogRequest {
        method: method.to_owned(),
        path: path.to_owned(),
    };
    Some((parse_time(time)?, request))
}

/// `17/May/2015:10:05:03 +0000` as seconds since 1970.
fn parse_time(text: &str) -> Option<i64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (time, zone) = text.split_once(' ')?;
    let mut parts = time.split(['/', ':']);
    let number = |part: Option<&str>| part?.parse::<i64>().ok();
    let day = number(parts.next())?;
    let month = parts.next()?;
    let month = MONTHS.iter().position(|name| *name == month)?;
    let year = number(parts.next())?;
    let days = days_since_1970(year, i64::try_from(month).ok()? + 1, day)?;
    // A leap second is the 60th. Other numbers are not times, and large ones would overflow.
    let [hour, minute, second] = [23, 59, 60].map(|most| {
        let part = number(parts.next())?;
        (0..=most).contains(&part).then_some(part)
    });
    let offset = zone
        .parse::<i64>()
        .ok()
        .filter(|offset| offset.abs() <= 2_400)?;
    let offset_minutes = offset / 100 * 60 + offset % 100;
    Some(days * 86_400 + hour? * 3_600 + (minute? - offset_minutes) * 60 + second?)
}

/// The days from 1970-01-01 to a date of the Gregorian calendar.
fn days_since_1970(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1970..=9999).contains(&year) || !(1..=31).contains(&day) {
        return None;
    }
    // Years begin in March here, so that the leap day is the last of its year.
    let (year, month) = if month <= 2 {
        (year - 1, month + 9)
    } else {
        (year, month - 3)
    };
    let leap_days = year / 4 - year / 100 + year / 400;
    Some(year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_testkit::seeded_rng::SeededRng;

    #[test]
    fn lines_of_the_common_and_the_combined_format_are_requests() {
        let line = r#"83.149.9.216 - - [17/May/2015:10:05:03 +0000] "GET /a?b=1 HTTP/1.1" 200 203023 "-" "Mozilla""#;
        let (second, request) = parse_line(line).unwrap();
        assert_eq!(second, 1_431_857_103);
        assert_eq!(
            (request.method.as_str(), request.path.as_str()),
            ("GET", "/a?b=1")
        );
        let zone = line.replace("+0000", "+0130");
        assert_eq!(parse_line(&zone).unwrap().0, 1_431_857_103 - 5_400);
        for wrong in [
            "",
            "not a log",
            r#"x [17/May/2015:10:05:03 +0000] "-" 400 0"#,
            r#"x [17/Mai/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 0"#,
            r#"x [17/May/2015:10:05:03] "GET / HTTP/1.1" 200 0"#,
            r#"x [17/May/2015:10:05:03 +9999] "GET / HTTP/1.1" 200 0"#,
            r#"x [17/May/2015:10:05:03 +0000] "GET http://elsewhere/ HTTP/1.1" 200 0"#,
            r#"x [17/May/2015:24:05:03 +0000] "GET / HTTP/1.1" 200 0"#,
            r#"x [17/May/2015:-1:05:03 +0000] "GET / HTTP/1.1" 200 0"#,
            // It ended the program: hours were multiplied without a bound.
            r#"x [17/May/2015:9223372036854775807:05:03 +0000] "GET / HTTP/1.1" 200 0"#,
        ] {
            assert_eq!(parse_line(wrong), None, "{wrong}");
        }
    }

    /// Logs contain what clients sent. Whatever a line is, it is a request with a path and a time of the calendar, or skipped.
    #[test]
    fn damaged_lines_are_requests_or_skipped() {
        const LINE: &str = r#"x - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 0"#;
        const PIECES: [&str; 12] = [
            "9",
            "-",
            "9223372036854775807",
            "[",
            "]",
            "\"",
            "/",
            ":",
            " ",
            "+2400",
            "Feb",
            "é",
        ];
        let mut random = SeededRng::new(20);
        let mut below = |count: usize| usize::try_from(random.below(count as u64)).unwrap();
        let (mut parsed, mut skipped) = (0, 0);
        for _ in 0..20_000 {
            let mut line: Vec<char> = LINE.chars().collect();
            for _ in 0..=below(3) {
                let at = below(line.len());
                let piece = PIECES[below(PIECES.len())];
                let until = at + below(3);
                line.splice(at..until.min(line.len()), piece.chars());
            }
            let line = String::from_iter(line);
            match parse_line(&line) {
                Some((second, request)) => {
                    parsed += 1;
                    let is_time = (-86_400..=253_402_387_200).contains(&second);
                    assert!(is_time && request.path.starts_with('/'), "{line}");
                }
                None => skipped += 1,
            }
        }
        assert!(parsed > 1_000 && skipped > 1_000, "{parsed} {skipped}");
    }

    #[test]
    fn requests_of_one_second_are_spread_over_it_and_speed_shortens_all_distances() {
        let request = |path: &str| LogRequest {
            method: "GET".to_owned(),
            path: path.to_owned(),
        };
        let seconds = BTreeMap::from([
            (100, vec![request("/a"), request("/b")]),
            (103, vec![request("/c")]),
        ]);
        let instants: Vec<Duration> = spread(seconds, 2.0)
            .into_iter()
            .map(|request| request.at)
            .collect();
        assert_eq!(instants, [0, 250, 1_500].map(Duration::from_millis));
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        for (date, days) in [
            ((1970, 1, 1), 0),
            ((2000, 2, 29), 11_016),
            ((2026, 11, 18), 20_775),
        ] {
            assert_eq!(
                days_since_1970(date.0, date.1, date.2),
                Some(days),
                "{date:?}"
            );
        }
    }
}

//! Histories as text: one line for each record, so that processes can write theirs and one can read them all.
//!
//! Must not know: what is concluded.

use std::fs;
use std::path::Path;

use super::record::{History, Operation, Record, RecordedVerdict, ReportedQuota};

impl History {
    /// Writes it to a file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), String> {
        let text: String = self.records.iter().map(line).collect();
        fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Reads a file that [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// It cannot be read, or a line is no record. The message says which.
    pub fn load(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let text = fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
        Self::parse(&text).map_err(|error| format!("{shown}:{error}"))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let records = text.lines().enumerate().map(|(index, line)| {
            record(line).ok_or_else(|| format!("{}: this is no record: {line:?}", index + 1))
        });
        Ok(Self {
            records: records.collect::<Result<_, _>>()?,
        })
    }
}

fn line(record: &Record) -> String {
    let (act, lease) = match record.act {
        Operation::Spend => ('s', 0),
        Operation::GiveBack => ('g', 0),
        Operation::Acquire(lease) => ('a', lease),
        Operation::Renew(lease) => ('n', lease),
        Operation::Release(lease) => ('r', lease),
    };
    let verdict = match record.verdict {
        RecordedVerdict::Admitted => 'y',
        RecordedVerdict::Denied => 'n',
        RecordedVerdict::Lost => 'l',
        RecordedVerdict::Failed => 'f',
    };
    let retry = record
        .retry_after
        .map_or_else(|| "-".to_owned(), |nanos| nanos.to_string());
    let quota = record.quota.map_or_else(
        || "-".to_owned(),
        |quota| format!("{}/{}/{}", quota.limit, quota.remaining, quota.reset_after),
    );
    let degraded = u8::from(record.is_degraded);
    format!(
        "{} {act}{lease} {} {} {} {verdict}{degraded} {retry} {quota} {}\n",
        record.request,
        record.cost,
        record.invoked,
        record.completed,
        record.key.escape_default()
    )
}

fn record(line: &str) -> Option<Record> {
    let mut words = line.splitn(9, ' ');
    let mut next = || words.next();
    let request = next()?.parse().ok()?;
    let (act, lease) = split(next()?)?;
    let lease = lease.parse().ok()?;
    let (cost, invoked) = (next()?.parse().ok()?, next()?.parse().ok()?);
    let completed = next()?.parse().ok()?;
    let (verdict, degraded) = split(next()?)?;
    let retry_after = match next()? {
        "-" => None,
        nanos => Some(nanos.parse().ok()?),
    };
    let quota = match next()? {
        "-" => None,
        quota => {
            let mut numbers = quota.split('/').map(str::parse);
            Some(ReportedQuota {
                limit: numbers.next()?.ok()?,
                remaining: numbers.next()?.ok()?,
                reset_after: numbers.next()?.ok()?,
            })
        }
    };
    Some(Record {
        request,
        key: unescaped(next()?)?,
        act: match act {
            's' => Operation::Spend,
            'g' => Operation::GiveBack,
            'a' => Operation::Acquire(lease),
            'n' => Operation::Renew(lease),
            'r' => Operation::Release(lease),
            _ => return None,
        },
        cost,
        invoked,
        completed,
        verdict: match verdict {
            'y' => RecordedVerdict::Admitted,
            'n' => RecordedVerdict::Denied,
            'l' => RecordedVerdict::Lost,
            'f' => RecordedVerdict::Failed,
            _ => return None,
        },
        is_degraded: degraded == "1",
        retry_after,
        quota,
    })
}

fn split(word: &str) -> Option<(char, &str)> {
    let mut letters = word.chars();
    Some((letters.next()?, letters.as_str()))
}

/// What `escape_default` has escaped.
fn unescaped(text: &str) -> Option<String> {
    let mut whole = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            whole.push(letter);
            continue;
        }
        whole.push(match letters.next()? {
            't' => '\t',
            'r' => '\r',
            'n' => '\n',
            'u' => {
                let digits: String = letters.by_ref().take_while(|digit| *digit != '}').collect();
                let number = u32::from_str_radix(digits.strip_prefix('{')?, 16).ok()?;
                char::from_u32(number)?
            }
            other => other,
        });
    }
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::TempFolder;

    fn some() -> History {
        let plain = Record {
            request: 7,
            key: "a b\t\"ü\\".to_owned(),
            act: Operation::Spend,
            cost: 3,
            invoked: 10,
            completed: 20,
            verdict: RecordedVerdict::Admitted,
            is_degraded: false,
            retry_after: None,
            quota: None,
        };
        let acts = [
            Operation::GiveBack,
            Operation::Acquire(u64::MAX),
            Operation::Renew(2),
            Operation::Release(3),
        ];
        let verdicts = [
            RecordedVerdict::Denied,
            RecordedVerdict::Lost,
            RecordedVerdict::Failed,
        ];
        let mut records = vec![plain.clone()];
        records.extend(acts.map(|act| Record {
            act,
            key: String::new(),
            ..plain.clone()
        }));
        records.extend(verdicts.map(|verdict| Record {
            verdict,
            is_degraded: true,
            retry_after: Some(9),
            quota: Some(ReportedQuota {
                limit: 1,
                remaining: 2,
                reset_after: 3,
            }),
            ..plain.clone()
        }));
        History { records }
    }

    #[test]
    fn what_is_saved_is_loaded_as_it_was() {
        let folder = TempFolder::new("history").unwrap();
        let path = folder.path().join("one.txt");
        some().save(&path).unwrap();
        assert_eq!(History::load(&path), Ok(some()));
        assert_eq!(some().and(some()).records.len(), 16);
    }

    #[test]
    fn a_line_that_is_no_record_is_named() {
        for wrong in [
            "",
            "1 s0 1 1 1 y0 - -",
            "1 x0 1 1 1 y0 - - a",
            "1 s0 1 1 1 y0 - 1/2 a",
        ] {
            let text = format!("1 s0 1 1 2 y0 - - alice\n{wrong}\n");
            let error = History::parse(&text).unwrap_err();
            assert!(error.starts_with("2: "), "{wrong}: {error}");
        }
    }
}

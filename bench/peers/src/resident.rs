//! Resident memory per key: a million live token buckets in a process of their own, for each contender.
//!
//! The child makes each key when it needs it and keeps none, so all that is resident after filling and was not before
//! making the limiter is the limiter's. Must not know: how a contender stores anything.

use std::process::Command;

use crate::clock::resident;
use crate::contenders::{ENTRIES, Quota};
use crate::options::Options;
use crate::stats::Table;

/// The word that makes this program a child that fills one contender.
pub(crate) const CHILD: &str = "fill";

const LENGTHS: [usize; 2] = [12, 200];

pub(crate) fn study(options: &Options) -> Result<Table, String> {
    let keys = options.most_keys;
    let title = format!("Resident bytes per key at {keys} live token buckets");
    let mut table = Table::new(title, &["", "12-byte keys", "200-byte keys"]);
    for entry in ENTRIES
        .iter()
        .filter(|entry| entry.has_buckets && entry.name != "tollgate, ask")
    {
        let mut row = vec![entry.name.to_owned()];
        for length in LENGTHS {
            let is_possible = entry.any_key || length == 12;
            row.push(if is_possible {
                format!("{:.1}", ask_child(entry.name, length, keys)?)
            } else {
                String::new()
            });
        }
        table.row(row);
    }
    Ok(table)
}

fn ask_child(name: &str, length: usize, keys: usize) -> Result<f64, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(this)
        .args([CHILD, name, &length.to_string(), &keys.to_string()])
        .output()
        .map_err(|error| format!("cannot start a child: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().map_err(|error| {
        let complaint = String::from_utf8_lossy(&output.stderr);
        format!("the child that fills {name} said `{text}` ({error})\n{complaint}")
    })
}

/// The child: fills one contender and prints the bytes per key.
pub(crate) fn child(words: &[String]) -> Result<(), String> {
    let [name, length, keys] = words else {
        return Err(format!("usage: {CHILD} CONTENDER LENGTH KEYS"));
    };
    let number = |word: &String| {
        word.parse::<usize>()
            .map_err(|error| format!("`{word}`: {error}"))
    };
    let (length, keys) = (number(length)?, number(keys)?);
    let entry = ENTRIES
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| format!("there is no `{name}`"))?;
    let before = resident()?;
    let contender = (entry.make)(Quota::STRICT, keys);
    let mut key = String::with_capacity(length);
    let mut admitted = 0;
    for number in 0..keys {
        key.clear();
        key.push_str(&format!("user{number:08}"));
        key.extend(std::iter::repeat_n('x', length.saturating_sub(key.len())));
        admitted += usize::from(contender.decide(&key));
    }
    let bytes = resident()?.saturating_sub(before);
    // A limiter that shares or drops states would look small.
    if admitted < keys - keys / 1_000 {
        return Err(format!(
            "{name} admitted only {admitted} of {keys} first requests"
        ));
    }
    let per_key = bytes as f64 / keys as f64;
    println!("{per_key}");
    Ok(())
}

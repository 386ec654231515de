//! Any bytes as a path and a host: nothing panics, the readings are bounded, and no slash more or less changes the limits.
//!
//! Must not know: which fuzzer calls it, how paths are read.

use std::sync::OnceLock;

use tollgate_policy::attributes::{Attribute, Attributes};
use tollgate_policy::rules::{KeyBuffer, ListVerdict, MatchedRules, MeterRef, Rules};
use tollgate_policy::source::SourceFormat;

const POLICY: &str = r#"
exempt: [{ path: "/public/**", host: a.example }]
limits:
  - { name: all, match: { path: "/**" }, key: [host], distinct: path, rate: 1/s }
  - { name: login, match: { route: /Api/login }, rate: 1/s }
  - { name: item, match: { route: "/api/{id}" }, rate: 1/s }
  - { name: rest, match: { route: "/api/{*rest}" }, rate: 1/s }
"#;
/// Ten kinds of servers, each with two views of letter case.
const MAX_READINGS: usize = 20;

struct Target<'a> {
    path: &'a [u8],
    host: &'a [u8],
}

impl Attributes for Target<'_> {
    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        match attribute {
            Attribute::Path => Some(self.path),
            Attribute::Host => Some(self.host),
            _ => None,
        }
    }
}

fn rules() -> Option<&'static Rules> {
    static RULES: OnceLock<Option<Rules>> = OnceLock::new();
    let compiled = RULES.get_or_init(|| {
        let policy = tollgate_policy::load(POLICY, "p.yaml", SourceFormat::Yaml).ok()?;
        Rules::compile(&policy, [7; 16]).ok()
    });
    compiled.as_ref()
}

/// Matches the bytes, and the same bytes with every slash doubled.
///
/// # Panics
/// If reading breaks a promise that holds for every input; that is what fuzzing is for.
pub fn path(bytes: &[u8]) {
    check(bytes, |path| {
        path.iter()
            .flat_map(|byte| match byte {
                b'/' => &b"//"[..],
                other => std::slice::from_ref(other),
            })
            .copied()
            .collect()
    });
}

fn check(bytes: &[u8], spell: impl Fn(&[u8]) -> Vec<u8>) {
    let rules = rules();
    assert!(rules.is_some(), "the policy loads");
    let Some(rules) = rules else { return };
    let find = |path: &[u8], host: &[u8]| {
        let target = Target { path, host };
        let mut matched = MatchedRules::new();
        rules.match_rules(&target, &mut matched);
        let mut keys = Vec::new();
        for meter in 0..rules.rules().first().map_or(0, |rule| rule.meters.len()) {
            let mut buffer = KeyBuffer::new();
            let meter = MeterRef { rule: 0, meter };
            rules.write_key(meter, &target, &matched, &mut buffer);
            keys.push(buffer.as_bytes().to_vec());
        }
        (matched, keys)
    };
    find(b"/", bytes);
    let (matched, keys) = find(bytes, b"a.example");
    let readings: Vec<&[u8]> = matched.path_readings().collect();
    assert!(
        readings.len() <= MAX_READINGS,
        "{} readings",
        readings.len()
    );
    for reading in &readings {
        assert!(reading.starts_with(b"/"), "{reading:?}");
        assert!(!reading.windows(2).any(|two| two == b"//"), "{reading:?}");
    }
    if matched.unreadable().is_some() {
        assert!(matched.rules().is_empty());
        return;
    }
    assert!(
        matched.list_verdict() != ListVerdict::Limits || matched.rules().contains(&0),
        "every path is below the root"
    );
    // A path that is just short enough may become too long.
    let end = bytes.iter().position(|byte| matches!(byte, b'?' | b'#'));
    let path = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
    let (other, other_keys) = find(&spell(path), b"A.Example.:80");
    if other.unreadable().is_none() {
        assert_eq!(
            (matched.list_verdict(), matched.rules(), keys),
            (other.list_verdict(), other.rules(), other_keys),
            "{path:?} is spelled differently"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{check, path};
    use crate::fuzzing::pseudo_random_bytes;

    /// Bytes of which unusual paths are made.
    const LETTERS: &[u8; 32] = b"/////%%%225FfCcEe3Bb;;\\\\..aApi?#";

    #[test]
    fn no_bytes_break_the_reader_of_paths() {
        for seed in 0..4_000 {
            let bytes = pseudo_random_bytes(seed, (seed % 60) as usize);
            path(&bytes);
            let letters = bytes.iter().map(|byte| LETTERS[usize::from(*byte % 32)]);
            path(&letters.collect::<Vec<u8>>());
        }
        for whole in [
            "/public/..;/api/login",
            "/api%2Flogin",
            "/API\\login;x%2f..",
            "/.",
        ] {
            path(whole.as_bytes());
        }
        path(&[b'/'; 9_000]);
        path(&b"%2e".repeat(4_000));
    }

    #[test]
    #[should_panic(expected = "is spelled differently")]
    fn control_another_path_is_seen() {
        check(b"/api/login", |path| [path, b"/more"].concat());
    }
}

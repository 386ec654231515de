//! Suggests the known name that was probably meant.
//!
//! Must not know: what the names refer to.

/// The known name nearest to the written one, if it is near enough to be a typo: one edit in a short name, about a
/// third of the letters in a longer one. Case, `-` and `_` are ignored.
///
/// ```
/// use tollgate_policy::grammar::nearest_name;
///
/// assert_eq!(nearest_name("brust", ["rate", "burst"]), Some("burst"));
/// assert_eq!(nearest_name("weather", ["rate", "burst"]), None);
/// ```
pub fn nearest_name<'a>(
    written: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let written = normalize(written);
    if written.len() > 64 {
        return None;
    }
    known
        .into_iter()
        .filter_map(|name| {
            let candidate = normalize(name);
            let max = (candidate.len().max(written.len()) / 3).max(1);
            let distance = edit_distance(&written, &candidate);
            (distance <= max && distance < candidate.len()).then_some((distance, name))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

fn normalize(name: &str) -> Vec<char> {
    name.chars()
        .filter(|c| !matches!(c, '-' | '_' | ' '))
        .flat_map(char::to_lowercase)
        .collect()
}

/// The edit distance: insertions, deletions, replacements, and swaps of neighbours.
fn edit_distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    let mut last_a = None;
    for (i, x) in a.iter().enumerate() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i + 1);
        let mut last_b = None;
        for (j, y) in b.iter().enumerate() {
            let get = |row: &[usize], at: usize| row.get(at).copied().unwrap_or(usize::MAX / 2);
            let mut best = (get(&above, j) + usize::from(x != y))
                .min(get(&above, j + 1) + 1)
                .min(get(&row, j) + 1);
            if last_a == Some(y) && last_b == Some(x) && j > 0 {
                best = best.min(get(&before, j - 1) + 1);
            }
            row.push(best);
            last_b = Some(y);
        }
        last_a = Some(x);
        before = std::mem::replace(&mut above, row);
    }
    above.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_get_a_suggestion_and_unrelated_names_do_not() {
        let known = [
            "rate",
            "burst",
            "algorithm",
            "on_store_failure",
            "key",
            "id",
        ];
        let cases = [
            ("brust", Some("burst")),
            ("Burst", Some("burst")),
            ("algoritm", Some("algorithm")),
            ("on-store-failure", Some("on_store_failure")),
            ("onStoreFailure", Some("on_store_failure")),
            ("keys", Some("key")),
            ("rates", Some("rate")),
            ("x", None),
            ("", None),
            ("wallpaper", None),
        ];
        for (written, expected) in cases {
            assert_eq!(nearest_name(written, known), expected, "{written}");
        }
        assert_eq!(nearest_name(&"a".repeat(100_000), known), None);
    }
}

//! The generated parts of `docs/benchmarks.md` and its appendix: what stands between two markers is replaced.
//!
//! Must not know: what was measured.

use std::path::Path;

/// Replaces the part of this name in a file.
pub(super) fn replace(path: &Path, part: &str, text: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let page = std::fs::read_to_string(path).map_err(failed)?;
    let page = replaced(&page, part, text)
        .ok_or_else(|| format!("{} has no part `{part}`", path.display()))?;
    std::fs::write(path, page).map_err(failed)
}

fn replaced(page: &str, part: &str, text: &str) -> Option<String> {
    let (begin, end) = (
        format!("<!-- bench {part} -->\n"),
        format!("<!-- end {part} -->"),
    );
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    let text = text.trim_end();
    Some(format!("{before}{begin}\n{text}\n\n{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_part_between_its_markers_changes() {
        let page = "a\n<!-- bench x -->\nold\n<!-- end x -->\nb\n";
        let new = replaced(page, "x", "new\n").unwrap();
        assert_eq!(new, "a\n<!-- bench x -->\n\nnew\n\n<!-- end x -->\nb\n");
        assert_eq!(replaced(&new, "x", "new"), Some(new.clone()));
    }

    #[test]
    fn a_page_without_the_part_is_an_error() {
        assert_eq!(replaced("a\n<!-- bench x -->\n", "x", "new"), None);
        assert_eq!(replaced("a\n", "x", "new"), None);
    }
}

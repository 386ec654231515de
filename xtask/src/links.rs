//! Checks that every relative link and anchor in the documents points at something that exists, and that every page of the
//! guide is in its table of contents.
//!
//! Reads Markdown as text. Must not know: mdbook, the network. Links with a scheme (`https:`) are not checked.

use std::path::Path;

use crate::workspace::Workspace;

/// Documents at the root of the repository whose links are checked, besides all of `docs/`.
const ROOT_DOCUMENTS: [&str; 4] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
];
const GUIDE: &str = "docs";
const CONTENTS: &str = "docs/SUMMARY.md";

/// A Markdown file. The path is relative to the root, with forward slashes.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Checks the documents of this repository and prints how many links it followed.
pub(crate) fn check_workspace() -> Result<(), String> {
    let root = Workspace::load()?.root;
    let documents = read_documents(&root)?;
    let read = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    let mut complaints = check(&documents, |path| root.join(path).exists(), read);
    complaints.extend(unlisted_pages(&documents));
    if !complaints.is_empty() {
        return Err(format!(
            "{} links are broken:\n  {}",
            complaints.len(),
            complaints.join("\n  ")
        ));
    }
    let links: usize = documents
        .iter()
        .map(|document| relative_links(&document.text).len())
        .sum();
    println!(
        "{links} relative links in {} documents point at something",
        documents.len()
    );
    Ok(())
}

/// The documents at the root and all of the guide.
pub(crate) fn read_documents(root: &Path) -> Result<Vec<Document>, String> {
    let mut paths: Vec<String> = ROOT_DOCUMENTS.map(str::to_owned).to_vec();
    find_markdown(root, GUIDE, &mut paths)?;
    paths.sort();
    let read = |path: String| match std::fs::read_to_string(root.join(&path)) {
        Ok(text) => Ok(Document { path, text }),
        Err(error) => Err(format!("cannot read {path}: {error}")),
    };
    paths.into_iter().map(read).collect()
}

fn find_markdown(root: &Path, folder: &str, found: &mut Vec<String>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot read {folder}: {error}");
    for entry in std::fs::read_dir(root.join(folder)).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.file_type().map_err(failed)?.is_dir() {
            find_markdown(root, &path, found)?;
        } else if path.ends_with(".md") {
            found.push(path);
        }
    }
    Ok(())
}

/// One complaint for each link that leads nowhere. `exists` and `read` look at paths relative to the root.
fn check(
    documents: &[Document],
    exists: impl Fn(&str) -> bool,
    read: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut complaints = Vec::new();
    for document in documents {
        for (line, target) in relative_links(&document.text) {
            let at = format!("{}:{line}: `{target}`", document.path);
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let Some(path) = resolve(&document.path, file) else {
                complaints.push(format!("{at} leads out of the repository"));
                continue;
            };
            if !path.is_empty() && !exists(&path) {
                complaints.push(format!("{at}: there is no {path}"));
            } else if !anchor.is_empty() {
                let known = documents.iter().find(|document| document.path == path);
                let text = known.map_or_else(|| read(&path), |known| Some(known.text.clone()));
                let is_markdown = path.ends_with(".md");
                let anchors = text.filter(|_| is_markdown).map(|text| anchors(&text));
                if !anchors.is_some_and(|anchors| anchors.iter().any(|known| known == anchor)) {
                    complaints.push(format!("{at}: {path} has no heading `{anchor}`"));
                }
            }
        }
    }
    complaints
}

/// Pages of the guide that its table of contents does not link to. mdbook leaves such pages out, and links to them break.
fn unlisted_pages(documents: &[Document]) -> Vec<String> {
    let contents = documents.iter().find(|document| document.path == CONTENTS);
    let Some(contents) = contents else {
        return vec![format!("{CONTENTS} is missing")];
    };
    let listed: Vec<String> = relative_links(&contents.text)
        .iter()
        .filter_map(|(_, target)| resolve(CONTENTS, target))
        .collect();
    documents
        .iter()
        .filter(|document| document.path.starts_with("docs/") && document.path != CONTENTS)
        .filter(|document| !listed.contains(&document.path))
        .map(|document| format!("{}: not in {CONTENTS}", document.path))
        .collect()
}

/// The targets of links without a scheme, each with its line, counted from 1.
pub(crate) fn relative_links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (number, line) in lines_outside_code(text) {
        let line = blank_code_spans(line);
        for (_, rest) in line.match_indices("](").map(|(at, _)| line.split_at(at)) {
            let target = rest.strip_prefix("](").unwrap_or_default();
            let target = target.split([')', ' ']).next().unwrap_or_default();
            if is_relative(target) {
                links.push((number, target.to_owned()));
            }
        }
    }
    links
}

fn is_relative(target: &str) -> bool {
    !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:")
}

/// The path that a link in `document` means, relative to the root. `None` if it leads out of the repository.
pub(crate) fn resolve(document: &str, link: &str) -> Option<String> {
    if link.is_empty() {
        return Some(document.to_owned());
    }
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// The anchors that mdbook and code hosts give to the headings of a page.
fn anchors(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for (_, line) in lines_outside_code(text) {
        let title = line.trim_start_matches('#');
        let level = line.len() - title.len();
        if !(1..=6).contains(&level) || !title.starts_with(' ') {
            continue;
        }
        let slug = slug(title.trim());
        let mut unique = slug.clone();
        let mut number = 0;
        while anchors.contains(&unique) {
            number += 1;
            unique = format!("{slug}-{number}");
        }
        anchors.push(unique);
    }
    anchors
}

fn slug(title: &str) -> String {
    let letter = |letter: char| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ => letter.is_alphanumeric().then_some(letter),
    };
    title.to_lowercase().chars().filter_map(letter).collect()
}

fn lines_outside_code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        let is_prose = !is_code && !is_fence;
        is_code ^= is_fence;
        is_prose
    })
}

/// The line with the inside of every code span replaced, so that nothing in it looks like a link.
fn blank_code_spans(line: &str) -> String {
    let pieces = line.split('`').enumerate();
    pieces
        .map(|(index, piece)| if index % 2 == 0 { piece } else { "code" })
        .collect::<Vec<_>>()
        .join("`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(path: &str, text: &str) -> Document {
        Document {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    /// Complaints about a page beside `docs/other.md`, which has two headings, and `examples/nginx`.
    fn complaints(text: &str) -> Vec<String> {
        let other = document("docs/other.md", "# Other\n\n## What happens, if `x`?\n");
        let page = document("docs/page.md", text);
        let exists =
            |path: &str| ["docs/other.md", "docs/page.md", "examples/nginx"].contains(&path);
        check(&[page, other], exists, |_| None)
    }

    #[test]
    fn links_that_exist_pass() {
        for text in [
            "[other](other.md), [again](./other.md#other)",
            "[a question](other.md#what-happens-if-x)",
            "[the folder](../examples/nginx)",
            "# Here\n[above](#here)",
            "[elsewhere](https://example.com/nowhere.md#x), [mail](mailto:a@example.com)",
            "```\n[in code](nowhere.md)\n```\nand `[a](nowhere.md)` too",
        ] {
            assert_eq!(complaints(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn control_links_that_lead_nowhere_are_caught() {
        for text in [
            "[gone](gone.md)",
            "[gone](gone.md#other)",
            "[no such heading](other.md#others)",
            "[no such heading here](#here)",
            "[a heading in code](#code)\n```\n# Code\n```",
            "[out](../../elsewhere.md)",
            "[a folder has no headings](../examples/nginx#x)",
            "good [one](other.md) and [`bad`](bad.md) one",
        ] {
            assert_eq!(complaints(text).len(), 1, "{text}");
        }
        let both = complaints("[a](a.md)\n\n[b](b.md)").concat();
        assert!(
            both.contains("docs/page.md:1") && both.contains("docs/page.md:3"),
            "{both}"
        );
    }

    #[test]
    fn headings_of_the_same_name_are_numbered() {
        assert_eq!(
            anchors("# A b\n## A b\n### A `b`!\n#hash\n"),
            ["a-b", "a-b-1", "a-b-2"]
        );
    }

    #[test]
    fn control_a_page_that_is_not_in_the_contents_is_caught() {
        let contents = document(CONTENTS, "- [Page](page.md)\n- [One](adr/one.md)\n");
        let pages = [
            document("docs/page.md", ""),
            document("docs/adr/one.md", ""),
        ];
        let [page, one] = pages;
        let extra = document("docs/extra.md", "");
        let all = [contents, page, one, extra, document("README.md", "")];
        let complaints = unlisted_pages(&all);
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        assert!(complaints.concat().contains("docs/extra.md"));
        assert_eq!(unlisted_pages(&[]).len(), 1, "no contents at all");
    }
}

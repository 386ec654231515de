//! Route templates: `/v1/items/{id}`, `/api/{*rest}`.
//!
//! Must not know: how templates are found by a path.

use super::{GrammarError, quote};
use crate::model::Template;

/// A template: begins with `/`; each segment is literal or `{name}`, the last may be `{*name}`. A slash at the end says
/// nothing and is dropped, because paths match with and without it.
///
/// ```
/// use tollgate_policy::words::template;
///
/// assert_eq!(&*template("/v1/items/{id}/").unwrap().0, "/v1/items/{id}");
/// assert_eq!(template("/v1/:id").unwrap_err().help.as_deref(), Some("write `/v1/{id}`"));
/// ```
///
/// # Errors
/// The text is not such a template.
pub fn parse_template(text: &str) -> Result<Template, GrammarError> {
    const MAX_BYTES: usize = 1_024;
    const MAX_SEGMENTS: usize = 64;
    let wrong = |what: &str, help: String| {
        GrammarError::with_help(format!("{} is not a template: {what}", quote(text)), help)
    };
    let Some(inside) = text.strip_prefix('/') else {
        let help = match text.split_once("://") {
            Some(_) => "write only the path, and match the rest by `host`".to_owned(),
            None => format!("write {}", quote(&format!("/{text}"))),
        };
        return Err(wrong("it does not begin with `/`", help));
    };
    if text.contains(['?', '#']) {
        let path = text.split(['?', '#']).next().unwrap_or_default();
        return Err(wrong(
            "a query is not part of a path",
            format!(
                "write {}, and match parameters by `query.NAME`",
                quote(path)
            ),
        ));
    }
    if text.chars().any(|c| c.is_control() || c == ' ') {
        return Err(wrong(
            "no path has spaces",
            "write them as `%20`".to_owned(),
        ));
    }
    let inside = inside.strip_suffix('/').unwrap_or(inside);
    if text.len() > MAX_BYTES || inside.split('/').count() > MAX_SEGMENTS {
        return Err(wrong(
            "it is too long",
            "templates have at most 64 segments and 1024 bytes; end it with `{*rest}`".to_owned(),
        ));
    }
    if inside.is_empty() {
        return Ok(Template("/".into()));
    }
    let mut names: Vec<&str> = Vec::new();
    let mut segments = inside.split('/').peekable();
    while let Some(segment) = segments.next() {
        if let Some(name) = parse_parameter(text, segment, segments.peek().is_none())? {
            if names.contains(&name) {
                return Err(wrong(
                    &format!("the name {} stands twice in it", quote(name)),
                    "give each segment a name of its own".to_owned(),
                ));
            }
            names.push(name);
        }
    }
    Ok(Template(format!("/{inside}").into()))
}

/// The name in a segment, or none where it is literal.
fn parse_parameter<'a>(
    text: &str,
    segment: &'a str,
    is_last: bool,
) -> Result<Option<&'a str>, GrammarError> {
    let wrong = |what: &str, help: String| {
        Err(GrammarError::with_help(
            format!("{} is not a template: {what}", quote(text)),
            help,
        ))
    };
    let replaced = |by: &str| format!("write {}", quote(&text.replace(segment, by)));
    if let Some(name) = segment
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
    {
        let (name, rest) = match name.strip_prefix('*') {
            Some(name) => (name, true),
            None => (name, false),
        };
        let good = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
        if !good {
            return wrong(
                &format!("{} is not a name", quote(name)),
                "names have letters, digits and `_`, as in `{id}` and `{*rest}`".to_owned(),
            );
        }
        if rest && !is_last {
            return wrong(
                &format!(
                    "{} takes everything after it, so it must come last",
                    quote(segment)
                ),
                replaced(&format!("{{{name}}}")),
            );
        }
        return Ok(Some(name));
    }
    match segment {
        "" => wrong(
            "it has an empty segment",
            "write one `/` between segments".to_owned(),
        ),
        "." | ".." => wrong(
            "`.` and `..` are resolved before paths are matched",
            "write the path that it leads to".to_owned(),
        ),
        "*" | "**" => wrong(
            "stars are for `path`",
            replaced(if is_last { "{*rest}" } else { "{any}" }),
        ),
        _ if segment.starts_with(':') && segment.len() > 1 => {
            let name = segment.trim_start_matches(':');
            wrong(
                "segments are named in braces",
                replaced(&format!("{{{name}}}")),
            )
        }
        _ if segment.contains(['{', '}', '*']) => wrong(
            &format!(
                "{} is partly literal, and a segment is literal or named as a whole",
                quote(segment)
            ),
            "match such paths by `path` with a pattern, and name the whole segment here".to_owned(),
        ),
        _ => reject_needless_escapes(text, segment),
    }
}

/// Paths are compared after unreserved characters are decoded, so an encoded one would never match.
fn reject_needless_escapes<'a>(text: &str, segment: &str) -> Result<Option<&'a str>, GrammarError> {
    for (at, _) in segment.match_indices('%') {
        let hex = segment
            .get(at + 1..at + 3)
            .filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(byte) = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) else {
            return Err(GrammarError::with_help(
                format!(
                    "{} is not a template: `%` is not followed by two hexadecimal digits",
                    quote(text)
                ),
                "write a percent sign in a path as `%25`",
            ));
        };
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            let spelled = segment.get(at..at + 3).unwrap_or_default();
            let plain = char::from(byte).to_string();
            return Err(GrammarError::with_help(
                format!(
                    "{} is not a template: {} is only another spelling of {}",
                    quote(text),
                    quote(spelled),
                    quote(&plain)
                ),
                format!("write {}", quote(&text.replace(spelled, &plain))),
            ));
        }
    }
    Ok(None)
}

/// Whether a path that is already in its plain form lies under a template. For checks; requests are matched by an index.
#[must_use]
pub fn template_matches(template: &Template, path: &str) -> bool {
    let segments = |text: &'_ str| -> Vec<String> {
        text.split('/')
            .filter(|s| !s.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let mut path = segments(path).into_iter();
    for part in segments(&template.0) {
        if part.starts_with("{*") {
            return true;
        }
        match path.next() {
            Some(_) if part.starts_with('{') => {}
            Some(segment) if segment == part => {}
            _ => return false,
        }
    }
    path.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_read_and_lose_a_slash_at_the_end() {
        for (text, expected) in [
            ("/", "/"),
            ("/login", "/login"),
            ("/login/", "/login"),
            ("/v1/items/{id}", "/v1/items/{id}"),
            ("/api/{*rest}", "/api/{*rest}"),
            ("/{*rest}", "/{*rest}"),
            ("/a%2Fb/%C3%A9", "/a%2Fb/%C3%A9"),
        ] {
            assert_eq!(parse_template(text).unwrap().0.as_ref(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_template_is_refused_with_what_would_be() {
        for (text, expected) in [
            ("", "write `/`"),
            ("login", "write `/login`"),
            ("https://a.example/x", "match the rest by `host`"),
            ("/a?b=1", "write `/a`, and match parameters"),
            ("/a b", "%20"),
            ("/v1/:id", "write `/v1/{id}`"),
            ("/v1/*", "write `/v1/{*rest}`"),
            ("/*/x", "write `/{any}/x`"),
            ("/{*rest}/x", "write `/{rest}/x`"),
            ("/v{n}/x", "match such paths by `path`"),
            ("/{}/x", "names have letters"),
            ("/{1}/x", "names have letters"),
            ("/{a}/{a}", "a name of its own"),
            ("/a//b", "one `/`"),
            ("///", "one `/`"),
            ("/a/../b", "leads to"),
            ("/%7Euser", "write `/~user`"),
            ("/100%", "%25"),
        ] {
            let wrong = parse_template(text).unwrap_err();
            let help = wrong.help.unwrap();
            assert!(help.contains(expected), "{text}: {help}");
        }
        assert!(parse_template(&"/a".repeat(65)).is_err());
    }

    #[test]
    fn paths_lie_under_templates_segment_by_segment() {
        let holds = |t: &str, path| template_matches(&parse_template(t).unwrap(), path);
        assert!(holds("/a/{id}", "/a/7"));
        assert!(!holds("/a/{id}", "/a"));
        assert!(!holds("/a/{id}", "/a/7/b"));
        assert!(holds("/a/{*rest}", "/a/7/b"));
        assert!(holds("/a", "/a/"));
    }
}

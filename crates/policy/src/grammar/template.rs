//! Route templates: `/v1/items/{id}`, `/api/{*rest}`.
//!
//! Must not know: how templates are matched.

use super::{GrammarError, quote};
use crate::model::Template;

/// Parses a template: begins with `/`; each segment is literal or `{name}`, the last may be `{*name}`. A trailing slash
/// is dropped, because paths match with and without it.
///
/// ```
/// use tollgate_policy::grammar::parse_template;
///
/// assert_eq!(&*parse_template("/v1/items/{id}/").unwrap().0, "/v1/items/{id}");
/// assert_eq!(parse_template("/v1/:id").unwrap_err().help.as_deref(), Some("write `/v1/{id}`"));
/// ```
///
/// # Errors
/// The text is not a valid template.
pub fn parse_template(text: &str) -> Result<Template, GrammarError> {
    const MAX_BYTES: usize = 1_024;
    const MAX_SEGMENTS: usize = 64;
    let error = |what: &str, help: String| {
        GrammarError::with_help(format!("{} is not a template: {what}", quote(text)), help)
    };
    let Some(inside) = text.strip_prefix('/') else {
        let help = match text.split_once("://") {
            Some(_) => "write only the path, and match the host by `host`".to_owned(),
            None => format!("write {}", quote(&format!("/{text}"))),
        };
        return Err(error("it does not begin with `/`", help));
    };
    if text.contains(['?', '#']) {
        let path = text.split(['?', '#']).next().unwrap_or_default();
        return Err(error(
            "a query is not part of a path",
            format!(
                "write {}, and match parameters by `query.NAME`",
                quote(path)
            ),
        ));
    }
    if text.chars().any(|c| c.is_control() || c == ' ') {
        return Err(error(
            "paths have no spaces",
            "write them as `%20`".to_owned(),
        ));
    }
    let inside = inside.strip_suffix('/').unwrap_or(inside);
    if text.len() > MAX_BYTES || inside.split('/').count() > MAX_SEGMENTS {
        return Err(error(
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
                return Err(error(
                    &format!("the parameter {} is used twice", quote(name)),
                    "use each parameter name once".to_owned(),
                ));
            }
            names.push(name);
        }
    }
    Ok(Template(format!("/{inside}").into()))
}

/// The parameter name of a segment; `None` if it is literal.
fn parse_parameter<'a>(
    text: &str,
    segment: &'a str,
    is_last: bool,
) -> Result<Option<&'a str>, GrammarError> {
    let error = |what: &str, help: String| {
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
            return error(
                &format!("{} is not a name", quote(name)),
                "names have letters, digits and `_`, as in `{id}` and `{*rest}`".to_owned(),
            );
        }
        if rest && !is_last {
            return error(
                &format!(
                    "{} matches the rest of the path, so it must come last",
                    quote(segment)
                ),
                replaced(&format!("{{{name}}}")),
            );
        }
        return Ok(Some(name));
    }
    match segment {
        "" => error(
            "it has an empty segment",
            "write one `/` between segments".to_owned(),
        ),
        "." | ".." => error(
            "`.` and `..` are removed from paths before matching",
            "write the resolved path".to_owned(),
        ),
        "*" | "**" => error(
            "`*` and `**` are only for `path`",
            replaced(if is_last { "{*rest}" } else { "{any}" }),
        ),
        _ if segment.starts_with(':') && segment.len() > 1 => {
            let name = segment.trim_start_matches(':');
            error(
                "parameters are written in braces",
                replaced(&format!("{{{name}}}")),
            )
        }
        _ if segment.contains(['{', '}', '*']) => error(
            &format!(
                "{} is partly literal, but a segment is either literal or a parameter",
                quote(segment)
            ),
            "match such paths by `path` with a pattern, or use a parameter for the whole segment"
                .to_owned(),
        ),
        _ => reject_needless_escapes(text, segment),
    }
}

/// Paths are compared after unreserved characters are decoded, so an escaped one would never match.
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
                    "{} is not a template: {} is a needless escape of {}",
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

/// Whether a normalized path matches a template. For checks; requests are matched by an index.
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
    fn templates_are_parsed_without_a_trailing_slash() {
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
    fn invalid_templates_are_rejected_with_a_suggestion() {
        for (text, expected) in [
            ("", "write `/`"),
            ("login", "write `/login`"),
            ("https://a.example/x", "match the host by `host`"),
            ("/a?b=1", "write `/a`, and match parameters"),
            ("/a b", "%20"),
            ("/v1/:id", "write `/v1/{id}`"),
            ("/v1/*", "write `/v1/{*rest}`"),
            ("/*/x", "write `/{any}/x`"),
            ("/{*rest}/x", "write `/{rest}/x`"),
            ("/v{n}/x", "match such paths by `path`"),
            ("/{}/x", "names have letters"),
            ("/{1}/x", "names have letters"),
            ("/{a}/{a}", "each parameter name once"),
            ("/a//b", "one `/`"),
            ("///", "one `/`"),
            ("/a/../b", "resolved path"),
            ("/%7Euser", "write `/~user`"),
            ("/100%", "%25"),
        ] {
            let error = parse_template(text).unwrap_err();
            let help = error.help.unwrap();
            assert!(help.contains(expected), "{text}: {help}");
        }
        assert!(parse_template(&"/a".repeat(65)).is_err());
    }

    #[test]
    fn paths_match_templates_segment_by_segment() {
        let holds = |t: &str, path| template_matches(&parse_template(t).unwrap(), path);
        assert!(holds("/a/{id}", "/a/7"));
        assert!(!holds("/a/{id}", "/a"));
        assert!(!holds("/a/{id}", "/a/7/b"));
        assert!(holds("/a/{*rest}", "/a/7/b"));
        assert!(holds("/a", "/a/"));
    }
}

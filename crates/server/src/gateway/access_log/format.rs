//! The format of an access log: `text`, `combined`, `json`, or a string with nginx's variables.
//!
//! A format is parsed once, at startup; a mistake is reported with its variable and position. Must not know: requests,
//! where lines are written.

use std::fmt;
use std::str::FromStr;

use hyper::header::HeaderName;

use super::variable::{NamedVariable, Variable};

/// The longest format, and its most variables.
const MAX_LEN: usize = 4_096;
const MAX_VARIABLES: usize = 64;

/// The format of nginx and Apache that most tools read.
const COMBINED: &str = r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent""#;
/// What `text` adds to it.
const TEXT: &str = r#" request_time=$request_time upstream_addr="$upstream_addr" upstream_time=$upstream_response_time route="$tollgate_route" decision=$tollgate_decision limit="$tollgate_limit" wait=$tollgate_wait request_id=$request_id"#;
const JSON: &str = r#"escape=json {"time":"$time_iso8601","request_id":"$request_id","remote_addr":"$remote_addr","method":"$request_method","host":"$host","uri":"$request_uri","protocol":"$server_protocol","status":$status,"body_bytes_sent":$body_bytes_sent,"request_time":$request_time,"route":"$tollgate_route","upstream_addr":"$upstream_addr","upstream_status":$upstream_status,"upstream_response_time":$upstream_response_time,"decision":"$tollgate_decision","reason":"$tollgate_reason","limit":"$tollgate_limit","wait":$tollgate_wait,"referer":"$http_referer","user_agent":"$http_user_agent"}"#;

/// The format of an access log.
///
/// ```
/// use tollgate_server::gateway::AccessLogFormat;
///
/// let format: AccessLogFormat = "$remote_addr $status $tollgate_decision".parse()?;
/// let wrong = "$remote_addr $statsu".parse::<AccessLogFormat>().unwrap_err();
/// assert_eq!(wrong.to_string(), "unknown variable `$statsu` at position 14; did you mean `$status`?");
/// # Ok::<(), tollgate_server::gateway::InvalidAccessLogFormat>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogFormat {
    pub(super) parts: Vec<Part>,
    pub(super) escape: Escape,
    /// The header fields of requests and responses that the format names.
    pub(super) request_fields: Vec<HeaderName>,
    pub(super) response_fields: Vec<HeaderName>,
}

/// A piece of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Text(Box<str>),
    Variable {
        variable: Variable,
        /// Whether it stands between quotes.
        is_quoted: bool,
    },
}

/// How values are escaped. Neither lets a client write a line of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Escape {
    /// `\xHH` for quotes, backslashes and what is not printable ASCII, `-` for nothing: nginx's default.
    Default,
    Json,
}

/// Why a format is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidAccessLogFormat {
    message: String,
}

impl InvalidAccessLogFormat {
    fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
        }
    }
}

impl Default for AccessLogFormat {
    fn default() -> Self {
        // The format is a constant, and a test parses it.
        "text".parse().unwrap_or_else(|_never| Self::empty())
    }
}

impl FromStr for AccessLogFormat {
    type Err = InvalidAccessLogFormat;

    fn from_str(text: &str) -> Result<Self, InvalidAccessLogFormat> {
        match text {
            "text" => Self::parse(&format!("{COMBINED}{TEXT}")),
            "combined" => Self::parse(COMBINED),
            "json" => Self::parse(JSON),
            _ if !text.contains('$') => Err(InvalidAccessLogFormat::new(
                "it must be text, combined, json, or a format with variables such as `$remote_addr $status`",
            )),
            _ => Self::parse(text),
        }
    }
}

impl AccessLogFormat {
    const fn empty() -> Self {
        Self {
            parts: Vec::new(),
            escape: Escape::Default,
            request_fields: Vec::new(),
            response_fields: Vec::new(),
        }
    }

    fn parse(text: &str) -> Result<Self, InvalidAccessLogFormat> {
        if text.len() > MAX_LEN {
            let message = format!("it has {} bytes; at most {MAX_LEN} are allowed", text.len());
            return Err(InvalidAccessLogFormat::new(message));
        }
        if let Some(at) = text.find(char::is_control) {
            let message = format!("control character at position {}", at.saturating_add(1));
            return Err(InvalidAccessLogFormat::new(message));
        }
        let mut format = Self::empty();
        let mut rest = text;
        if let Some(after) = text.strip_prefix("escape=") {
            let (name, after) = after.split_once(' ').unwrap_or((after, ""));
            format.escape = match name {
                "default" => Escape::Default,
                "json" => Escape::Json,
                other => {
                    let message = format!(
                        "`escape={other}` at position 1; it must be escape=default or escape=json"
                    );
                    return Err(InvalidAccessLogFormat::new(message));
                }
            };
            rest = after;
        }
        let mut is_quoted = false;
        while let Some((before, after)) = rest.split_once('$') {
            // Counted from 1, as editors do.
            let position = text.len().saturating_sub(after.len());
            is_quoted ^= has_open_quote(before);
            format.push_text(before);
            if let Some(after) = after.strip_prefix('$') {
                format.push_text("$");
                rest = after;
                continue;
            }
            let (name, after) = variable_name(after, position)?;
            let variable = format.variable(name, position)?;
            format.push_variable(variable, is_quoted, (name, position))?;
            rest = after;
        }
        format.push_text(rest);
        Ok(format)
    }

    fn push_text(&mut self, text: &str) {
        match self.parts.last_mut() {
            _ if text.is_empty() => {}
            Some(Part::Text(last)) => *last = format!("{last}{text}").into(),
            _ => self.parts.push(Part::Text(text.into())),
        }
    }

    fn push_variable(
        &mut self,
        variable: Variable,
        is_quoted: bool,
        (name, position): (&str, usize),
    ) -> Result<(), InvalidAccessLogFormat> {
        let is_number = matches!(variable, Variable::Named(named) if named.is_number());
        if self.escape == Escape::Json && !is_quoted && !is_number {
            return Err(InvalidAccessLogFormat::new(format!(
                "`${name}` at position {position} is text and needs quotes in JSON"
            )));
        }
        let is_variable = |part: &&Part| matches!(part, Part::Variable { .. });
        if self.parts.iter().filter(is_variable).count() >= MAX_VARIABLES {
            return Err(InvalidAccessLogFormat::new(format!(
                "`${name}` at position {position} is one variable too many; at most {MAX_VARIABLES} are allowed"
            )));
        }
        self.parts.push(Part::Variable {
            variable,
            is_quoted,
        });
        Ok(())
    }

    fn variable(
        &mut self,
        name: &str,
        position: usize,
    ) -> Result<Variable, InvalidAccessLogFormat> {
        if let Some(named) = NamedVariable::parse(name) {
            return Ok(Variable::Named(named));
        }
        let field = |name: &str| HeaderName::from_bytes(name.replace('_', "-").as_bytes()).ok();
        type FieldVariable = fn(usize) -> Variable;
        let fields = [
            (
                "http_",
                &mut self.request_fields,
                Variable::RequestField as FieldVariable,
            ),
            (
                "sent_http_",
                &mut self.response_fields,
                Variable::ResponseField as FieldVariable,
            ),
        ];
        for (prefix, fields, variable) in fields {
            if let Some(field) = name.strip_prefix(prefix).and_then(field) {
                let known = fields.iter().position(|known| *known == field);
                return Ok(variable(known.unwrap_or_else(|| {
                    fields.push(field);
                    fields.len().saturating_sub(1)
                })));
            }
        }
        let mut names = super::variable::NAMES.iter().map(|(name, _)| *name);
        let help = match names.find(|known| is_similar(name, known)) {
            Some(meant) => format!("did you mean `${meant}`?"),
            None => "docs/gateway.md lists all".to_owned(),
        };
        let message = format!("unknown variable `${name}` at position {position}; {help}");
        Err(InvalidAccessLogFormat::new(message))
    }
}

/// The name behind `$`, also in braces, and the text after it.
fn variable_name(after: &str, position: usize) -> Result<(&str, &str), InvalidAccessLogFormat> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (name, rest) = match after.strip_prefix('{') {
        Some(inner) => inner.split_once('}').ok_or_else(|| {
            InvalidAccessLogFormat::new(format!("`${{` at position {position} has no `}}`"))
        })?,
        None => after.split_at(after.find(|c| !is_name(c)).unwrap_or(after.len())),
    };
    match !name.is_empty() && name.chars().all(is_name) {
        true => Ok((name, rest)),
        false => Err(InvalidAccessLogFormat::new(format!(
            "no variable follows `$` at position {position}; write `$$` for a dollar sign"
        ))),
    }
}

/// Whether a text has an odd number of quotes that no backslash precedes.
fn has_open_quote(text: &str) -> bool {
    let mut is_escaped = false;
    let mut is_quote = |byte: &u8| {
        let is_quote = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_quote
    };
    text.as_bytes().iter().filter(|byte| is_quote(byte)).count() % 2 == 1
}

/// Whether two names have the same letters, or all but one.
fn is_similar(name: &str, known: &str) -> bool {
    let sorted = |name: &str| {
        let mut letters: Vec<u8> = name.bytes().collect();
        letters.sort_unstable();
        letters
    };
    let (mut letters, known) = (sorted(name), sorted(known));
    if name.len() > 64 {
        return false;
    }
    let missing = known
        .iter()
        .filter(|letter| {
            let found = letters.iter().position(|one| one == *letter);
            found.map(|at| letters.swap_remove(at)).is_none()
        })
        .count();
    missing.max(letters.len()) <= 1
}

impl fmt::Display for InvalidAccessLogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for InvalidAccessLogFormat {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(text: &str) -> String {
        let error = text.parse::<AccessLogFormat>().unwrap_err();
        error.to_string()
    }

    #[test]
    fn the_formats_with_a_name_are_valid() {
        for name in ["text", "combined", "json"] {
            let format: AccessLogFormat = name.parse().unwrap();
            assert!(format.parts.len() > 10, "{name}");
        }
        assert_ne!(AccessLogFormat::default(), AccessLogFormat::empty());
    }

    #[test]
    fn a_mistake_is_reported_with_its_variable_and_position() {
        for (format, expected) in [
            ("", "it must be text, combined, json, or a format"),
            ("jsno", "it must be text, combined, json, or a format"),
            (
                "$remote_addr $statsu",
                "unknown variable `$statsu` at position 14; did you mean `$status`?",
            ),
            (
                "$x",
                "unknown variable `$x` at position 1; docs/gateway.md lists all",
            ),
            ("$http_", "unknown variable `$http_` at position 1"),
            ("$status $", "no variable follows `$` at position 9"),
            ("$status $-", "no variable follows `$` at position 9"),
            ("${status", "`${` at position 1 has no `}`"),
            ("${}", "no variable follows `$` at position 1"),
            ("$status\n$msec", "control character at position 8"),
            ("escape=none $status", "`escape=none` at position 1"),
            (
                "escape=json {\"a\":$http_x}",
                "`$http_x` at position 18 is text and needs quotes in JSON",
            ),
            (
                "escape=json {\"a\":\"$status\",\"b\":$host}",
                "`$host` at position 32 is text and needs quotes",
            ),
        ] {
            assert!(
                error(format).contains(expected),
                "{format:?}: {}",
                error(format)
            );
        }
        assert!(error(&"$status".repeat(65)).contains("one variable too many"));
        assert!(error(&format!("$status{}", "x".repeat(5_000))).contains("at most 4096"));
    }

    #[test]
    fn fields_are_named_once_and_dollars_can_be_written() {
        let format: AccessLogFormat = "$$5 ${http_x_a}$http_x_a $sent_http_etag".parse().unwrap();
        assert_eq!(format.request_fields, ["x-a"]);
        assert_eq!(format.response_fields, ["etag"]);
        assert_eq!(format.parts.first(), Some(&Part::Text("$5 ".into())));
    }

    proptest! {
        /// Any text is a format or an error with a position, and never a panic.
        #[test]
        fn any_text_is_a_format_or_an_error(text in "(escape=(json|default|x) )?([a-z$\"{}\\\\ \n_]|\\$status|\\$\\{http_a\\}|ü){0,40}") {
            match text.parse::<AccessLogFormat>() {
                Ok(format) => prop_assert!(format.parts.len() <= text.len()),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}

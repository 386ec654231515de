//! The readings of a path: as each kind of server reads it.
//!
//! Servers differ in six points: whether an escaped slash separates segments, whether a backslash does, what becomes of
//! `;parameters`, whether `.` and `..` are resolved, whether `..` removes an empty segment, and whether `//` begins a host.
//! [`READERS`] are the combinations that servers in use have, so a path has at most that many readings. All of them decode
//! escapes once and merge the slashes that are left. Must not know: letter case, policies.

use super::inspect::{PathFeatures, inspect};
use super::percent::{PathByte, PercentDecoder, push_decoded};
use crate::model::PathParameters;

/// How a kind of server reads paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct PathReader {
    /// `%2F` separates segments.
    splits_at_escaped_slash: bool,
    /// `\` and `%5C` separate segments.
    splits_at_backslash: bool,
    parameters: ParameterReading,
    /// `.` and `..` are resolved.
    resolves_dots: bool,
    /// `..` removes the segment before it even if that is empty, and `%5C` separates nothing. So do URL parsers.
    counts_empty_segments: bool,
    /// What follows `//` at the beginning is a host.
    skips_authority: bool,
}

/// What a reader does with `;parameters` of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParameterReading {
    Keep,
    /// Removes them before it decodes escapes.
    StripThenDecode,
    /// Removes them after it decodes escapes.
    DecodeThenStrip,
}

const fn reader(
    splits_at_escaped_slash: bool,
    splits_at_backslash: bool,
    parameters: ParameterReading,
    resolves_dots: bool,
) -> PathReader {
    PathReader {
        splits_at_escaped_slash,
        splits_at_backslash,
        parameters,
        resolves_dots,
        counts_empty_segments: false,
        skips_authority: false,
    }
}

/// A URL parser, or a server that resolves dots before it merges slashes.
const fn url_parser(
    splits_at_backslash: bool,
    parameters: ParameterReading,
    skips_authority: bool,
) -> PathReader {
    PathReader {
        counts_empty_segments: true,
        skips_authority,
        ..reader(false, splits_at_backslash, parameters, true)
    }
}

/// How servers in use read paths. The first is the reading of RFC 3986.
pub(super) const READERS: [PathReader; 14] = {
    use ParameterReading::{DecodeThenStrip, Keep, StripThenDecode};
    [
        // nginx, HAProxy, Caddy and Traefik to choose a route.
        reader(false, false, Keep, true),
        // Go, Python and Node frameworks that route by the decoded path.
        reader(true, false, Keep, true),
        // Tomcat and Jetty; with encoded slashes allowed; with backslashes allowed, too.
        reader(false, false, StripThenDecode, true),
        reader(true, false, StripThenDecode, true),
        reader(true, true, StripThenDecode, true),
        // IIS and ASP.NET; Envoy with `path_with_escaped_slashes_action`.
        reader(true, true, Keep, true),
        // Applications that decode first and then read the segments with all leniency.
        reader(true, true, DecodeThenStrip, true),
        // Frameworks that route by the path as it was sent (Express), or after decoding only (WSGI).
        reader(false, false, Keep, false),
        reader(true, false, Keep, false),
        reader(true, true, DecodeThenStrip, false),
        // HAProxy with `path-strip-dotdot`; the same before a server that removes parameters.
        url_parser(false, Keep, false),
        url_parser(false, StripThenDecode, false),
        // Envoy with `normalize_path`; Node with `new URL("http://host" + path)`.
        url_parser(true, Keep, false),
        // Node with `new URL(path, base)`, Python with `urlsplit`, PHP with `parse_url`.
        url_parser(true, Keep, true),
    ]
};

/// The reading whose value becomes part of keys: of all spellings of a resource it makes one.
pub(in super::super) const fn canonical_reader(parameters: PathParameters) -> PathReader {
    let parameters = match parameters {
        PathParameters::Keep => ParameterReading::Keep,
        PathParameters::Any | PathParameters::Strip => ParameterReading::DecodeThenStrip,
    };
    reader(true, true, parameters, true)
}

/// The different readings of one path, in a buffer that is reused.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct ReadingSet {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl ReadingSet {
    pub(in super::super) const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Replaces the content by all readings of a path, without its query.
    pub(in super::super) fn read(
        &mut self,
        path: &[u8],
        features: PathFeatures,
        parameters: PathParameters,
    ) {
        self.clear();
        let mut used = [None; READERS.len()];
        for (at, reader) in READERS.iter().enumerate() {
            let reader = Some(reader.limited_to(features, parameters));
            if used.contains(&reader) {
                continue;
            }
            if let Some(place) = used.get_mut(at) {
                *place = reader;
            }
            if let Some(reader) = reader {
                self.push(|bytes| reader.write(path, bytes));
            }
        }
    }

    pub(in super::super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub(in super::super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(in super::super) fn get(&self, index: usize) -> Option<&[u8]> {
        let start = match index.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => 0,
        };
        self.bytes.get(start..*self.ends.get(index)?)
    }

    pub(in super::super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Adds what is written, unless it is there.
    pub(in super::super) fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        let end = self.bytes.len();
        let fresh = self.bytes.get(start..end).unwrap_or_default();
        if self.iter().any(|known| known == fresh) {
            self.bytes.truncate(start);
        } else {
            self.ends.push(end);
        }
    }

    /// Replaces each reading by its lower-case form.
    pub(in super::super) fn make_lowercase(&mut self) {
        self.bytes.make_ascii_lowercase();
    }
}

impl PathReader {
    /// The same reader, without differences that a path with these features or a server with these settings does not
    /// have.
    fn limited_to(self, features: PathFeatures, parameters: PathParameters) -> Self {
        let wanted = match (parameters, self.parameters) {
            (PathParameters::Keep, _) => ParameterReading::Keep,
            (PathParameters::Strip, ParameterReading::Keep) => ParameterReading::StripThenDecode,
            (_, own) => own,
        };
        let can_strip_later =
            features.has_escaped_slash || features.has_backslash || features.has_escaped_semicolon;
        let reading = match wanted {
            ParameterReading::DecodeThenStrip if !can_strip_later => {
                ParameterReading::StripThenDecode
            }
            other => other,
        };
        let has_parameters = match reading {
            ParameterReading::Keep => false,
            ParameterReading::StripThenDecode => features.has_semicolon,
            ParameterReading::DecodeThenStrip => {
                features.has_semicolon || features.has_escaped_semicolon
            }
        };
        Self {
            splits_at_escaped_slash: self.splits_at_escaped_slash && features.has_escaped_slash,
            splits_at_backslash: self.splits_at_backslash && features.has_backslash,
            parameters: match has_parameters {
                true => reading,
                false => ParameterReading::Keep,
            },
            // Removing parameters may leave dots: `..;x`.
            resolves_dots: self.resolves_dots || !features.has_leading_dot,
            counts_empty_segments: self.counts_empty_segments
                && (features.has_backslash
                    || features.has_empty_segment && features.has_leading_dot),
            skips_authority: self.skips_authority && features.has_empty_segment,
        }
    }

    /// Appends the path as this reader reads it. It begins with `/`, and ends with `/` only if the path did or it is the
    /// root.
    pub(in super::super) fn write(self, path: &[u8], out: &mut Vec<u8>) {
        let path = match self.skips_authority {
            true => without_authority(path),
            false => path,
        };
        let start = out.len();
        let mut in_parameters = false;
        let mut segment = out.len();
        out.push(b'/');
        for each in PercentDecoder(path) {
            let PathByte { byte, is_escaped } = each;
            let is_separator = match byte {
                b'/' => !is_escaped || self.splits_at_escaped_slash,
                b'\\' => self.splits_at_backslash && !(is_escaped && self.counts_empty_segments),
                _ => false,
            };
            if in_parameters {
                // Before escapes are decoded, and backslashes replaced, only a slash ends them.
                let is_end = match self.parameters {
                    ParameterReading::StripThenDecode => byte == b'/' && !is_escaped,
                    _ => is_separator,
                };
                if !is_end {
                    continue;
                }
                in_parameters = false;
            }
            if is_separator {
                self.end_segment(start, segment, out);
                segment = out.len();
                out.push(b'/');
            } else if byte == b';' && self.begins_parameters(is_escaped) {
                in_parameters = true;
            } else {
                push_decoded(each, out);
            }
        }
        if !self.end_segment(start, segment, out) {
            out.push(b'/');
        }
        if self.counts_empty_segments {
            merge_slashes(start, out);
        }
    }

    fn begins_parameters(self, is_escaped: bool) -> bool {
        match self.parameters {
            ParameterReading::Keep => false,
            ParameterReading::StripThenDecode => !is_escaped,
            ParameterReading::DecodeThenStrip => true,
        }
    }

    /// Ends the segment that begins at `segment`. Returns false if it is dropped: an empty one, and dots that are
    /// resolved.
    fn end_segment(self, start: usize, segment: usize, out: &mut Vec<u8>) -> bool {
        match out.get(segment..).unwrap_or_default() {
            b"/" if self.counts_empty_segments => return true,
            b"/" => out.truncate(segment),
            b"/." if self.resolves_dots => out.truncate(segment),
            b"/.." if self.resolves_dots => {
                let written = out.get(start..segment).unwrap_or_default();
                let parent = written.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                out.truncate(start + parent);
            }
            _ => return true,
        }
        false
    }
}

/// The path after `//host`, where a backslash is a slash; the whole path if it begins otherwise.
fn without_authority(path: &[u8]) -> &[u8] {
    let is_slash = |byte: &u8| matches!(byte, b'/' | b'\\');
    match path.iter().position(|byte| !is_slash(byte)) {
        Some(slashes @ 2..) => {
            let rest = path.get(slashes..).unwrap_or_default();
            let end = rest.iter().position(is_slash).unwrap_or(rest.len());
            rest.get(end..).unwrap_or_default()
        }
        _ => path,
    }
}

/// Merges the slashes of what was written from `start` on.
fn merge_slashes(start: usize, out: &mut Vec<u8>) {
    let (mut end, mut before) = (start, 0);
    for at in start..out.len() {
        let byte = out.get(at).copied().unwrap_or_default();
        if byte != b'/' || before != b'/' {
            if let Some(place) = out.get_mut(end) {
                *place = byte;
            }
            end += 1;
        }
        before = byte;
    }
    out.truncate(end);
}

/// A path of a policy under the first reading, without a trailing slash.
pub(in super::super) fn normalize_pattern(path: &[u8]) -> Vec<u8> {
    let path = super::without_query(path);
    let (features, _) = inspect(path);
    let mut out = Vec::new();
    let [first, ..] = READERS;
    first
        .limited_to(features, PathParameters::Keep)
        .write(path, &mut out);
    if out.len() > 1 && out.ends_with(b"/") {
        out.pop();
    }
    out
}

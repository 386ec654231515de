//! How servers read paths, written down once more: by splitting and cutting lists of bytes, one step after the other.
//!
//! Shares no code with the reader of paths. Must not know: how the reader works.

use crate::model::{PathCase, PathParameters, PathSettings};

/// A byte, and whether it was written as an escape.
type Byte = (u8, bool);

/// A path under one reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NaivePath {
    pub(super) segments: Vec<Vec<u8>>,
    pub(super) has_slash: bool,
    /// It is compared in lower case.
    pub(super) fold: bool,
}

/// What a server does, in order.
struct Server {
    cuts_raw_parameters: bool,
    separators: &'static [Byte],
    cuts_decoded_parameters: bool,
    resolves_dots: bool,
    counts_empty_segments: bool,
    skips_authority: bool,
}

const SLASH: &[Byte] = &[(b'/', false)];
const SLASHES: &[Byte] = &[(b'/', false), (b'/', true)];
const ALL: &[Byte] = &[(b'/', false), (b'/', true), (b'\\', false), (b'\\', true)];

const BROWSER: &[Byte] = &[(b'/', false), (b'\\', false)];

const fn url_parser(raw: bool, separators: &'static [Byte], authority: bool) -> Server {
    Server {
        counts_empty_segments: true,
        skips_authority: authority,
        ..server(raw, separators, false, true)
    }
}

const fn server(raw: bool, separators: &'static [Byte], decoded: bool, dots: bool) -> Server {
    Server {
        cuts_raw_parameters: raw,
        separators,
        cuts_decoded_parameters: decoded,
        resolves_dots: dots,
        counts_empty_segments: false,
        skips_authority: false,
    }
}

const SERVERS: [Server; 14] = [
    server(false, SLASH, false, true),
    server(false, SLASHES, false, true),
    server(true, SLASH, false, true),
    server(true, SLASHES, false, true),
    server(true, ALL, false, true),
    server(false, ALL, false, true),
    server(false, ALL, true, true),
    server(false, SLASH, false, false),
    server(false, SLASHES, false, false),
    server(false, ALL, true, false),
    url_parser(false, SLASH, false),
    url_parser(true, SLASH, false),
    url_parser(false, BROWSER, false),
    url_parser(false, BROWSER, true),
];

/// All readings of a path; `None` if it cannot be read.
pub(super) fn readings(raw: &[u8], settings: PathSettings) -> Option<Vec<NaivePath>> {
    let sent = raw.split(|byte| *byte == b'?').next().unwrap();
    let whole = decode(sent);
    if whole
        .iter()
        .any(|byte| byte.0.is_ascii_control() || [(b'%', false), (b'#', false)].contains(byte))
    {
        return None;
    }
    let mut all = Vec::new();
    for server in &SERVERS {
        let (raw_cut, decoded_cut) = match settings.parameters {
            PathParameters::Any => (server.cuts_raw_parameters, server.cuts_decoded_parameters),
            PathParameters::Keep => (false, false),
            PathParameters::Strip => (
                !server.cuts_decoded_parameters,
                server.cuts_decoded_parameters,
            ),
        };
        let path = read(sent, server, raw_cut, decoded_cut);
        let folds: &[bool] = match settings.case {
            PathCase::Any => &[false, true],
            PathCase::Sensitive => &[false],
            PathCase::Insensitive => &[true],
        };
        for fold in folds {
            let mut path = NaivePath {
                fold: *fold,
                ..path.clone()
            };
            if *fold {
                path.segments
                    .iter_mut()
                    .for_each(|segment| segment.make_ascii_lowercase());
            }
            all.push(path);
        }
    }
    Some(all)
}

fn read(sent: &[u8], server: &Server, raw_cut: bool, decoded_cut: bool) -> NaivePath {
    let is_slash = |byte: &u8| b"/\\".contains(byte);
    let name = sent.iter().position(|byte| !is_slash(byte)).unwrap_or(0);
    let sent = match server.skips_authority && name >= 2 {
        true => {
            let end = sent[name..].iter().position(is_slash);
            end.map_or(&b"/"[..], |end| &sent[name + end..])
        }
        false => sent,
    };
    let mut text: Vec<Vec<u8>> = sent
        .split(|byte| *byte == b'/')
        .map(<[u8]>::to_vec)
        .collect();
    if raw_cut {
        for part in &mut text {
            part.truncate(
                part.iter()
                    .position(|byte| *byte == b';')
                    .unwrap_or(part.len()),
            );
        }
    }
    let bytes = decode(&text.join(&b'/'));
    let mut parts: Vec<Vec<Byte>> = bytes
        .split(|byte| server.separators.contains(byte))
        .map(<[Byte]>::to_vec)
        .collect();
    if decoded_cut {
        for part in &mut parts {
            part.truncate(
                part.iter()
                    .position(|byte| byte.0 == b';')
                    .unwrap_or(part.len()),
            );
        }
    }
    let (mut segments, mut has_slash) = (Vec::new(), false);
    for part in parts {
        let segment: Vec<u8> = part.into_iter().flat_map(kept).collect();
        has_slash = true;
        match &segment[..] {
            b"" if server.counts_empty_segments => segments.push(segment),
            b"" => {}
            b"." if server.resolves_dots => {}
            b".." if server.resolves_dots => drop(segments.pop()),
            _ => {
                segments.push(segment);
                has_slash = false;
            }
        }
    }
    segments.retain(|segment| !segment.is_empty());
    NaivePath {
        segments,
        has_slash,
        fold: false,
    }
}

/// Escaped slashes and percent signs stay escaped.
fn kept(byte: Byte) -> Vec<u8> {
    match byte {
        (b'/', true) => b"%2F".to_vec(),
        (b'%', true) => b"%25".to_vec(),
        (byte, _) => vec![byte],
    }
}

/// Decodes a text of a policy.
pub(super) fn decoded(text: &[u8]) -> Vec<u8> {
    decode(text).into_iter().flat_map(kept).collect()
}

/// The segments of a path in a policy.
pub(super) fn policy_path(text: &[u8]) -> NaivePath {
    let sent = text.split(|byte| *byte == b'?').next().unwrap();
    read(sent, &SERVERS[0], false, false)
}

fn decode(text: &[u8]) -> Vec<Byte> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let escape = text
            .get(at..at + 3)
            .filter(|escape| escape[0] == b'%' && escape[1..].iter().all(u8::is_ascii_hexdigit))
            .and_then(|escape| std::str::from_utf8(&escape[1..]).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match escape {
            Some(byte) => {
                out.push((byte, true));
                at += 3;
            }
            None => {
                out.push((text[at], false));
                at += 1;
            }
        }
    }
    out
}

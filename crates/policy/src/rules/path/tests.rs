//! How single paths are read. `rules/tests/spellings.rs` has properties over all spellings.

use super::*;
use crate::model::PathParameters;

fn readings(raw: &str, parameters: PathParameters) -> Vec<String> {
    let path = without_query(raw.as_bytes());
    let (features, unreadable) = inspect(path);
    assert_eq!(unreadable, None, "{raw}");
    let mut readings = ReadingSet::default();
    readings.read(path, features, parameters);
    let texts: Vec<String> = readings
        .iter()
        .map(|path| String::from_utf8_lossy(path).into_owned())
        .collect();
    if let Some((plain, _)) = plain(raw.as_bytes()) {
        assert_eq!(texts, [String::from_utf8_lossy(plain.full())], "{raw}");
    }
    texts
}

fn first(raw: &str) -> String {
    readings(raw, PathParameters::Any).remove(0)
}

fn canonical(raw: &str) -> String {
    let mut out = Vec::new();
    canonical_reader(PathParameters::Any).write(without_query(raw.as_bytes()), &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn every_spelling_of_rfc_3986_has_the_same_first_reading() {
    for raw in [
        "/a/b",
        "//a//b",
        "/a/./b",
        "/a/x/../b",
        "/%61/b",
        "/a/%2e/b",
        "/x/%2E%2e/a/b",
        "a/b",
        "/../a/b",
        "/a/b?c=/d",
        "/a/b?",
        "/a/.%2e/../../a/b",
    ] {
        assert_eq!(first(raw), "/a/b", "{raw}");
        assert_eq!(canonical(raw), "/a/b", "{raw}");
    }
    for raw in ["/a/b/", "/a/b//", "/a/b/.", "/a/b/c/..", "/a/b/%2e"] {
        assert_eq!(first(raw), "/a/b/", "{raw}");
    }
    for raw in ["", "/", "//", "/..", "/a/..", "?", "."] {
        assert_eq!(first(raw), "/", "{raw}");
    }
    assert_eq!(first("/a%2fb"), "/a%2Fb");
    assert_eq!(first("/a%252fb"), "/a%252fb");
    assert_eq!(first("/A"), "/A");
    assert_eq!(first("/..."), "/...");
    assert_eq!(first("/.well-known/x"), "/.well-known/x");
    assert_eq!(first("/gr%C3%B6%C3%9Fe"), "/größe");
}

#[test]
fn a_plain_path_has_one_reading_and_is_not_copied() {
    for raw in ["/", "/a", "/a/b/", "/a.b/c", "/a?b;c", "/é", "/A"] {
        assert!(plain(raw.as_bytes()).is_some(), "{raw}");
        assert_eq!(readings(raw, PathParameters::Any).len(), 1, "{raw}");
    }
    for raw in [
        "", "a", "/a//b", "/.a", "/a;b", "/a\\b", "/%61", "/a\0", "/\u{7f}", "/\u{800}",
    ] {
        assert_eq!(plain(raw.as_bytes()), None, "{raw}");
    }
    assert_eq!(
        plain(b"/AbC").map(|(_, has_uppercase)| has_uppercase),
        Some(true)
    );
    let longest = format!("/{}", "x".repeat(MAX_PATH_LEN - 1));
    assert!(plain(longest.as_bytes()).is_some());
    assert_eq!(plain(format!("{longest}x").as_bytes()), None);
    assert!(plain(format!("{longest}?x").as_bytes()).is_some());
}

/// What each kind of server makes of the path is among its readings.
#[test]
fn a_path_is_read_as_every_kind_of_server_reads_it() {
    let all = |raw| readings(raw, PathParameters::Any);
    assert_eq!(all("/api%2Flogin"), ["/api%2Flogin", "/api/login"]);
    assert_eq!(all("/api/login%2f"), ["/api/login%2F", "/api/login/"]);
    assert_eq!(all("/api/login;x"), ["/api/login;x", "/api/login"]);
    assert_eq!(all("/api;v=1/login;x"), ["/api;v=1/login;x", "/api/login"]);
    assert_eq!(all("/api\\login"), ["/api\\login", "/api/login"]);
    assert_eq!(all("/api%5Clogin"), ["/api\\login", "/api/login"]);
    assert_eq!(all("/a/../login"), ["/login", "/a/../login"]);
    assert_eq!(all("/.well-known/x"), ["/.well-known/x"]);
    // Tomcat removes `;x` before it resolves dots.
    assert!(all("/public/..;x/login").contains(&"/login".to_owned()));
    // Tomcat with encoded slashes: parameters go before escapes are decoded.
    assert!(all("/x%2Fa;y%2Flogin").contains(&"/x/a".to_owned()));
    assert!(all("/x%2Fa;y%2Flogin").contains(&"/x/a/login".to_owned()));
    let odd = "/A%2Fb\\c;d%5C..%3Bx/./e;f%2F..\\g/..";
    assert!(all(odd).len() <= 14, "{:?}", all(odd));
    // `new URL(path, base)` takes `//name` for a host, and removes an empty segment at `..`.
    assert_eq!(all("//h/api/login"), ["/h/api/login", "/api/login"]);
    assert_eq!(all("/\\\\h\\api/login").last().unwrap(), "/api/login");
    assert_eq!(all("//h"), ["/h", "/"]);
    assert_eq!(all("//"), ["/"]);
    let empty = ["/login", "/api/../login", "/api/login"];
    assert_eq!(all("/api//../login"), empty);
    assert!(all("/api//../x%5C/../login").contains(&"/api/login".to_owned()));
    assert!(all("/api/;/..;/..;/x;/login").contains(&"/x/login".to_owned()));
}

#[test]
fn settings_leave_readings_out() {
    let raw = "/api;v=1/login";
    assert_eq!(readings(raw, PathParameters::Keep), ["/api;v=1/login"]);
    assert_eq!(readings(raw, PathParameters::Strip), ["/api/login"]);
}

#[test]
fn what_no_server_should_read_is_named() {
    for (raw, reason) in [
        (&b"/a%00"[..], Unreadable::ControlCharacter),
        (b"/a\0", Unreadable::ControlCharacter),
        (b"/a%0d%0ab", Unreadable::ControlCharacter),
        (b"/a%7F", Unreadable::ControlCharacter),
        (b"/a%zz", Unreadable::BrokenEscape),
        (b"/a%", Unreadable::BrokenEscape),
        (b"/a%4", Unreadable::BrokenEscape),
        (b"/a%u002fb", Unreadable::BrokenEscape),
        (b"/a%c0%afb", Unreadable::OverlongUtf8),
        (b"/a\xc0\xafb", Unreadable::OverlongUtf8),
        (b"/a%e0%80%af", Unreadable::OverlongUtf8),
        (b"/a%f0%80%80%af", Unreadable::OverlongUtf8),
    ] {
        assert_eq!(inspect(raw).1, Some(reason), "{raw:?}");
    }
    assert_eq!(
        inspect(&[b'/'; MAX_PATH_LEN + 1]).1,
        Some(Unreadable::PathTooLong)
    );
    assert_eq!(inspect(&[b'/'; MAX_PATH_LEN]).1, None);
    for fine in [
        "/%25",
        "/%C3%A9",
        "/%E0%A4%85",
        "/%F0%9F%98%80",
        "/%C0",
        "/a b",
    ] {
        assert_eq!(inspect(fine.as_bytes()).1, None, "{fine}");
    }
}

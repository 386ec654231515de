//! Files of envoyproxy/ratelimit that are put in force again whenever they change, and never when one of them is wrong.
//!
//! One file, or a directory of them as that server has it. Must not know: requests, signals, what files say.

use std::fmt;
use std::hash::Hasher as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use siphasher::sip128::{Hasher128 as _, SipHasher24};
use tollgate_engine::envoy::EnvoyEngine;
use tollgate_engine::{Numbering, StateStore};
use tollgate_policy::envoy::{self, EnvoyPolicy, FilesRefused};
use tollgate_policy::source::{Place, Problem, Problems};
use tollgate_policy::{read_path, text_of_bytes};

use super::seen::Seen;
use super::{Fingerprint, Looked, Reload, Status};

/// The most files in a directory.
const MOST_FILES: usize = 1_000;

/// Where the server that these files are for keeps them below its directory.
const BELOW: &str = "config";

/// Keeps an engine at what files of envoyproxy/ratelimit say.
pub struct EnvoyReloader<S> {
    engine: Arc<EnvoyEngine<S>>,
    path: PathBuf,
    secret: [u8; 16],
    /// Held while the files are looked at, so that an older version of them never replaces a newer one.
    seen: Mutex<Seen>,
}

/// Files as they were read: names and bytes, in order.
type Read = Vec<(PathBuf, Vec<u8>)>;

/// Whether a path is one of envoyproxy/ratelimit's: a directory, or a file that reads like one of them.
#[must_use]
pub fn is_envoys(path: &Path) -> bool {
    if path.is_dir() {
        return true;
    }
    let is_yaml = has_ending(path);
    let text = read_path(path)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    is_yaml && text.is_some_and(|text| envoy::is_one(&text))
}

impl<S: StateStore> EnvoyReloader<S> {
    /// An engine that decides by the files at a path. The secret keys every digest; a fleet shares one.
    ///
    /// # Errors
    /// Everything that is wrong with the files: there must be some to begin with.
    pub fn open(
        path: &Path,
        secret: [u8; 16],
        store: S,
        numbering: &Numbering,
    ) -> Result<Self, FilesRefused> {
        let files = read(path)?;
        let hash = fingerprint(&files, secret);
        let policy = load(&files)?;
        let engine = EnvoyEngine::new(policy, secret, store, numbering)
            .map_err(|error| whole(path, &error.to_string()))?;
        let seen = Seen::first(engine.generation(), engine.store().now(), hash);
        tracing::info!(path = %path.display(), files = files.len(), %hash, "files loaded");
        Ok(Self {
            engine: Arc::new(engine),
            path: path.to_owned(),
            secret,
            seen: Mutex::new(seen),
        })
    }

    /// The engine.
    #[must_use]
    pub const fn engine(&self) -> &Arc<EnvoyEngine<S>> {
        &self.engine
    }

    fn look_at(&self, always: bool) -> Looked {
        let mut seen = self.seen();
        let files = match read(&self.path) {
            Ok(files) => files,
            Err(refused) => {
                seen.unreadable(always);
                return self.refuse(&mut seen, refused);
            }
        };
        let hash = fingerprint(&files, self.secret);
        if !seen.read(&self.path, hash, always) {
            return Looked::Same;
        }
        let replaced = load(&files).and_then(|policy| {
            let replaced = self.engine.replace(policy);
            replaced.map_err(|error| whole(&self.path, &error.to_string()))
        });
        match replaced {
            Ok(generation) => {
                seen.loaded(&self.path, generation, self.engine.store().now(), hash);
                Looked::Swapped(generation)
            }
            Err(refused) => {
                seen.wrong();
                self.refuse(&mut seen, refused)
            }
        }
    }

    fn refuse(&self, seen: &mut Seen, refused: FilesRefused) -> Looked {
        let all = refused.to_string();
        seen.refuse(&self.path, &all, refused.0.into_iter().next())
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // It is written after everything else was done.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: StateStore> Reload for EnvoyReloader<S> {
    fn look(&self) -> Looked {
        self.look_at(false)
    }

    fn reload_now(&self) -> Looked {
        self.look_at(true)
    }

    fn status(&self) -> Status {
        self.seen().status.clone()
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// Reads the file, or all files of the directory.
fn read(path: &Path) -> Result<Read, FilesRefused> {
    let paths = if path.is_dir() {
        list(path)?
    } else {
        vec![path.to_owned()]
    };
    let mut read = Vec::with_capacity(paths.len());
    let mut refused = Vec::new();
    for path in paths {
        match read_path(&path) {
            Ok(bytes) => read.push((path, bytes)),
            Err(problems) => refused.push(problems),
        }
    }
    if refused.is_empty() {
        Ok(read)
    } else {
        Err(FilesRefused(refused))
    }
}

/// The files of a directory, in the order of their names. What begins with a dot is somebody's own.
fn list(directory: &Path) -> Result<Vec<PathBuf>, FilesRefused> {
    for directory in [directory.to_owned(), directory.join(BELOW)] {
        let Ok(entries) = std::fs::read_dir(&directory) else {
            continue;
        };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let mut paths: Vec<PathBuf> = paths.filter(|path| is_one_of_them(path)).collect();
        if paths.len() > MOST_FILES {
            let message = format!("there are more than {MOST_FILES} files in it");
            return Err(whole(&directory, &message));
        }
        if !paths.is_empty() {
            paths.sort();
            return Ok(paths);
        }
    }
    let message = "there are no files in it that end in `.yaml` or `.yml`";
    Err(whole(directory, message))
}

fn is_one_of_them(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    has_ending(path) && !name.starts_with(b".") && path.is_file()
}

fn has_ending(path: &Path) -> bool {
    path.extension()
        .is_some_and(|ending| ending == "yaml" || ending == "yml")
}

fn fingerprint(files: &Read, secret: [u8; 16]) -> Fingerprint {
    let mut hasher = SipHasher24::new_with_key(&secret);
    for (path, bytes) in files {
        for part in [path.as_os_str().as_encoded_bytes(), bytes] {
            // Lengths first, so that no two sets of files read the same.
            hasher.write_u64(part.len() as u64);
            hasher.write(part);
        }
    }
    Fingerprint(hasher.finish128().as_bytes())
}

fn load(files: &Read) -> Result<EnvoyPolicy, FilesRefused> {
    let mut texts = Vec::with_capacity(files.len());
    let mut refused = Vec::new();
    for (path, bytes) in files {
        let name = path.display().to_string();
        match text_of_bytes(bytes.clone(), &name) {
            Ok(text) => texts.push((name, text)),
            Err(problems) => refused.push(problems),
        }
    }
    if !refused.is_empty() {
        return Err(FilesRefused(refused));
    }
    let texts: Vec<(&str, &str)> = texts
        .iter()
        .map(|(name, text)| (&**name, &**text))
        .collect();
    envoy::load(&texts)
}

/// A problem of the files as a whole.
fn whole(path: &Path, why: &str) -> FilesRefused {
    let problem = Problem::bare(Place::START, why);
    let problems = Problems::new(&path.display().to_string(), "", vec![problem]);
    FilesRefused(vec![problems])
}

impl<S> fmt::Debug for EnvoyReloader<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnvoyReloader")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::START;
    use std::fs;
    use tollgate_policy::envoy::{Code, Descriptor, Entry, Request};
    use tollgate_store::{ManualClock, Memory};

    /// A directory that is gone when the test is over.
    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Self {
            let dir = format!("tollgate-files-{}-{name}", std::process::id());
            let dir = std::env::temp_dir().join(dir);
            fs::create_dir_all(&dir).unwrap();
            Self(dir)
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.0.join(name), text).unwrap();
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn file(domain: &str, requests: u32) -> String {
        format!(
            "domain: {domain}\ndescriptors:\n  - key: ip\n    rate_limit: {{ unit: year, requests_per_unit: {requests} }}\n"
        )
    }

    fn open(path: &Path) -> Result<EnvoyReloader<Memory<ManualClock>>, FilesRefused> {
        let store = Memory::with_clock(1_000, ManualClock::at(START)).unwrap();
        EnvoyReloader::open(path, [7; 16], store, &Numbering::default())
    }

    /// How often in a row somebody is admitted.
    fn admitted(reloader: &EnvoyReloader<Memory<ManualClock>>, domain: &str, ip: &str) -> usize {
        let entries = [Entry::new("ip", ip)];
        let descriptors = [Descriptor::new(&entries)];
        let request = Request::new(domain, &descriptors);
        let engine = reloader.engine();
        let is_admitted = || engine.decide(&request, |decided| decided.reply.overall);
        let count = |_: &usize| is_admitted().unwrap() == Code::Ok;
        (0..100).take_while(count).count()
    }

    #[test]
    fn a_directory_is_one_set_of_files_and_changes_are_put_in_force() {
        let dir = Dir::new("set");
        dir.write("a.yaml", &file("a", 2));
        dir.write("b.yml", &file("b", 3));
        dir.write(".hidden.yaml", "not: [right");
        dir.write("notes.txt", "nothing");
        let reloader = open(&dir.0).unwrap();
        assert_eq!(admitted(&reloader, "a", "1"), 2);
        assert_eq!(admitted(&reloader, "b", "1"), 3);
        assert_eq!(reloader.look(), Looked::Same);
        dir.write("b.yml", &file("b", 5));
        dir.write("c.yaml", &file("c", 1));
        assert_eq!(reloader.look(), Looked::Swapped(2));
        // Four were counted, of which one was denied: what was counted stays.
        assert_eq!(admitted(&reloader, "b", "1"), 1);
        assert_eq!(admitted(&reloader, "c", "1"), 1);
        fs::remove_file(dir.0.join("a.yaml")).unwrap();
        assert_eq!(reloader.look(), Looked::Swapped(3));
        assert_eq!(
            admitted(&reloader, "a", "1"),
            100,
            "it is no domain any more"
        );
        assert_eq!(reloader.reload_now(), Looked::Swapped(4));
    }

    #[test]
    fn a_wrong_file_changes_nothing_and_is_named_with_its_line() {
        let dir = Dir::new("wrong");
        dir.write("a.yaml", &file("a", 2));
        let reloader = open(&dir.0).unwrap();
        for (wrong, place, reason) in [
            (
                "domain: b\ndescriptors:\n  - key: ip\n    rate_limit: { unit: fortnight }\n",
                "b.yaml:4:",
                "invalid rate limit unit `fortnight`",
            ),
            ("domain: [", "b.yaml:", ""),
            (&file("a", 1), "b.yaml:1:", "duplicate domain `a`"),
        ] {
            dir.write("b.yaml", wrong);
            assert_eq!(reloader.look(), Looked::Refused, "{wrong}");
            let status = reloader.status();
            assert!(!status.valid && status.generation == 1);
            let error = status.error.unwrap().to_string();
            assert!(error.contains(place) && error.contains(reason), "{error}");
            assert_eq!(reloader.look(), Looked::Same);
        }
        assert_eq!(admitted(&reloader, "a", "1"), 2);
        fs::write(dir.0.join("b.yaml"), [0xff, 0xfe]).unwrap();
        assert_eq!(reloader.look(), Looked::Refused);
        fs::remove_file(dir.0.join("b.yaml")).unwrap();
        assert_eq!(reloader.look(), Looked::Same);
        assert!(reloader.status().valid);
    }

    #[test]
    fn what_is_no_set_of_files_is_refused_to_begin_with() {
        let dir = Dir::new("none");
        let refused = open(&dir.0).unwrap_err().to_string();
        assert!(refused.contains("there are no files in it"), "{refused}");
        assert!(open(&dir.0.join("missing.yaml")).is_err());
        fs::create_dir(dir.0.join(BELOW)).unwrap();
        dir.write("config/a.yaml", &file("a", 1));
        assert_eq!(admitted(&open(&dir.0).unwrap(), "a", "1"), 1);
    }

    #[test]
    fn files_are_told_from_policies_of_ours() {
        let dir = Dir::new("told");
        dir.write("envoy.yaml", &file("a", 1));
        dir.write("ours.yaml", "limits: [{ name: a, rate: 1/s }]");
        dir.write("wrong.yaml", "domain: [");
        let is = |name: &str| is_envoys(&dir.0.join(name));
        assert!(is("envoy.yaml") && is("") && !is("ours.yaml") && !is("wrong.yaml"));
        assert!(!is("missing.yaml"));
    }
}

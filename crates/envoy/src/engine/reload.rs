//! Reloads files of envoyproxy/ratelimit when they change, and keeps the current ones if a file is invalid.
//!
//! The path is one file, or a directory of files. Must not know: requests, signals, what files contain.

use std::path::{Path, PathBuf};

use tollgate_core::Timestamp;
use tollgate_engine::{LimitIdsExhausted, StateStore};
use tollgate_policy::source::Diagnostics;
use tollgate_policy::{decode_utf8, read_path};
use tollgate_service::reload::{Fingerprint, Reloadable, Reloader, Sources, whole_file_problem};

use super::EnvoyEngine;
use crate::config::{self, EnvoyPolicy, LoadOptions};

/// The most files in a directory.
const MAX_FILES: usize = 1_000;

/// The subdirectory in which envoyproxy/ratelimit keeps its files.
const CONFIG_DIR: &str = "config";

/// Keeps an engine's rules in sync with files of envoyproxy/ratelimit.
pub type EnvoyReloader<S> = Reloader<EnvoyEngine<S>>;

/// Whether a path has files of envoyproxy/ratelimit: it is a directory, or a YAML file with a domain.
#[must_use]
pub fn is_envoy_config_path(path: &Path) -> bool {
    if path.is_dir() {
        return true;
    }
    let is_yaml = has_yaml_extension(path);
    let text = read_path(path)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    is_yaml && text.is_some_and(|text| config::is_envoy_config(&text))
}

impl<S: StateStore> Reloadable for EnvoyEngine<S> {
    type Rules = EnvoyPolicy;
    type Options = LoadOptions;

    fn read(path: &Path) -> Result<Sources, Vec<Diagnostics>> {
        let paths = if path.is_dir() {
            list_files(path)?
        } else {
            vec![path.to_owned()]
        };
        map_files(paths, |path| {
            let bytes = read_path(&path)?;
            Ok((path, bytes))
        })
    }

    fn fingerprint(sources: &Sources, secret: [u8; 16]) -> Fingerprint {
        let parts = sources
            .iter()
            .flat_map(|(path, bytes)| [path.as_os_str().as_encoded_bytes(), bytes]);
        // Length prefixes, so that two sets of files never have the same digest.
        let lengths: Vec<([u8; 8], &[u8])> = parts
            .map(|part| ((part.len() as u64).to_le_bytes(), part))
            .collect();
        Fingerprint::from_parts(
            lengths
                .iter()
                .flat_map(|(length, part)| [length.as_slice(), part]),
            secret,
        )
    }

    fn compile(
        sources: Sources,
        _path: &Path,
        _secret: [u8; 16],
        options: &LoadOptions,
    ) -> Result<EnvoyPolicy, Vec<Diagnostics>> {
        let texts = map_files(sources, |(path, bytes)| {
            let name = path.display().to_string();
            let text = decode_utf8(bytes, &name)?;
            Ok((name, text))
        })?;
        let texts: Vec<(&str, &str)> = texts
            .iter()
            .map(|(name, text)| (&**name, &**text))
            .collect();
        config::load_with(&texts, *options).map_err(|refused| refused.0)
    }

    fn options(&self) -> &LoadOptions {
        &self.load_options
    }

    fn swap(&self, policy: EnvoyPolicy) -> Result<u64, LimitIdsExhausted> {
        self.replace(policy)
    }

    fn limit_names(&self) -> Vec<Box<str>> {
        let totals = self.rule_totals().into_iter();
        totals.map(|(name, _)| name).collect()
    }

    fn generation(&self) -> u64 {
        Self::generation(self)
    }

    fn now(&self) -> Timestamp {
        self.store().now()
    }
}

/// Maps all files, or returns the problems of each file for which `work` fails.
fn map_files<F, T>(
    files: Vec<F>,
    work: impl Fn(F) -> Result<T, Diagnostics>,
) -> Result<Vec<T>, Vec<Diagnostics>> {
    let mut done = Vec::with_capacity(files.len());
    let mut refused = Vec::new();
    for file in files {
        match work(file) {
            Ok(one) => done.push(one),
            Err(problems) => refused.push(problems),
        }
    }
    match refused.is_empty() {
        true => Ok(done),
        false => Err(refused),
    }
}

/// The YAML files of a directory, sorted by name. Hidden files are skipped.
fn list_files(directory: &Path) -> Result<Vec<PathBuf>, Vec<Diagnostics>> {
    for directory in [directory.to_owned(), directory.join(CONFIG_DIR)] {
        let Ok(entries) = std::fs::read_dir(&directory) else {
            continue;
        };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let mut paths: Vec<PathBuf> = paths.filter(|path| is_config_file(path)).collect();
        if paths.len() > MAX_FILES {
            let message = format!("there are more than {MAX_FILES} files in it");
            return Err(vec![whole_file_problem(&directory, &message)]);
        }
        if !paths.is_empty() {
            paths.sort();
            return Ok(paths);
        }
    }
    let message = "there are no files in it that end in `.yaml` or `.yml`";
    Err(vec![whole_file_problem(directory, message)])
}

fn is_config_file(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    has_yaml_extension(path) && !name.starts_with(b".") && path.is_file()
}

fn has_yaml_extension(path: &Path) -> bool {
    path.extension()
        .is_some_and(|ending| ending == "yaml" || ending == "yml")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    use crate::config::{Descriptor, DescriptorEntry, InvalidFiles, RlsCode, RlsRequest};
    use tollgate_engine::LimitIdAllocator;
    use tollgate_service::reload::ReloadOutcome;
    use tollgate_store::{ManualClock, MemoryStore};

    const START: Timestamp = Timestamp::from_secs(1_700_000_000);

    /// A temporary directory, removed on drop.
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

    fn open(path: &Path) -> Result<EnvoyReloader<MemoryStore<ManualClock>>, InvalidFiles> {
        open_with(path, LoadOptions::default())
    }

    fn open_with(
        path: &Path,
        options: LoadOptions,
    ) -> Result<EnvoyReloader<MemoryStore<ManualClock>>, InvalidFiles> {
        let store = MemoryStore::with_clock(1_000, ManualClock::at(START)).unwrap();
        let make = |files| {
            let engine = EnvoyEngine::new(files, [7; 16], store, &LimitIdAllocator::default())?;
            Ok(engine.with_load_options(options))
        };
        EnvoyReloader::open(path, [7; 16], &options, make).map_err(InvalidFiles)
    }

    /// The number of consecutive admitted requests.
    fn admitted(
        reloader: &EnvoyReloader<MemoryStore<ManualClock>>,
        domain: &str,
        ip: &str,
    ) -> usize {
        let entries = [DescriptorEntry::new("ip", ip)];
        let descriptors = [Descriptor::new(&entries)];
        let request = RlsRequest::new(domain, &descriptors);
        let engine = reloader.engine();
        let is_admitted = || engine.decide(&request, |verdict| verdict.reply.overall);
        let count = |_: &usize| is_admitted().unwrap() == RlsCode::Ok;
        (0..100).take_while(count).count()
    }

    #[test]
    fn a_directory_is_one_set_of_files_and_changes_are_loaded() {
        let dir = Dir::new("set");
        dir.write("a.yaml", &file("a", 2));
        dir.write("b.yml", &file("b", 3));
        dir.write(".hidden.yaml", "not: [right");
        dir.write("notes.txt", "nothing");
        let reloader = open(&dir.0).unwrap();
        assert_eq!(admitted(&reloader, "a", "1"), 2);
        assert_eq!(admitted(&reloader, "b", "1"), 3);
        assert_eq!(reloader.reload_if_changed(), ReloadOutcome::Unchanged);
        dir.write("b.yml", &file("b", 5));
        dir.write("c.yaml", &file("c", 1));
        assert_eq!(reloader.reload_if_changed(), ReloadOutcome::Reloaded(2));
        // Four requests were counted, one of them denied. The count stays.
        assert_eq!(admitted(&reloader, "b", "1"), 1);
        assert_eq!(admitted(&reloader, "c", "1"), 1);
        fs::remove_file(dir.0.join("a.yaml")).unwrap();
        assert_eq!(reloader.reload_if_changed(), ReloadOutcome::Reloaded(3));
        assert_eq!(
            admitted(&reloader, "a", "1"),
            100,
            "the domain no longer exists"
        );
        assert_eq!(reloader.reload_now(), ReloadOutcome::Reloaded(4));
    }

    /// `MERGE_DOMAIN_CONFIG` of envoyproxy/ratelimit could be checked but not served.
    #[test]
    fn files_of_one_domain_are_merged_on_request_also_when_they_change() {
        let dir = Dir::new("merged");
        let other_key = |requests| file("a", requests).replace("key: ip", "key: user");
        dir.write("a.yaml", &file("a", 2));
        dir.write("b.yaml", &other_key(3));
        let refused = open(&dir.0).unwrap_err().to_string();
        assert!(refused.contains("b.yaml:1:") && refused.contains("duplicate domain `a`"));
        let options = LoadOptions {
            merge_domains: true,
            ..LoadOptions::default()
        };
        let reloader = open_with(&dir.0, options).unwrap();
        assert_eq!(reloader.engine().explain().len(), 2);
        dir.write("c.yaml", &file("a", 1).replace("key: ip", "key: host"));
        assert_eq!(reloader.reload_if_changed(), ReloadOutcome::Reloaded(2));
        assert_eq!(reloader.engine().explain().len(), 3);
        // One descriptor in two files is a mistake also then.
        dir.write("c.yaml", &other_key(1));
        assert_eq!(reloader.reload_if_changed(), ReloadOutcome::Rejected);
        let error = reloader.status().error.unwrap().to_string();
        assert!(
            error.contains("duplicate descriptor composite key `a.user`"),
            "{error}"
        );
        assert_eq!(admitted(&reloader, "a", "1"), 2);
    }

    #[test]
    fn an_invalid_file_changes_nothing_and_the_error_names_its_line() {
        let dir = Dir::new("wrong");
        dir.write("a.yaml", &file("a", 2));
        let reloader = open(&dir.0).unwrap();
        for (wrong, location, reason) in [
            (
                "domain: b\ndescriptors:\n  - key: ip\n    rate_limit: { unit: fortnight }\n",
                "b.yaml:4:",
                "invalid rate limit unit `fortnight`",
            ),
            ("domain: [", "b.yaml:", ""),
            (&file("a", 1), "b.yaml:1:", "duplicate domain `a`"),
        ] {
            dir.write("b.yaml", wrong);
            assert_eq!(
                reloader.reload_if_changed(),
                ReloadOutcome::Rejected,
                "{wrong}"
            );
            let status = reloader.status();
            assert!(!status.valid && status.generation == 1);
            let error = status.error.unwrap().to_string();
            assert!(
                error.contains(location) && error.contains(reason),
                "{error}"
            );
            assert_eq!(reloader.reload_if_changed(), ReloadOutcome::Unchanged);
        }
        assert_eq!(admitted(&reloader, "a", "1"), 2);
        fs::write(dir.0.join("b.yaml"), [0xff, 0xfe]).unwrap();
        assert_eq!(reloader.reload_if_changed(), ReloadOutcome::Rejected);
        fs::remove_file(dir.0.join("b.yaml")).unwrap();
        assert_eq!(reloader.reload_if_changed(), ReloadOutcome::Unchanged);
        assert!(reloader.status().valid);
    }

    #[test]
    fn a_path_without_files_is_refused() {
        let dir = Dir::new("none");
        let refused = open(&dir.0).unwrap_err().to_string();
        assert!(refused.contains("there are no files in it"), "{refused}");
        assert!(open(&dir.0.join("missing.yaml")).is_err());
        fs::create_dir(dir.0.join(CONFIG_DIR)).unwrap();
        dir.write("config/a.yaml", &file("a", 1));
        assert_eq!(admitted(&open(&dir.0).unwrap(), "a", "1"), 1);
    }

    #[test]
    fn envoy_files_are_distinguished_from_policies() {
        let dir = Dir::new("told");
        dir.write("envoy.yaml", &file("a", 1));
        dir.write("ours.yaml", "limits: [{ name: a, rate: 1/s }]");
        dir.write("wrong.yaml", "domain: [");
        let is = |name: &str| is_envoy_config_path(&dir.0.join(name));
        assert!(is("envoy.yaml") && is("") && !is("ours.yaml") && !is("wrong.yaml"));
        assert!(!is("missing.yaml"));
    }
}

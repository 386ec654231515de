//! The wall clock of a server, moved by a test: a small library of our own, loaded into the server before the C library.
//!
//! Must not know: what runs on that clock. Linux only; anywhere else a test that asks for it fails and says so.

use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const SOURCE: &str = include_str!("shim.c");
/// Which library is loaded first, and which file it reads.
const PRELOAD: &str = "LD_PRELOAD";
const HANDS: &str = "TOLLGATE_CLOCK";
/// Where the two numbers stand in the file.
const HELD: u64 = 0;
const OFFSET: u64 = 8;

/// Numbers the files of this process, so that two threads never write the same.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The wall clock of one server. It stands still at first: what a test does not move does not move.
#[derive(Debug)]
pub struct ShimmedClock {
    file: File,
    path: PathBuf,
    offset: i64,
}

impl ShimmedClock {
    /// A clock that is held at this instant, counted from 1970.
    ///
    /// # Errors
    /// Its file cannot be written.
    pub fn held_at(instant: Duration) -> Result<Self, String> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tollgate-clock-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let clock = Self {
            file,
            path,
            offset: 0,
        };
        clock.write(HELD, nanos(instant))?;
        clock.write(OFFSET, 0)?;
        Ok(clock)
    }

    /// Makes a program that is yet to be started run on this clock.
    ///
    /// # Errors
    /// The library that moves it cannot be made on this machine.
    pub fn wind(&self, command: &mut Command) -> Result<(), String> {
        command.env(PRELOAD, library()?).env(HANDS, &self.path);
        Ok(())
    }

    /// Moves the clock ahead.
    ///
    /// # Panics
    /// The clock's file cannot be written.
    pub fn advance(&mut self, by: Duration) {
        self.turn(nanos(by));
    }

    /// Moves the clock back.
    ///
    /// # Panics
    /// The clock's file cannot be written.
    pub fn set_back(&mut self, by: Duration) {
        self.turn(-nanos(by));
    }

    /// Lets the clock run with the machine's, from wherever that and the moves so far put it.
    ///
    /// # Panics
    /// The clock's file cannot be written.
    pub fn run(&mut self) {
        if let Err(error) = self.write(HELD, 0) {
            failed(&error);
        }
    }

    fn turn(&mut self, by: i64) {
        self.offset = self.offset.saturating_add(by);
        if let Err(error) = self.write(OFFSET, self.offset) {
            failed(&error);
        }
    }

    /// The server has the same page of memory mapped, so it sees the number as soon as this returns; eight aligned
    /// bytes are copied in one piece.
    fn write(&self, place: u64, number: i64) -> Result<(), String> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(place))
            .and_then(|_place| file.write_all(&number.to_ne_bytes()))
            .map_err(|error| format!("the clock cannot be moved: {error}"))
    }
}

impl Drop for ShimmedClock {
    fn drop(&mut self) {
        if std::fs::remove_file(&self.path).is_err() {
            eprintln!("{} could not be removed", self.path.display());
        }
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// The library, compiled when first asked for.
fn library() -> Result<PathBuf, String> {
    if !cfg!(target_os = "linux") {
        return Err("a server's clock can be moved on Linux only; run this test there".to_owned());
    }
    let test = std::env::current_exe().map_err(|error| error.to_string())?;
    // A test lies in `target/debug/deps`.
    let target = test.ancestors().nth(3).ok_or("there is no target folder")?;
    library_in(&target.join("shim"))
}

/// Its name holds a digest of its source, so a changed source is a new one.
fn library_in(folder: &Path) -> Result<PathBuf, String> {
    let mut digest = DefaultHasher::new();
    SOURCE.hash(&mut digest);
    let ready = folder.join(format!("clock-{:016x}.so", digest.finish()));
    if !ready.is_file() {
        std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let draft = folder.join(format!("draft-{}-{number}", std::process::id()));
        compile(&draft)?;
        // Tests that race each make a draft; renaming replaces the whole file or nothing, and all are the same.
        std::fs::rename(&draft, &ready).map_err(|error| error.to_string())?;
    }
    Ok(ready)
}

/// With the compiler that Rust links with, so nothing more need be installed.
fn compile(to: &Path) -> Result<(), String> {
    let mut compiler = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror"])
        .args(["-x", "c", "-", "-o"])
        .arg(to)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("`cc` is needed to make the clock shim: {error}"))?;
    if let Some(mut input) = compiler.stdin.take() {
        let written = input.write_all(SOURCE.as_bytes());
        written.map_err(|error| error.to_string())?;
    }
    let ended = compiler.wait_with_output();
    let ended = ended.map_err(|error| error.to_string())?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    Err(format!("`cc` did not compile the clock shim:\n{said}"))
}

#[expect(clippy::panic, reason = "a test whose clock does not move must fail")]
fn failed(message: &str) -> ! {
    panic!("{message}")
}

#[cfg(test)]
mod tests {
    use super::{ShimmedClock, library, library_in};
    use std::process::Command;
    use std::time::Duration;

    fn seconds(clock: &ShimmedClock) -> String {
        let mut date = Command::new("date");
        date.arg("+%s");
        clock.wind(&mut date).unwrap();
        let said = date.output().unwrap();
        assert!(said.status.success(), "{said:?}");
        String::from_utf8(said.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn a_program_sees_the_clock_where_the_test_puts_it() {
        let mut clock = ShimmedClock::held_at(Duration::from_secs(1_000_000)).unwrap();
        assert_eq!(seconds(&clock), "1000000");
        clock.advance(Duration::from_secs(3_600));
        assert_eq!(seconds(&clock), "1003600");
        clock.set_back(Duration::from_secs(86_400));
        assert_eq!(seconds(&clock), "917200");
        clock.run();
        assert!(seconds(&clock).len() > 9, "with the machine's");
    }

    #[test]
    fn a_program_without_its_clock_does_not_start() {
        let mut date = Command::new("date");
        date.env(super::PRELOAD, library().unwrap());
        date.env(super::HANDS, "/nonexistent/clock");
        assert_eq!(date.status().unwrap().code(), Some(97));
    }

    #[test]
    fn tests_that_race_find_one_library() {
        let name = format!("tollgate-shim-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let found = std::thread::scope(|scope| {
            let racers = [(); 4].map(|()| scope.spawn(|| library_in(&folder)));
            racers.map(|racer| racer.join().unwrap().unwrap())
        });
        assert!(found.iter().all(|path| *path == found[0]));
        let left = std::fs::read_dir(&folder).unwrap().count();
        assert_eq!(left, 1, "no draft is left behind");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

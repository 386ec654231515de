//! A program of somebody else's that a test starts: what it says is kept, and it ends, with its folder, when this is dropped.
//!
//! Must not know: which program it is, and what it is for.

use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long anything may take on a busy machine. Only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(30);
/// How long to wait before a condition is looked at again.
const PAUSE: Duration = Duration::from_millis(5);
/// Another process may take the free port between finding it and using it.
const ATTEMPTS: u32 = 5;

/// A running program. It is killed by its id when this is dropped; what it said is shown if the test has failed.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    said: Arc<ProcessOutput>,
    /// Dropped after the program has ended.
    _folder: TempFolder,
}

impl Process {
    /// Starts a program that may keep files in `folder`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(name: &str, command: &mut Command, folder: TempFolder) -> Result<Self, String> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{name} cannot be started: {error}"))?;
        let said = Arc::new(ProcessOutput::default());
        if let Some(output) = child.stdout.take() {
            said.listen_to(output);
        }
        if let Some(output) = child.stderr.take() {
            said.listen_to(output);
        }
        Ok(Self {
            name: name.to_owned(),
            child,
            said,
            _folder: folder,
        })
    }

    /// Waits until it has said `words` in a line.
    ///
    /// # Errors
    /// It ended, or took too long. The message is everything that it said.
    pub fn until_it_says(&self, words: &str) -> Result<(), String> {
        let missing = |text: &mut OutputText| !text.has_ended() && !text.all.contains(words);
        let waited = self
            .said
            .changed
            .wait_timeout_while(self.said.text(), DEADLINE, missing);
        let (text, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if text.all.contains(words) {
            return Ok(());
        }
        Err(format!(
            "{} did not say `{words}`, but:\n{}",
            self.name, text.all
        ))
    }

    /// Waits until a condition holds, and returns what came of it.
    ///
    /// # Errors
    /// The program ended, or it took too long. The message is everything that the program said.
    pub fn until<T>(
        &self,
        what: &str,
        mut condition: impl FnMut() -> Option<T>,
    ) -> Result<T, String> {
        let times = DEADLINE.as_millis() / PAUSE.as_millis();
        for _ in 0..times {
            if let Some(result) = condition() {
                return Ok(result);
            }
            // Whatever it says, or its end, is a reason to look again at once.
            let waited = self.said.changed.wait_timeout(self.said.text(), PAUSE);
            let (text, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if text.has_ended() {
                break;
            }
        }
        Err(format!(
            "{}: {what} did not come true; it said:\n{}",
            self.name,
            self.log()
        ))
    }

    /// Everything that it said so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.said.text().all.clone()
    }

    /// Its number, by which the operating system knows it.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal by its name: `STOP`, `CONT`, `TERM`.
    ///
    /// # Errors
    /// It cannot be sent.
    pub fn signal(&self, signal: &str) -> Result<(), String> {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &id]).status();
        match sent {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("kill -s {signal} {id} ended with {status}")),
            Err(error) => Err(format!("kill cannot be started: {error}")),
        }
    }

    /// Stops it in its tracks, as if the machine had no time for it, and waits until it stands still: the signal is sent
    /// at once, but each of its threads notices by itself. `signal("CONT")` lets it go on.
    ///
    /// # Errors
    /// It does not stand still.
    pub fn freeze(&self) -> Result<(), String> {
        self.signal("STOP")?;
        let threads = PathBuf::from(format!("/proc/{}/task", self.child.id()));
        self.until("standing still", || stands_still(&threads).then_some(()))
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(&mut self) {
        // Already gone is as good; waited for in any case, so that nothing is left behind.
        if self.child.kill().is_err() || self.child.wait().is_err() {
            eprintln!("{} could not be killed", self.name);
        }
    }

    /// Waits until it has ended by itself, which somebody else has told it to do.
    ///
    /// # Errors
    /// It goes on.
    pub fn wait(&mut self) -> Result<ExitStatus, String> {
        // A program that ends closes what it speaks through; only then is it safe to wait without a deadline.
        let goes_on = |text: &mut OutputText| !text.has_ended();
        let waited = self
            .said
            .changed
            .wait_timeout_while(self.said.text(), DEADLINE, goes_on);
        let (text, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if !text.has_ended() {
            return Err(format!("{} goes on:\n{}", self.name, text.all));
        }
        drop(text);
        self.child.wait().map_err(|error| error.to_string())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("{} said:\n{}", self.name, self.log());
        }
    }
}

/// Whether every thread is stopped, by the third word of what the system says of it; the second is a name in parentheses.
fn stands_still(threads: &Path) -> bool {
    let is_stopped = |thread: fs::DirEntry| {
        let said = fs::read_to_string(thread.path().join("stat")).ok()?;
        let (_, behind) = said.rsplit_once(") ")?;
        behind.starts_with('T').then_some(())
    };
    fs::read_dir(threads)
        .is_ok_and(|mut threads| threads.all(|thread| thread.ok().and_then(is_stopped).is_some()))
}

/// What a program has written, on both ways out.
#[derive(Debug, Default)]
struct ProcessOutput {
    text: Mutex<OutputText>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct OutputText {
    all: String,
    opened: u32,
    closed: u32,
}

impl OutputText {
    const fn has_ended(&self) -> bool {
        self.opened == self.closed
    }
}

impl ProcessOutput {
    fn text(&self) -> MutexGuard<'_, OutputText> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listen_to(self: &Arc<Self>, output: impl Read + Send + 'static) {
        self.text().opened += 1;
        let said = Arc::clone(self);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let mut text = said.text();
                text.all.push_str(&line);
                text.all.push('\n');
                said.changed.notify_all();
            }
            said.text().closed += 1;
            said.changed.notify_all();
        });
    }
}

/// A folder of its own that is removed when this is dropped.
#[derive(Debug)]
pub struct TempFolder(PathBuf);

impl TempFolder {
    /// Makes one; no other of this process or another has the same.
    ///
    /// # Errors
    /// The temporary folder cannot be written to.
    pub fn new(name: &str) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tollgate-{name}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file in it, and says where that is.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf, String> {
        let path = self.0.join(name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        if fs::remove_dir_all(&self.0).is_err() {
            eprintln!("{} could not be removed", self.0.display());
        }
    }
}

/// An address on the loopback interface that nobody listened on a moment ago, for programs that cannot choose one by
/// themselves.
///
/// # Errors
/// There is none.
pub fn free_address() -> Result<SocketAddr, String> {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .map_err(|error| format!("no free port: {error}"))
}

/// Starts something on a free port, and tries again on another if it does not come up.
///
/// # Panics
/// It never came up.
pub fn on_a_free_port<T>(name: &str, start: impl Fn(SocketAddr) -> Result<T, String>) -> T {
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        match free_address().and_then(&start) {
            Ok(started) => return started,
            Err(error) => last = error,
        }
    }
    failed(&format!("{name} did not start: {last}"))
}

#[expect(clippy::panic, reason = "a test without its program must fail")]
pub(crate) fn failed(message: &str) -> ! {
    panic!("{message}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        let folder = TempFolder::new("shell").unwrap();
        Process::start("sh", Command::new("sh").args(["-c", script]), folder).unwrap()
    }

    #[test]
    fn what_it_says_is_heard_on_both_ways_out() {
        let process = shell("echo one; echo two >&2; exec cat /dev/zero > /dev/null");
        assert_eq!(process.until_it_says("one"), Ok(()));
        assert_eq!(process.until_it_says("two"), Ok(()));
        assert_eq!(process.until("anything", || Some(7)), Ok(7));
    }

    #[test]
    fn one_that_ends_early_fails_at_once_with_what_it_said() {
        let process = shell("echo the port is taken; exit 3");
        let error = process.until_it_says("ready").unwrap_err();
        assert!(error.contains("the port is taken"), "{error}");
        let error = process.until("an answer", || None::<()>).unwrap_err();
        assert!(error.contains("the port is taken"), "{error}");
    }

    #[test]
    fn it_ends_with_its_folder_when_it_is_dropped() {
        let folder = TempFolder::new("dropped").unwrap();
        let path = folder.path().to_owned();
        let file = folder.write("a.txt", "a").unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$; exec cat /dev/zero > /dev/null"]);
        let process = Process::start("sh", &mut command, folder).unwrap();
        process.until_it_says("\n").unwrap();
        let id = process.log().trim().to_owned();
        assert!(file.is_file() && Path::new("/proc").join(&id).exists());
        drop(process);
        assert!(!path.exists() && !Path::new("/proc").join(&id).exists());
    }

    #[test]
    fn a_signal_ends_it_and_its_end_can_be_awaited() {
        let mut process = shell("trap 'echo bye; exit 4' TERM; echo up; while :; do :; done");
        process.until_it_says("up").unwrap();
        process.signal("TERM").unwrap();
        assert_eq!(process.wait().unwrap().code(), Some(4));
        assert!(process.log().contains("bye"));
    }

    #[test]
    fn one_that_is_frozen_stands_still_until_it_is_told_to_go_on() {
        let mut process = shell("trap 'echo bye; exit 4' TERM; echo up; while :; do :; done");
        process.until_it_says("up").unwrap();
        let threads = PathBuf::from(format!("/proc/{}/task", process.child.id()));
        assert!(!stands_still(&threads));
        process.freeze().unwrap();
        assert!(stands_still(&threads));
        process.signal("TERM").unwrap();
        assert!(stands_still(&threads));
        process.signal("CONT").unwrap();
        assert_eq!(process.wait().unwrap().code(), Some(4));
    }

    #[test]
    fn a_program_that_does_not_exist_is_an_error() {
        let folder = TempFolder::new("none").unwrap();
        let mut command = Command::new("no-such-program-here");
        let error = Process::start("nothing", &mut command, folder).unwrap_err();
        assert!(error.starts_with("nothing cannot be started"), "{error}");
    }
}

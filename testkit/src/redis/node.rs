//! One server among several: killed, paused, resumed and started again at the same address with the same folder, and asked
//! for anything over a connection of its own.
//!
//! Must not know: which part it plays among the others.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::program::ServerProgram;
use crate::process::{TempFolder, failed};

/// How long anything may take on a busy machine. Only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(60);
/// How long to wait before a condition is looked at again.
const PAUSE: Duration = Duration::from_millis(10);
/// How long a server that is paused may keep a question waiting.
const ANSWER: Duration = Duration::from_secs(5);
/// The bus of a cluster is this far above the port.
const BUS: u16 = 10_000;

/// A server that can be hurt. It ends, with its folder, when this is dropped.
#[derive(Debug)]
pub struct RedisNode {
    program: PathBuf,
    arguments: Vec<String>,
    address: SocketAddr,
    folder: TempFolder,
    child: Option<Child>,
}

impl RedisNode {
    /// Starts a server on a free port.
    ///
    /// # Panics
    /// It does not come up.
    #[must_use]
    pub fn start(kind: ServerProgram, arguments: &[&str]) -> Self {
        Self::start_prepared(kind, arguments, None)
    }

    /// The same with a file of settings in its folder, which it may write to.
    pub(super) fn start_prepared(
        kind: ServerProgram,
        arguments: &[&str],
        settings: Option<&str>,
    ) -> Self {
        let mut last = String::new();
        // Another process may take a port between finding it and using it.
        for _ in 0..5 {
            let address = free_address();
            let folder = TempFolder::new("node").unwrap_or_else(|error| failed(&error));
            let mut all = Vec::new();
            if let Some(settings) = settings {
                let file = folder.write("settings.conf", settings);
                let file = file.unwrap_or_else(|error| failed(&error));
                all.push(file.display().to_string());
            }
            all.extend(["--port".to_owned(), address.port().to_string()]);
            all.extend(["--bind", "127.0.0.1", "--dir"].map(str::to_owned));
            all.push(folder.path().display().to_string());
            all.extend(["--logfile".to_owned(), "log".to_owned()]);
            all.extend(arguments.iter().map(|&argument| argument.to_owned()));
            let mut node = Self {
                program: kind.program(),
                arguments: all,
                address,
                folder,
                child: None,
            };
            node.spawn();
            match node.until_up() {
                Ok(()) => return node,
                Err(error) => last = error,
            }
        }
        failed(&format!("{kind:?} did not start: {last}"))
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens, as a client wants it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// The folder that it keeps files in.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Kills it at once, and waits until it is gone.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take()
            && (child.kill().is_err() || child.wait().is_err())
        {
            eprintln!("the server at {} could not be killed", self.address);
        }
    }

    /// Stops it where it stands: its connections stay open and nobody answers.
    ///
    /// # Panics
    /// It does not run.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// Lets it go on.
    ///
    /// # Panics
    /// It does not run.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// Starts it again, after a kill, at the same address and with what is in its folder.
    ///
    /// # Panics
    /// It does not come up.
    pub fn restart(&mut self) {
        self.kill();
        self.spawn();
        if let Err(error) = self.until_up() {
            failed(&format!(
                "the server at {} did not come up again: {error}",
                self.address
            ));
        }
    }

    /// Starts it again, after a kill, at the same address and with nothing in its folder.
    ///
    /// # Panics
    /// It does not come up, or its files cannot be removed.
    pub fn restart_empty(&mut self) {
        self.kill();
        for kept in ["dump.rdb", "appendonlydir", "appendonly.aof"] {
            let path = self.folder.path().join(kept);
            let removed = if path.is_dir() {
                std::fs::remove_dir_all(&path)
            } else if path.exists() {
                std::fs::remove_file(&path)
            } else {
                Ok(())
            };
            if let Err(error) = removed {
                failed(&format!("{}: {error}", path.display()));
            }
        }
        self.restart();
    }

    /// Asks a command, and answers with the reply as text: lists are joined by lines, errors begin with `-`.
    ///
    /// # Errors
    /// There is no reply.
    pub fn try_ask(&self, words: &[&str]) -> std::io::Result<String> {
        ask(self.address, words)
    }

    /// Asks a command.
    ///
    /// # Panics
    /// There is no reply, or it is an error.
    #[must_use]
    pub fn ask(&self, words: &[&str]) -> String {
        match self.try_ask(words) {
            Ok(reply) if !reply.starts_with('-') => reply,
            Ok(error) => failed(&format!("{words:?} at {}: {error}", self.address)),
            Err(error) => failed(&format!("{words:?} at {}: {error}", self.address)),
        }
    }

    /// Tells it to do something and does not care what it answers, unless that is an error.
    ///
    /// # Panics
    /// There is no reply, or it is an error.
    pub fn tell(&self, words: &[&str]) {
        let _reply = self.ask(words);
    }

    /// What it says of itself under a name in `INFO`.
    #[must_use]
    pub fn info(&self, name: &str) -> Option<String> {
        let info = self.try_ask(&["INFO", "everything"]).ok()?;
        let mut lines = info.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = lines.find(|(key, _)| *key == name)?;
        Some(value.trim().to_owned())
    }

    /// How often it has carried a command out, as it says itself: `evalsha`.
    #[must_use]
    pub fn calls(&self, command: &str) -> u64 {
        let info = self.ask(&["INFO", "commandstats"]);
        super::info::command(&info, command).map_or(0, |command| command.calls)
    }

    /// The names of all keys, with how many milliseconds each has to live, as `PTTL` says it.
    ///
    /// # Panics
    /// It does not answer.
    #[must_use]
    pub fn times_to_live(&self) -> Vec<(String, i64)> {
        let names = self.ask(&["KEYS", "*"]);
        let names = names.lines().filter(|name| !name.is_empty());
        names
            .map(|name| {
                // Not through `ask`, which takes -2, of a key that is gone meanwhile, for an error.
                let left = self.try_ask(&["PTTL", name]).ok();
                let left = left.and_then(|left| left.parse().ok());
                (name.to_owned(), left.unwrap_or(-1))
            })
            .collect()
    }

    fn spawn(&mut self) {
        let spawned = Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match spawned {
            Ok(child) => self.child = Some(child),
            Err(error) => failed(&format!("{}: {error}", self.program.display())),
        }
    }

    fn until_up(&mut self) -> Result<(), String> {
        for _ in 0..DEADLINE.as_millis() / PAUSE.as_millis() {
            if self
                .try_ask(&["PING"])
                .is_ok_and(|reply| reply == "PONG" || reply.starts_with("-NOAUTH"))
            {
                return Ok(());
            }
            let ended = self.child.as_mut().map(Child::try_wait);
            if matches!(ended, Some(Ok(Some(_)))) {
                break;
            }
            std::thread::park_timeout(PAUSE);
        }
        Err(self.log())
    }

    fn signal(&self, signal: &str) {
        let Some(child) = &self.child else {
            failed(&format!("the server at {} does not run", self.address))
        };
        let id = child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &id]).status();
        if !sent.is_ok_and(|status| status.success()) {
            failed(&format!("{signal} cannot be sent to {id}"));
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for RedisNode {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("log of the server at {}:\n{}", self.address, self.log());
        }
    }
}

/// Waits until a condition holds, looking again and again.
///
/// # Panics
/// It never does.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..DEADLINE.as_millis() / PAUSE.as_millis() {
        if condition() {
            return;
        }
        std::thread::park_timeout(PAUSE);
    }
    failed(&format!("{what}: it did not come true"))
}

fn ask(address: SocketAddr, words: &[&str]) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER)?;
    stream.set_read_timeout(Some(ANSWER))?;
    let mut call = format!("*{}\r\n", words.len());
    for word in words {
        call.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(call.as_bytes())?;
    reply(&mut BufReader::new(stream))
}

fn reply(reader: &mut BufReader<TcpStream>) -> std::io::Result<String> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    let line = line.trim_end();
    let rest = line.get(1..).unwrap_or_default();
    match line.get(..1) {
        Some("$") => match rest.parse::<usize>() {
            Ok(length) => {
                let mut bytes = vec![0; length.saturating_add(2)];
                reader.read_exact(&mut bytes)?;
                bytes.truncate(length);
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            Err(_nothing) => Ok(String::new()),
        },
        Some("*") => {
            let items = (0..rest.parse::<usize>().unwrap_or(0)).map(|_| reply(reader));
            Ok(items.collect::<Result<Vec<_>, _>>()?.join("\n"))
        }
        Some("-") => Ok(line.to_owned()),
        _ => Ok(rest.to_owned()),
    }
}

/// An address whose port is free, and the cluster's bus above it too.
fn free_address() -> SocketAddr {
    for _ in 0..100 {
        let Ok(listener) = TcpListener::bind("127.0.0.1:0") else {
            continue;
        };
        let Ok(address) = listener.local_addr() else {
            continue;
        };
        let Some(bus) = address.port().checked_add(BUS) else {
            continue;
        };
        if TcpListener::bind(("127.0.0.1", bus)).is_ok() {
            return address;
        }
    }
    failed("there is no free port")
}

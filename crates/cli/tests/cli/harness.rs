//! Helpers of all tests: run the program, and temporary folders that are deleted after a test. Must not know: any command.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

/// The exit code, stdout and stderr of a run.
pub(crate) type RunOutput = (Option<i32>, String, String);

pub(crate) fn tollgate(arguments: &[&str]) -> Command {
    program(Path::new(env!("CARGO_BIN_EXE_tollgate")), arguments)
}

/// The same with a program that is not the one under test.
pub(crate) fn program(path: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(path);
    command.args(arguments);
    // Tests run in parallel, so servers must not use the default ports.
    command.env("TOLLGATE_LISTEN_ADMIN", "off");
    command.env("TOLLGATE_LISTEN_GRPC", "off");
    command
}

pub(crate) fn output(arguments: &[&str]) -> RunOutput {
    run_output(tollgate(arguments).output().unwrap())
}

pub(crate) fn run_output(output: Output) -> RunOutput {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// The root of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// A temporary folder in which the program runs.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tollgate-cli-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// A folder with these files.
    pub(crate) fn with(files: &[(&str, &str)]) -> Self {
        let folder = Self::new();
        for (name, text) in files {
            folder.write(name, text.as_bytes());
        }
        folder
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.0.join(name), bytes).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> RunOutput {
        let mut command = tollgate(arguments);
        run_output(command.current_dir(&self.0).output().unwrap())
    }

    /// Runs the program with text on stdin.
    pub(crate) fn run_on(&self, arguments: &[&str], stdin: &str) -> RunOutput {
        let mut command = tollgate(arguments);
        command.current_dir(&self.0).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        pipe.write_all(stdin.as_bytes()).unwrap();
        drop(pipe);
        run_output(child.wait_with_output().unwrap())
    }

    /// Runs the program with `--json`. Returns the exit code and the output.
    pub(crate) fn json(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        let with_json: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
        let (code, stdout, stderr) = self.run(&with_json);
        assert_eq!(stderr, "", "JSON output goes only to stdout");
        let answer =
            serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"));
        (code, answer)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

//! Running other programs, with their output passed through or captured.
//!
//! Knows nothing of what the programs are for.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The cargo that started us, so that every step uses the same toolchain.
pub(crate) fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    without_own_package(Command::new(program))
}

/// A cargo of another toolchain, such as `+nightly`. Only rustup's own `cargo` understands that word.
pub(crate) fn cargo_of(toolchain: &str) -> Command {
    let mut command = Command::new("cargo");
    command
        .arg(toolchain)
        .env_remove("CARGO")
        .env_remove("RUSTUP_TOOLCHAIN");
    without_own_package(command)
}

/// The `cargo build` of what this `cargo run` starts.
pub(crate) fn build_of(run: &Command) -> Command {
    // The first word is `run`.
    let words = run.get_args().skip(1);
    let mut build = cargo();
    build.arg("build");
    build.args(words.take_while(|word| *word != OsStr::new("--")));
    build
}

/// Without the variables by which `cargo run` tells a program its package. Build scripts such as ring's run again if one of them has
/// changed, so everything over ring was compiled anew whenever a contributor built in turn with and without xtask.
fn without_own_package(mut command: Command) -> Command {
    let own = std::env::vars_os().map(|(name, _)| name).filter(|name| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    });
    for name in own {
        command.env_remove(name);
    }
    command
}

/// Runs to the end with output passed through. Anything but success is an error that shows the command.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let shown = show(command);
    println!("$ {shown}");
    let status = command
        .status()
        .map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    if status.success() {
        return Ok(());
    }
    Err(format!("`{shown}` ended with {status}"))
}

/// Runs to the end and returns what was written to (standard output, standard error).
pub(crate) fn capture(command: &mut Command) -> Result<(String, String), String> {
    let shown = show(command);
    let output = command
        .output()
        .map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok((text(&output.stdout), text(&output.stderr)));
    }
    Err(format!(
        "`{shown}` ended with {}\n{}",
        output.status,
        text(&output.stderr)
    ))
}

/// Whether the program starts and succeeds, with nothing shown.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Whether a program of this name lies on the search path, or where distributions put servers, which is not on everybody's.
pub(crate) fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin")])
        .any(|folder| folder.join(program).is_file())
}

/// The error for words after a command that takes none.
pub(crate) fn no_arguments(command: &str, args: &[String]) -> Result<(), String> {
    match args.first() {
        None => Ok(()),
        Some(word) => Err(format!(
            "`{command}` takes no arguments, but was given `{word}`"
        )),
    }
}

/// The command as one would type it.
fn show(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    std::iter::once(name)
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test itself was started by cargo, which named this package.
    #[test]
    fn what_xtask_builds_does_not_depend_on_its_own_package() {
        for command in [cargo(), cargo_of("+nightly")] {
            let mut names = command.get_envs().filter(|(_, value)| value.is_none());
            assert!(names.any(|(name, _)| name == "CARGO_MANIFEST_DIR"));
        }
    }

    #[test]
    fn a_program_is_built_as_it_is_run_without_its_own_arguments() {
        let mut run = cargo();
        run.args([
            "run",
            "--release",
            "-p",
            "bench",
            "--bin",
            "run",
            "--",
            "--quick",
        ]);
        let build = build_of(&run);
        let words: Vec<_> = build.get_args().collect();
        assert_eq!(words, ["build", "--release", "-p", "bench", "--bin", "run"]);
    }

    #[test]
    fn a_failing_program_is_an_error_that_shows_the_command() {
        let error = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        assert!(error.contains("sh -c exit 3"), "{error}");
        assert!(capture(Command::new("sh").args(["-c", "exit 3"])).is_err());
        assert!(!succeeds(Command::new("sh").args(["-c", "exit 3"])));
    }

    #[test]
    fn a_program_that_does_not_exist_is_an_error_and_not_a_panic() {
        assert!(run(&mut Command::new("no-such-program-here")).is_err());
        assert!(!succeeds(&mut Command::new("no-such-program-here")));
        assert!(!on_path("no-such-program-here"));
        assert!(on_path("sh"));
    }
}

//! Behaviour of all commands: colors, closed pipes, completions, the schema, help.

use std::process::Stdio;

use crate::harness::{Folder, output, repository, tollgate};

#[test]
fn output_to_a_pipe_is_colored_only_on_request() {
    let folder = Folder::with(&[("a.yaml", "limits: 7\n")]);
    let coloured = |arguments: &[&str]| folder.run(arguments).2.contains('\u{1b}');
    assert!(!coloured(&["check", "a.yaml"]), "a pipe is not a terminal");
    assert!(!coloured(&["check", "a.yaml", "--color", "never"]));
    assert!(coloured(&["check", "a.yaml", "--color", "always"]));
    assert!(coloured(&["--color=always", "check", "a.yaml"]));
    let tests = "policy: b.yaml\ntests: [{ name: t, steps: [{ expect: allowed }] }]\n";
    let folder = Folder::with(&[
        ("b.yaml", "limits: [{ name: a, rate: 1/s }]\n"),
        ("b.test.yaml", tests),
    ]);
    assert!(!folder.run(&["test", "b.test.yaml"]).1.contains('\u{1b}'));
    let (_, stdout, _) = folder.run(&["test", "b.test.yaml", "--color=always"]);
    assert!(stdout.contains("\u{1b}[32mok\u{1b}[0m"), "{stdout}");
    let (code, _, stderr) = output(&["--color=sometimes", "schema"]);
    assert_eq!(code, Some(2));
    assert!(
        stderr.contains("[possible values: auto, always, never]"),
        "{stderr}"
    );
}

/// `tollgate schema | head -1` must not end with a panic.
#[test]
fn a_closed_pipe_is_not_an_error() {
    let policy = repository().join("policies/layered.yaml");
    let policy = policy.to_str().unwrap();
    let commands = [
        &["schema"][..],
        &["completions", "bash"],
        &["explain", policy],
    ];
    for arguments in commands {
        let mut command = tollgate(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Closes the pipe.
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(0), "{arguments:?}");
        assert_eq!(String::from_utf8(ended.stderr).unwrap(), "");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let mut command = tollgate(&["schema"]);
    let ended = command.stdout(full.unwrap()).output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let stderr = String::from_utf8(ended.stderr).unwrap();
    assert!(
        stderr.starts_with("error: cannot write to stdout: "),
        "{stderr}"
    );
}

#[test]
fn every_shell_gets_completions_of_every_command() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let (code, stdout, stderr) = output(&["completions", shell]);
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{shell}");
        for word in ["check", "explain", "descriptor", "merge-domains"] {
            assert!(stdout.contains(word), "{shell} has no {word}");
        }
    }
    assert_eq!(output(&["completions", "tcsh"]).0, Some(2));
}

#[test]
fn the_schema_equals_the_published_file() {
    let (code, stdout, _) = output(&["schema"]);
    assert_eq!(code, Some(0));
    let published = std::fs::read_to_string(repository().join("docs/policy.schema.json")).unwrap();
    let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(read(&stdout), read(&published));
}

#[test]
fn every_command_has_help_and_needs_its_arguments() {
    for command in ["check", "explain", "test", "completions", "schema", "serve"] {
        let (code, stdout, _) = output(&[command, "--help"]);
        assert_eq!(code, Some(0), "{command}");
        assert!(stdout.contains("Usage: tollgate "), "{stdout}");
    }
    for command in ["check", "explain", "test", "completions"] {
        let (code, stdout, stderr) = output(&[command]);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{command}");
        assert!(
            stderr.contains("required arguments were not provided"),
            "{stderr}"
        );
    }
    let (code, _, stderr) = output(&["explian"]);
    assert_eq!(code, Some(2));
    assert!(
        stderr.contains("a similar subcommand exists: 'explain'"),
        "{stderr}"
    );
}

#[test]
fn manual_pages_are_written_for_every_command() {
    let folder = Folder::new();
    assert_eq!(
        folder.run(&["man", "."]),
        (Some(0), String::new(), String::new())
    );
    let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let (_, help, _) = output(&["--help"]);
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let commands: Vec<&str> = commands
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(commands.len() >= 9, "{commands:?}");
    for command in commands {
        assert!(
            page("tollgate.1").contains(&format!("tollgate\\-{command}(1)")),
            "{command}"
        );
        assert!(page(&format!("tollgate-{command}.1")).contains(".SH DESCRIPTION"));
    }
    // Settings with their variables are what people look for.
    let serve = page("tollgate-serve.1");
    assert!(serve.contains("TOLLGATE_LISTEN_GRPC") && serve.contains("\\-\\-listen\\-grpc"));
    // A page of `help` and an unusable folder help nobody.
    assert!(!folder.path().join("tollgate-help.1").exists());
    let (code, _, stderr) = folder.run(&["man", "missing"]);
    assert_eq!(code, Some(1));
    assert!(
        stderr.contains("cannot write manual pages into missing"),
        "{stderr}"
    );
}

//! The systemd unit, the Dockerfile and the commands of `docs/running.md` use only settings that the program has.

use std::process::Command;

use crate::harness::{Folder, output, repository, run_output, tollgate};

fn file(path: &str) -> String {
    let path = repository().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every `TOLLGATE_` variable in a text.
fn variables(text: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_ascii_uppercase() || c == '_';
    text.match_indices("TOLLGATE_")
        .map(|(at, _)| {
            let rest = &text[at..];
            &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())]
        })
        .collect()
}

/// Whether the program accepts these arguments, checked with `--help`.
fn is_accepted(arguments: &[&str]) -> bool {
    let with_help: Vec<&str> = arguments.iter().copied().chain(["--help"]).collect();
    output(&with_help).0 == Some(0)
}

fn all_are_settings(text: &str) {
    let (_, settings, _) = output(&["settings"]);
    for variable in variables(text) {
        assert!(settings.contains(variable), "there is no {variable}");
    }
}

/// The value of a line `name=value`, which must occur once.
fn value<'a>(unit: &'a str, name: &str) -> &'a str {
    let start = format!("{name}=");
    let mut found = unit.lines().filter_map(|line| line.strip_prefix(&start));
    let value = found.next().unwrap_or_else(|| panic!("{name} is missing"));
    assert_eq!(found.next(), None, "{name} occurs twice");
    value
}

#[test]
fn the_unit_uses_only_existing_settings() {
    let unit = file("packaging/systemd/tollgate.service");
    let start: Vec<&str> = value(&unit, "ExecStart").split(' ').collect();
    assert_eq!(start[0], "/usr/bin/tollgate");
    assert!(is_accepted(&start[1..]), "{start:?}");
    all_are_settings(&unit);
    assert_eq!(
        value(&unit, "Type"),
        "notify",
        "and it does notify: running.rs"
    );
    assert_eq!(value(&unit, "ExecReload"), "/bin/kill -HUP $MAINPID");
    for (hardening, wanted) in [
        ("DynamicUser", "yes"),
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("RestrictAddressFamilies", "AF_INET AF_INET6 AF_UNIX"),
        ("RuntimeDirectory", "tollgate"),
        ("Restart", "on-failure"),
    ] {
        assert_eq!(value(&unit, hardening), wanted, "{hardening}");
    }
    // The defaults must fit the limits of the unit.
    let page = file("docs/settings.md");
    let default = |flag: &str| {
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| `--{flag} ")));
        let default = row.unwrap().split('`').nth(5).unwrap();
        default.trim_end_matches('s').parse::<u64>().unwrap()
    };
    let stop = value(&unit, "TimeoutStopSec").trim_end_matches('s');
    assert!(stop.parse::<u64>().unwrap() > default("drain-delay") + default("drain-timeout"));
    let files: u64 = value(&unit, "LimitNOFILE").parse().unwrap();
    assert!(files >= 4 * default("max-connections") + 64);
}

/// systemd-analyze verifies the unit, with the path of the test binary.
#[test]
fn systemd_accepts_the_unit() {
    let unit = file("packaging/systemd/tollgate.service");
    let folder = Folder::new();
    let verify = |text: &str| {
        folder.write("tollgate.service", text.as_bytes());
        let path = folder.path().join("tollgate.service");
        let mut command = Command::new("systemd-analyze");
        command.arg("verify").arg(path).output()
    };
    let unit = unit.replace("/usr/bin/tollgate", env!("CARGO_BIN_EXE_tollgate"));
    let found = verify(&unit).unwrap_or_else(|error| {
        panic!("systemd-analyze: {error}. Install it and run again:\n    apt-get install systemd")
    });
    let (_, stdout, stderr) = run_output(found);
    assert!(
        !format!("{stdout}{stderr}").contains("tollgate.service"),
        "{stdout}{stderr}"
    );
    // Negative control: a misspelled setting is reported.
    let (_, stdout, stderr) =
        run_output(verify(&unit.replace("ProtectHome=yes", "ProtectHom=yes")).unwrap());
    assert!(
        format!("{stdout}{stderr}").contains("ProtectHom"),
        "{stdout}{stderr}"
    );
}

/// The port that a listener has without a setting, as `docs/settings.md` says.
fn default_port(flag: &str) -> String {
    let page = file("docs/settings.md");
    let start = format!("| `--{flag} ");
    let row = page.lines().find(|line| line.starts_with(&start)).unwrap();
    let default = row.split('`').nth(5).unwrap();
    default.rsplit_once(':').unwrap().1.to_owned()
}

#[test]
fn the_dockerfile_uses_existing_files_and_commands() {
    let dockerfile = file("Dockerfile");
    let ignored = file(".dockerignore");
    for line in dockerfile
        .lines()
        .filter(|line| line.starts_with("COPY --from=build /src/"))
    {
        let source = line.split(' ').nth(2).unwrap().trim_start_matches("/src/");
        // What `cargo xtask dist` makes; the tests of xtask compare these lines with it.
        if source.starts_with("target/dist/root/") {
            continue;
        }
        assert!(repository().join(source).exists(), "{source}");
        assert!(
            !ignored.lines().any(|entry| source.starts_with(entry)),
            "{source} is ignored"
        );
    }
    let version = file("Cargo.toml");
    let version = version.split("rust-version = \"").nth(1).unwrap();
    let version = version.split('"').next().unwrap();
    assert!(
        dockerfile.contains(&format!("FROM rust:{version}-")),
        "{version}"
    );
    let user = dockerfile.split("\nUSER ").nth(1).unwrap();
    assert!(
        user.starts_with(|c: char| ('1'..='9').contains(&c)),
        "a number that is not root's"
    );
    all_are_settings(&dockerfile);
    // The ports are those that clients find everywhere else in the guide: the defaults, but for the admin listener.
    let exposed = dockerfile.split("\nEXPOSE ").nth(1).unwrap();
    let exposed: Vec<&str> = exposed.lines().next().unwrap().split(' ').collect();
    let defaults: Vec<String> = ["listen", "listen-grpc", "listen-resp"]
        .map(default_port)
        .to_vec();
    assert_eq!(exposed, defaults);
    for (variable, port) in ["", "_GRPC", "_RESP"].iter().zip(&defaults) {
        let line = format!("TOLLGATE_LISTEN{variable}=0.0.0.0:{port} ");
        assert!(dockerfile.contains(&line), "{line}");
    }
    for secret in ["SECRET", "PASSWORD", "TOKEN", "KEY="] {
        assert!(!dockerfile.contains(secret), "{secret}");
    }
    for command in [&["serve"][..], &["health"]] {
        assert!(is_accepted(command));
        assert!(dockerfile.contains(&format!("\"{}\"]", command[0])));
    }
    // The variables have valid values.
    let mut serve = tollgate(&["serve", "--config=/nowhere.yaml"]);
    let set = dockerfile
        .split("ENV ")
        .nth(1)
        .unwrap()
        .split("EXPOSE")
        .next()
        .unwrap();
    for setting in set.split_whitespace().filter(|word| *word != "\\") {
        let (name, value) = setting.split_once('=').unwrap();
        serve.env(name, value);
    }
    let (code, _, stderr) = run_output(serve.output().unwrap());
    assert_eq!(code, Some(1));
    assert!(
        stderr.contains("/nowhere.yaml"),
        "only the policy is missing: {stderr}"
    );
}

/// The install lines of the README name a package that has the program, and a command that exists. Building it takes minutes, so
/// `cargo xtask test` packs the program that tests have built instead, and installs that.
#[test]
fn the_install_lines_of_the_readme_name_what_exists() {
    let readme = file("README.md");
    let install = readme
        .lines()
        .find_map(|line| line.strip_prefix("cargo install "))
        .unwrap();
    let words: Vec<&str> = install.split_whitespace().collect();
    assert_eq!(
        words[..2],
        ["--locked", "--path"],
        "the versions that CI tests"
    );
    let manifest = file(&format!("{}/Cargo.toml", words[2]));
    assert!(
        manifest.contains("[[bin]]\nname = \"tollgate\"\n"),
        "{manifest}"
    );
    assert!(repository().join("Cargo.lock").exists());
    assert!(readme.contains("\ncargo xtask dist "));
    let minimum = file("Cargo.toml");
    let minimum = minimum.split("rust-version = \"").nth(1).unwrap();
    let minimum = minimum.split('"').next().unwrap();
    assert!(readme.contains(&format!("You need Rust {minimum}.")));
    // The archive that the guide unpacks has the version of the program.
    let version = output(&["--version"]).1.trim().replace(' ', "-");
    let page = file("docs/running.md");
    let archives: Vec<&str> = page
        .split_whitespace()
        .filter(|word| word.contains(".tar.gz"))
        .collect();
    assert_eq!(archives.len(), 2, "{archives:?}");
    assert!(
        archives.iter().all(|name| name.starts_with(&version)),
        "{archives:?}"
    );
}

#[test]
fn commands_of_the_running_page_are_accepted() {
    let page = file("docs/running.md");
    all_are_settings(&page);
    let commands: Vec<Vec<&str>> = page
        .lines()
        .filter_map(|line| line.strip_prefix("$ tollgate "))
        .map(|command| command.split(' ').collect())
        .collect();
    assert!(commands.len() >= 5);
    for command in &commands {
        assert!(is_accepted(command), "{command:?}");
    }
    assert!(
        !is_accepted(&["serve", "--drain-dely", "5s"]),
        "negative control: an unknown flag is refused"
    );
}

//! Crates that a new user makes of the first examples in `docs/tower.md` and `docs/client.md`: they build the first time, and that of the
//! tower layer runs and limits curl.
//!
//! Only the address is replaced, by a free one. Must not know: how requests are limited.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command};

use crate::process::{capture, cargo, run};
use crate::workspace::Workspace;

const PAGE: &str = "docs/tower.md";
const ADDRESS: &str = "127.0.0.1:3000";
const NAME: &str = "fresh-crate";
const CLIENT_PAGE: &str = "docs/client.md";
const CLIENT_NAME: &str = "fresh-client";
/// The limit of the example, and more requests than it admits while they are sent.
const LIMIT: usize = 100;
const REQUESTS: usize = 300;

/// The step of `cargo xtask test`.
pub(crate) fn check() -> Result<(), String> {
    let workspace = Workspace::load()?;
    let client = read(&workspace, CLIENT_PAGE)?;
    let source = block(CLIENT_PAGE, &client, "rust,ignore")?;
    let dependencies = block(CLIENT_PAGE, &client, "toml")?;
    build(&workspace, CLIENT_NAME, dependencies, source)?;
    let page = read(&workspace, PAGE)?;
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = free.map_err(|error| format!("no free port: {error}"))?;
    let source = block(PAGE, &page, "rust,no_run")?.replace(ADDRESS, &address.to_string());
    if !source.contains(&address.to_string()) {
        return Err(format!("{PAGE}: the example does not listen on {ADDRESS}"));
    }
    build(&workspace, NAME, block(PAGE, &page, "toml")?, &source)?;
    let program = workspace.target.join("debug").join(NAME);
    let child = Command::new(&program).spawn();
    let _running = Running(child.map_err(|error| format!("{}: {error}", program.display()))?);
    // The first request waits until the program listens. The others must not be sent again, as curl would after a 429.
    let patient = ["--retry", "30", "--retry-delay", "1", "--retry-connrefused"];
    let first = heads(&format!("http://{address}/"), &patient)?;
    let others = heads(&format!("http://{address}/?[2-{REQUESTS}]"), &[])?;
    judge(&(first + &others))
}

fn read(workspace: &Workspace, page: &str) -> Result<String, String> {
    fs::read_to_string(workspace.root.join(page)).map_err(|error| format!("{page}: {error}"))
}

/// Builds a crate of its own.
fn build(
    workspace: &Workspace,
    name: &str,
    dependencies: &str,
    source: &str,
) -> Result<(), String> {
    let folder = workspace.target.join(name);
    let manifest = manifest(name, dependencies, &workspace.root);
    write_crate(&folder, &manifest, source).map_err(|error| format!("{name}: {error}"))?;
    // The lock file of the workspace: nothing has to be resolved or downloaded.
    let lock = fs::copy(workspace.root.join("Cargo.lock"), folder.join("Cargo.lock"));
    lock.map_err(|error| format!("Cargo.lock: {error}"))?;
    let mut build = cargo();
    build.args(["build", "--offline"]).current_dir(&folder);
    // As in the workspace, so that cargo builds fewer dependencies again.
    build.env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only");
    run(build.env("CARGO_TARGET_DIR", &workspace.target))
}

/// The heads of the responses that curl gets.
fn heads(url: &str, more: &[&str]) -> Result<String, String> {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-m", "60", "-D", "-", "-o", "/dev/null", url]);
    Ok(capture(curl.args(more))?.0)
}

/// Ends the program when the step ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// The first block of a page in this language.
fn block<'a>(name: &str, page: &'a str, language: &str) -> Result<&'a str, String> {
    let begin = page.split_once(&format!("```{language}\n"));
    let block = begin.and_then(|(_, rest)| rest.split_once("```"));
    let (block, _) = block.ok_or_else(|| format!("{name}: there is no block of {language}"))?;
    Ok(block)
}

/// The manifest of a package with these dependencies. Ours is taken from this folder, because it need not be published.
fn manifest(name: &str, dependencies: &str, root: &Path) -> String {
    let ours = root.join("crates/tollgate");
    format!(
        "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n{dependencies}\n\
         [patch.crates-io]\ntollgate = {{ path = {ours:?} }}\n\n[workspace]\n"
    )
}

fn write_crate(folder: &Path, manifest: &str, source: &str) -> std::io::Result<()> {
    fs::create_dir_all(folder.join("src"))?;
    fs::write(folder.join("Cargo.toml"), manifest)?;
    fs::write(folder.join("src/main.rs"), source)
}

/// The heads of all responses: the limit is admitted, then requests are denied and told when to come back.
fn judge(heads: &str) -> Result<(), String> {
    let heads: Vec<&str> = heads
        .split("\r\n\r\n")
        .filter(|head| !head.is_empty())
        .collect();
    let is_denied = |head: &&str| head.starts_with("HTTP/1.1 429 ");
    let admitted = heads
        .iter()
        .take_while(|head| head.starts_with("HTTP/1.1 200 "))
        .count();
    let denied: Vec<&str> = heads.iter().copied().filter(is_denied).collect();
    if heads.len() != REQUESTS || admitted < LIMIT || denied.is_empty() {
        let (all, denied) = (heads.len(), denied.len());
        return Err(format!(
            "{all} responses, {admitted} admitted at first, {denied} denied"
        ));
    }
    for (name, needed) in [
        ("ratelimit-policy", &heads),
        ("ratelimit", &heads),
        ("retry-after", &denied),
    ] {
        let field = format!("\r\n{name}: ");
        if let Some(head) = needed.iter().find(|head| !head.contains(&field)) {
            return Err(format!("a response has no {name}:\n{head}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_limit_and_then_complete_denials_pass() {
        let fields = "ratelimit-policy: p\r\nratelimit: r";
        let admitted = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
        let denied =
            format!("HTTP/1.1 429 Too Many Requests\r\n{fields}\r\nretry-after: 1\r\n\r\n");
        let heads = |some: usize| admitted.repeat(some) + &denied.repeat(REQUESTS - some);
        assert_eq!(judge(&heads(LIMIT)), Ok(()));
        assert_eq!(
            judge(&heads(LIMIT + 3)),
            Ok(()),
            "some units came back meanwhile"
        );
        assert!(judge(&heads(LIMIT - 1)).is_err(), "too few");
        assert!(judge(&heads(REQUESTS)).is_err(), "no limit");
        for name in ["ratelimit-policy: ", "ratelimit: ", "retry-after: "] {
            let without = heads(LIMIT).replace(name, "other: ");
            assert!(
                judge(&without)
                    .unwrap_err()
                    .contains(&name[..name.len() - 2])
            );
        }
    }
}

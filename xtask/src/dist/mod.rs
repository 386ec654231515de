//! `cargo xtask dist`: a release as one archive: the program, manual pages, completions, the systemd unit, licences, a bill of
//! materials, and a checksum beside it.
//!
//! The same program gives the same archive, and no path or time of this machine goes into either. The files lie under `target/dist/root` as they do under `/usr`;
//! the Dockerfile copies from there. Must not know: what the program does.

mod archive;
mod bill_of_materials;
mod staging;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{capture, cargo, run as run_process};
use crate::workspace::Workspace;

/// Where everything goes, below cargo's target folder.
const FOLDER: &str = "dist";

/// What the command line asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    /// Packs this program instead of building one.
    binary: Option<PathBuf>,
    /// Builds for this target instead of the machine's own.
    target: Option<String>,
}

/// One release in the making.
struct Release {
    root: PathBuf,
    folder: PathBuf,
    target: String,
    version: String,
}

/// The command `dist`.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    if args == ["--smoke"] {
        return smoke();
    }
    let options = parse(args)?;
    let workspace = Workspace::load()?;
    let release = Release::new(&workspace, FOLDER, options.target)?;
    let (binary, glibc) = match options.binary {
        Some(binary) => (binary, None),
        None => (build(&workspace, &release.target)?, glibc(&release.target)?),
    };
    let archive = release.assemble(&binary, glibc)?;
    println!("{}", archive.display());
    Ok(())
}

/// What CI can afford: packs the program that the tests have built, twice, and looks at what came of it.
pub(crate) fn smoke() -> Result<(), String> {
    let workspace = Workspace::load()?;
    let release = Release::new(&workspace, "dist-smoke", None)?;
    let built = workspace.target.join("debug/tollgate");
    // Most of a debug build is debug information.
    let binary = workspace.target.join("dist-smoke-tollgate");
    run_process(Command::new("strip").arg("-o").args([&binary, &built]))?;
    let first = archive::checksum(&release.assemble(&binary, None)?)?;
    let archive = release.assemble(&binary, None)?;
    if archive::checksum(&archive)? != first {
        return Err("two archives of the same program differ".to_owned());
    }
    archive::verify(&archive, &release.folder.join("unpacked"), &release.version)
}

impl Release {
    fn new(workspace: &Workspace, folder: &str, target: Option<String>) -> Result<Self, String> {
        let target = match target {
            Some(target) => target,
            None => host()?,
        };
        if !target.contains("-linux-") {
            return Err(format!(
                "`dist` makes static programs for Linux, not for {target}"
            ));
        }
        Ok(Self {
            root: workspace.root.clone(),
            folder: workspace.target.join(folder),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            target,
        })
    }

    /// The name of the archive without its ending, and of the folder in it.
    fn name(&self) -> String {
        format!("tollgate-{}-{}", self.version, self.target)
    }

    fn assemble(&self, binary: &Path, glibc: Option<String>) -> Result<PathBuf, String> {
        let mut bill = bill_of_materials::BillOfMaterials::load(&self.root, &self.target)?;
        bill.glibc = glibc;
        let staged = self.folder.join("root");
        staging::stage(&self.root, &staged, binary, &bill)?;
        archive::pack(&staged, &self.folder, &self.name())
    }
}

fn parse(args: &[String]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let value = words
            .next()
            .ok_or_else(|| format!("`dist {word}` needs a value, or is unknown"))?;
        match word.as_str() {
            "--binary" => options.binary = Some(PathBuf::from(value)),
            "--target" => options.target = Some(value.clone()),
            _ => {
                return Err(format!(
                    "`dist` knows --smoke, --binary PATH and --target TRIPLE, not `{word}`"
                ));
            }
        }
    }
    Ok(options)
}

/// The target that the compiler builds for by default.
fn host() -> Result<String, String> {
    let (about, _) = capture(Command::new("rustc").arg("-vV"))?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| "rustc does not name its host".to_owned())
}

/// The version of glibc that the linker puts into the program, such as 2.36.
fn glibc(target: &str) -> Result<Option<String>, String> {
    if !target.ends_with("-gnu") {
        return Ok(None);
    }
    let (said, _) = capture(Command::new("getconf").arg("GNU_LIBC_VERSION"))?;
    Ok(said.trim().strip_prefix("glibc ").map(str::to_owned))
}

/// Builds the program without a dynamic library (docs/adr/0042) and without a path of this machine in it.
fn build(workspace: &Workspace, target: &str) -> Result<PathBuf, String> {
    let home = std::env::var("CARGO_HOME")
        .or_else(|_unset| std::env::var("HOME").map(|home| format!("{home}/.cargo")))
        .map_err(|error| format!("HOME: {error}"))?;
    let flags = [
        "-C".to_owned(),
        "target-feature=+crt-static".to_owned(),
        format!("--remap-path-prefix={}=/src", workspace.root.display()),
        format!("--remap-path-prefix={home}=/cargo"),
    ];
    run_process(
        // With a target named, the flags are not for build scripts and macros, which cannot be static.
        cargo()
            .args([
                "build",
                "--release",
                "--locked",
                "--package",
                "tollgate-cli",
            ])
            .args(["--bin", "tollgate", "--target", target])
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}")),
    )?;
    Ok(workspace.target.join(target).join("release/tollgate"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_binary_and_a_target_can_be_named() {
        let options = parse(&words("--binary a/b --target aarch64-unknown-linux-musl")).unwrap();
        assert_eq!(options.binary, Some(PathBuf::from("a/b")));
        assert_eq!(
            options.target.as_deref(),
            Some("aarch64-unknown-linux-musl")
        );
        assert_eq!(parse(&[]), Ok(Options::default()));
        for line in ["--binary", "--output x", "now", "--target a --binary"] {
            assert!(parse(&words(line)).is_err(), "{line}");
        }
    }

    #[test]
    fn only_linux_programs_are_made() {
        let workspace = Workspace {
            root: PathBuf::from("/r"),
            target: PathBuf::from("/t"),
            packages: Vec::new(),
        };
        let release = |target: &str| Release::new(&workspace, FOLDER, Some(target.to_owned()));
        assert!(release("x86_64-apple-darwin").is_err());
        let made = release("x86_64-unknown-linux-musl").unwrap();
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            made.name(),
            format!("tollgate-{version}-x86_64-unknown-linux-musl")
        );
    }

    /// The image must hold the program that `dist` makes, not another build of it.
    #[test]
    fn the_dockerfile_builds_with_dist_and_copies_what_dist_stages() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let dockerfile = std::fs::read_to_string(root.join("Dockerfile")).unwrap();
        let builds: Vec<&str> = dockerfile
            .lines()
            .filter_map(|line| line.strip_prefix("RUN "))
            .collect();
        assert_eq!(builds, ["cargo xtask dist"]);
        let staged = format!("/src/target/{FOLDER}/root/");
        let copied: Vec<&str> = dockerfile
            .lines()
            .filter_map(|line| line.strip_prefix("COPY --from=build "))
            .filter_map(|line| line.strip_prefix(&staged)?.split(' ').next())
            .collect();
        assert_eq!(copied, [staging::PROGRAM, staging::DOCUMENTS]);
        // And what dist stages is there while the image is built.
        let ignored = std::fs::read_to_string(root.join(".dockerignore")).unwrap();
        for (source, _) in staging::FILES {
            assert!(root.join(source).is_file(), "{source}");
            let is_ignored = ignored.lines().any(|entry| source.starts_with(entry));
            assert!(!is_ignored, "{source}");
        }
    }
}

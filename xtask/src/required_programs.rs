//! The programs that tests need and a machine may lack, and how to get them.
//!
//! Installs distribution packages only. Knows nothing of the tests themselves.

use std::process::Command;

use crate::process;

/// A program that a test runs.
pub(crate) struct RequiredProgram {
    /// Its name, or the whole path of a file that is no program, such as a module.
    pub(crate) program: &'static str,
    pub(crate) debian_package: &'static str,
    pub(crate) why: &'static str,
}

/// Add a row when a test starts another program.
pub(crate) const REQUIRED_PROGRAMS: &[RequiredProgram] = &[
    RequiredProgram {
        program: "valgrind",
        debian_package: "valgrind",
        why: "counts the instructions of each decision",
    },
    RequiredProgram {
        program: "redis-server",
        debian_package: "redis-server",
        why: "the store over Redis is tested against a real one",
    },
    RequiredProgram {
        program: "redis-benchmark",
        debian_package: "redis-tools",
        why: "the server for Redis clients is asked by real ones",
    },
    RequiredProgram {
        program: "curl",
        debian_package: "curl",
        why: "the commands that the documentation shows are run, inside TLS too",
    },
    RequiredProgram {
        program: "openssl",
        debian_package: "openssl",
        why: "signs the tokens whose claims are keys of limits",
    },
    RequiredProgram {
        program: "h2load",
        debian_package: "nghttp2-client",
        why: "loads a service behind the tower layer over HTTP/2",
    },
    RequiredProgram {
        program: "wrk",
        debian_package: "wrk",
        why: "loads the gateway, whose limits must be exact",
    },
    RequiredProgram {
        program: "nginx",
        debian_package: "nginx",
        why: "the endpoint for its auth_request is tested behind a real one",
    },
    RequiredProgram {
        program: "/usr/lib/nginx/modules/ngx_stream_module.so",
        debian_package: "libnginx-mod-stream",
        why: "nginx sends the PROXY protocol to the gateway with it",
    },
    RequiredProgram {
        program: "haproxy",
        debian_package: "haproxy",
        why: "`tollgate call` obeys its limit, and it sends the PROXY protocol to the gateway",
    },
    RequiredProgram {
        program: "systemd-analyze",
        debian_package: "systemd",
        why: "the unit that is shipped is checked by it",
    },
    RequiredProgram {
        program: "promtool",
        debian_package: "prometheus",
        why: "tests the alert rules, and scrapes a real server",
    },
    RequiredProgram {
        program: "node",
        debian_package: "nodejs",
        why: "runs the example of a client, which wants version 18 or newer",
    },
    RequiredProgram {
        program: "chromium",
        debian_package: "chromium",
        why: "a script of a web page reads the refusals of the tower layer",
    },
    RequiredProgram {
        program: "pip3",
        debian_package: "python3-pip",
        why: "brings the servers that no distribution has; see peers.rs",
    },
];

/// What `bench servers` starts, or needs to build what it starts.
pub(crate) const FOR_SERVERS: &[RequiredProgram] = &[
    RequiredProgram {
        program: "redis-server",
        debian_package: "redis-server",
        why: "runs the script that articles print",
    },
    RequiredProgram {
        program: "nginx",
        debian_package: "nginx",
        why: "limits with limit_req",
    },
    RequiredProgram {
        program: "protoc",
        debian_package: "protobuf-compiler",
        why: "throttlecrab-server is built with it",
    },
];

/// What `bench gateway` starts, or needs to build what it starts.
pub(crate) const FOR_GATEWAY: &[RequiredProgram] = &[
    RequiredProgram {
        program: "nginx",
        debian_package: "nginx",
        why: "a proxy with limit_req",
    },
    RequiredProgram {
        program: "haproxy",
        debian_package: "haproxy",
        why: "a proxy with a stick table",
    },
    RequiredProgram {
        program: "cmake",
        debian_package: "cmake",
        why: "pingora is built with it",
    },
];

/// How we may install packages, if at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    Root,
    Sudo,
    None,
}

/// Debian starts a server as soon as it is installed, and Prometheus listens on all interfaces. Tests start their own, so systemd
/// is told to start none now; one that is enabled starts with the machine, until `systemctl disable` says otherwise.
const ENVIRONMENT: [&str; 3] = ["env", "DEBIAN_FRONTEND=noninteractive", "SYSTEMD_OFFLINE=1"];

/// Installs whatever is missing, or says exactly what to type.
pub(crate) fn ensure(needs: &[RequiredProgram]) -> Result<(), String> {
    let missing: Vec<&RequiredProgram> = needs
        .iter()
        .filter(|need| !process::on_path(need.program))
        .collect();
    for need in needs.iter().filter(|need| process::on_path(need.program)) {
        println!("{}: present ({})", need.program, need.why);
    }
    if missing.is_empty() {
        return Ok(());
    }
    for words in plan(&missing, means())? {
        let (program, args) = words.split_first().ok_or("an empty command was planned")?;
        process::run(Command::new(program).args(args))?;
    }
    missing
        .iter()
        .find(|need| !process::on_path(need.program))
        .map_or(Ok(()), |need| {
            Err(format!(
                "{} is still missing after its installation",
                need.program
            ))
        })
}

/// The commands that install what is missing.
fn plan(missing: &[&RequiredProgram], means: Means) -> Result<Vec<Vec<String>>, String> {
    let packages: Vec<&str> = missing.iter().map(|need| need.debian_package).collect();
    let install = [
        &["apt-get", "install", "-y", "--no-install-recommends"],
        packages.as_slice(),
    ]
    .concat();
    let update = vec!["apt-get", "update"];
    let prefix = match means {
        Means::Root => vec![],
        Means::Sudo => vec!["sudo", "-n"],
        Means::None => {
            let wanted: Vec<String> = missing
                .iter()
                .map(|need| format!("{} ({})", need.program, need.why))
                .collect();
            return Err(format!(
                "missing: {}. Install it and run again:\n    sudo apt-get update && sudo {}",
                wanted.join(", "),
                install.join(" ")
            ));
        }
    };
    let with_prefix = |words: Vec<&str>| {
        // Behind `sudo`, which hands on no variable of ours.
        let prefix = prefix.iter().copied().chain(ENVIRONMENT);
        prefix.chain(words).map(str::to_owned).collect()
    };
    Ok(vec![with_prefix(update), with_prefix(install)])
}

fn means() -> Means {
    if !process::on_path("apt-get") {
        return Means::None;
    }
    let user = process::capture(Command::new("id").arg("-u"));
    if user.is_ok_and(|(id, _)| id.trim() == "0") {
        Means::Root
    } else if process::succeeds(Command::new("sudo").args(["-n", "true"])) {
        Means::Sudo
    } else {
        Means::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAMP: RequiredProgram = RequiredProgram {
        program: "lamp",
        debian_package: "lamp-tools",
        why: "lights the way",
    };

    #[test]
    fn root_installs_without_asking_and_others_through_sudo() {
        let root = plan(&[&LAMP], Means::Root).unwrap();
        assert_eq!(root[0][3..], ["apt-get", "update"]);
        assert_eq!(
            root[1],
            [
                "env",
                "DEBIAN_FRONTEND=noninteractive",
                "SYSTEMD_OFFLINE=1",
                "apt-get",
                "install",
                "-y",
                "--no-install-recommends",
                "lamp-tools"
            ]
        );
        let sudo = plan(&[&LAMP], Means::Sudo).unwrap();
        assert_eq!(sudo[1][..3], ["sudo", "-n", "env"]);
        assert_eq!(sudo[1][2..], root[1]);
    }

    #[test]
    fn without_means_the_error_is_the_command_to_type() {
        let error = plan(&[&LAMP], Means::None).unwrap_err();
        assert!(
            error.contains("sudo apt-get install -y --no-install-recommends lamp-tools"),
            "{error}"
        );
        assert!(error.contains("lamp (lights the way)"), "{error}");
    }

    #[test]
    fn what_is_present_is_not_installed() {
        let shell = RequiredProgram {
            program: "sh",
            debian_package: "no-such-package",
            why: "runs this test",
        };
        assert_eq!(ensure(&[shell]), Ok(()));
    }
}

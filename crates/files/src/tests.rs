//! What is refused, what is waited for, and what is left after a failed write.

use super::*;
use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// A folder that is deleted on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = format!("tollgate-files-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

#[cfg(unix)]
#[test]
fn only_regular_files_are_read_and_no_open_waits() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    let folder = Folder::new("kinds");
    let fifo = folder.file("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let link = folder.file("link");
    std::os::unix::fs::symlink(&fifo, &link).unwrap();
    let socket = folder.file("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for (path, kind) in [
        (fifo, "a FIFO"),
        (link.clone(), "a FIFO"),
        (socket, "a socket"),
        (PathBuf::from("/dev/null"), "a device"),
        (folder.0.clone(), "a directory"),
    ] {
        let error = read_regular(&path, 10).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("it is {kind}, not a regular file")
        );
    }
    // Kubernetes mounts files behind two links.
    let (target, hop) = (folder.file("target"), folder.file("..data"));
    fs::write(&target, "policy").unwrap();
    std::os::unix::fs::symlink(&target, &hop).unwrap();
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&hop, &link).unwrap();
    assert_eq!(read_regular(&link, 6).unwrap(), b"policy");
    let larger = read_regular(&link, 5).unwrap_err();
    assert_eq!(larger.kind(), io::ErrorKind::FileTooLarge);
}

/// A hung mount: the work never ends, until the test lets it.
#[test]
fn work_that_hangs_leaves_one_thread_behind_and_further_work_is_refused() {
    let worker = FileWorker::with_deadline("read", Duration::from_millis(10));
    let (release, hung) = sync_channel::<()>(1);
    let (ended, wait_for_end) = sync_channel::<()>(1);
    let error = worker
        .run(move || {
            hung.recv().ok();
            ended
        })
        .unwrap_err();
    assert_eq!(error.to_string(), "the read did not finish within 10ms");
    for _ in 0..3 {
        let error = worker.run(|| panic!("it must not start")).unwrap_err();
        assert_eq!(error.to_string(), "the previous read has not finished");
    }
    drop(release);
    // The result of the first work is dropped with its channel.
    wait_for_end.recv().unwrap_err();
    let patient = FileWorker::new("read");
    assert_eq!(patient.run(|| 7).unwrap(), 7);
    while worker.run(|| ()).is_err() {
        std::thread::yield_now();
    }
    let panicked = patient.run(|| panic!("a control")).unwrap_err();
    assert_eq!(panicked.to_string(), "the thread panicked");
    assert_eq!(patient.run(|| 8).unwrap(), 8, "it goes on after a panic");
}

#[test]
fn a_failed_write_leaves_the_previous_file_and_nothing_else() {
    let folder = Folder::new("replace");
    let path = folder.file("state");
    replace_file(&path, |out| out.write_all(b"old")).unwrap();
    let full = replace_file(&path, |out| {
        out.write_all(b"new")?;
        Err(io::ErrorKind::StorageFull.into())
    });
    assert_eq!(full.unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
    replace_file(&path, |out| out.write_all(b"new")).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    let nowhere = replace_file(&folder.file("none/state"), |_| Ok(()));
    assert_eq!(nowhere.unwrap_err().kind(), io::ErrorKind::NotFound);
}

/// A process that was killed while it saved left a copy of the whole state behind, and the next one never deleted it.
#[test]
fn leftovers_of_a_crash_are_deleted_and_nothing_else() {
    let folder = Folder::new("leftovers");
    let path = folder.file("state");
    for left in [".state.1.0.new", ".state.4194304.123.new"] {
        fs::write(folder.file(left), "half").unwrap();
    }
    let others = [
        "state",
        "state.lock",
        ".state.new",
        ".state.1.new",
        ".state.1.2.3.new",
        ".state.1.x.new",
        ".state..1.new",
        ".state2.1.0.new",
        ".other.1.0.new",
        ".state.1.0.new.bak",
        ".state.1.0.old",
    ];
    for other in others {
        fs::write(folder.file(other), "kept").unwrap();
    }
    fs::create_dir(folder.file(".state.2.0.new")).unwrap();
    assert_eq!(remove_leftovers(&path).unwrap(), 2);
    assert_eq!(remove_leftovers(&path).unwrap(), 0);
    assert!(others.iter().all(|other| folder.file(other).exists()));
    assert!(
        folder.file(".state.2.0.new").exists(),
        "a folder is not ours"
    );
    assert!(remove_leftovers(&folder.file("none/state")).is_err());
}

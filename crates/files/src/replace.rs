//! Replaces a file: after a crash at any moment a reader finds the old content or the new one, never a part.
//!
//! Must not know: what the file contains.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes a new file beside `path` that only its owner may read, and renames it to `path`. File and folder are synchronised with
/// the disk.
///
/// # Errors
/// `write` fails, or the folder or disk does. The previous file is unchanged then.
pub fn replace_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let temporary = temporary_path(path)?;
    // A process with the same id may have died while it wrote.
    fs::remove_file(&temporary).ok();
    let written = write_new(&temporary, write).and_then(|()| {
        fs::rename(&temporary, path)?;
        sync_folder(path)
    });
    if written.is_err() {
        // Best effort: the first error is the one to report.
        fs::remove_file(&temporary).ok();
    }
    written
}

/// Deletes the files that [`replace_file`] was writing beside `path` when a process crashed. Returns how many there were.
///
/// Call it only while no other process replaces the same file: files that are being written would be deleted too.
///
/// # Errors
/// The folder cannot be read, or a file cannot be deleted.
pub fn remove_leftovers(path: &Path) -> io::Result<usize> {
    let Some(name) = path.file_name() else {
        return Ok(0);
    };
    let mut removed = 0;
    for entry in fs::read_dir(folder_of(path))? {
        let entry = entry?;
        if is_temporary_name(&entry.file_name(), name) && entry.file_type()?.is_file() {
            fs::remove_file(entry.path())?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Whether [`temporary_path`] makes this name for the file `name`: `.NAME.PROCESS.CALL.new`.
fn is_temporary_name(candidate: &OsStr, name: &OsStr) -> bool {
    let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let numbers = candidate.as_encoded_bytes();
    let numbers = numbers.strip_prefix(b".");
    let numbers = numbers.and_then(|rest| rest.strip_prefix(name.as_encoded_bytes()));
    let numbers = numbers.and_then(|rest| rest.strip_prefix(b"."));
    let numbers = numbers.and_then(|rest| rest.strip_suffix(b".new"));
    let mut parts = numbers.unwrap_or_default().split(|byte| *byte == b'.');
    matches!(
        (parts.next(), parts.next(), parts.next()),
        (Some(process), Some(call), None) if is_number(process) && is_number(call)
    )
}

/// One name per call, so that concurrent calls do not write to the same file.
fn temporary_path(path: &Path) -> io::Result<PathBuf> {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let nameless = || io::Error::from(io::ErrorKind::InvalidInput);
    let mut name = OsString::from(".");
    name.push(path.file_name().ok_or_else(nameless)?);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    name.push(format!(".{}.{call}.new", std::process::id()));
    Ok(path.with_file_name(name))
}

fn write_new(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut out = BufWriter::new(options.open(path)?);
    write(&mut out)?;
    out.flush()?;
    out.get_ref().sync_all()
}

/// Makes the rename durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        File::open(folder_of(path))?.sync_all()?;
    }
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent();
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

//! Opens and reads regular files only.
//!
//! The open of a FIFO waits for a writer, and the read of a terminal or a socket may never end. So anything but a regular file is
//! refused, after symbolic links are followed. Must not know: what files contain, how long a read may take.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::path::Path;

/// Opens a regular file for reading. Symbolic links are followed.
///
/// # Errors
/// The file cannot be opened, or it is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Before the open, because the open of a device can have an effect.
    check_kind(&std::fs::metadata(path)?)?;
    let file = nonblocking(OpenOptions::new().read(true)).open(path)?;
    // After the open, because the path may be another file by now.
    check_kind(&file.metadata()?)?;
    Ok(file)
}

/// Opens a regular file to append to it, and creates it if there is none. Symbolic links are followed.
///
/// # Errors
/// The file cannot be opened, or it is not a regular file.
pub fn append_regular(path: &Path) -> io::Result<File> {
    match std::fs::metadata(path) {
        Ok(found) => check_kind(&found)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let file = nonblocking(OpenOptions::new().append(true).create(true)).open(path)?;
    check_kind(&file.metadata()?)?;
    Ok(file)
}

/// Reads a regular file of at most `max` bytes. Symbolic links are followed.
///
/// # Errors
/// The file cannot be read, is not a regular file, has changed during the read, or is larger
/// ([`FileTooLarge`](io::ErrorKind::FileTooLarge)).
pub fn read_regular(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    // What changes when a file is written to.
    let stamp = || {
        file.metadata()
            .map(|file| (file.len(), file.modified().ok()))
    };
    let before = stamp()?;
    let mut bytes = Vec::new();
    // One byte more than the maximum distinguishes a file of this size from a larger one.
    (&file)
        .take(max.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    if stamp()? != before {
        return Err(io::Error::other("it was written to while it was read"));
    }
    Ok(bytes)
}

/// Options whose open does not wait.
fn nonblocking(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt as _;
        // The path may have become a FIFO or a terminal since it was checked. A regular file ignores both flags.
        let flags = OFlags::NONBLOCK.union(OFlags::NOCTTY).bits();
        options.custom_flags(flags.cast_signed());
    }
    options
}

fn check_kind(file: &Metadata) -> io::Result<()> {
    if file.is_file() {
        return Ok(());
    }
    let message = format!("it is {}, not a regular file", kind_name(file.file_type()));
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

fn kind_name(kind: FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt as _;
        if kind.is_fifo() {
            return "a FIFO";
        }
        if kind.is_socket() {
            return "a socket";
        }
        if kind.is_char_device() || kind.is_block_device() {
            return "a device";
        }
    }
    if kind.is_dir() {
        "a directory"
    } else {
        "something else"
    }
}

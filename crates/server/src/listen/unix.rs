//! A listening Unix socket and its file. The file is created at start and removed at shutdown.
//!
//! Must not know: protocols.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// A listening Unix socket.
#[derive(Debug)]
pub(super) struct UnixSocketListener {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file, so that the file of another server is not removed.
    bound_file: (u64, u64),
}

impl UnixSocketListener {
    pub(super) async fn bind(path: &Path) -> io::Result<Self> {
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                remove_stale_socket(path).await?;
                UnixListener::bind(path)?
            }
            bound => bound?,
        };
        Ok(Self {
            listener,
            path: path.to_owned(),
            bound_file: file_id(path)?,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
        self.listener.accept().await.map(|(stream, _)| stream)
    }
}

/// Removes the file of a socket that no process listens on, as a killed server leaves it.
async fn remove_stale_socket(path: &Path) -> io::Result<()> {
    let in_use = || io::Error::from(io::ErrorKind::AddrInUse);
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(in_use());
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        _ => Err(in_use()),
    }
}

fn file_id(path: &Path) -> io::Result<(u64, u64)> {
    let file = std::fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

impl Drop for UnixSocketListener {
    fn drop(&mut self) {
        if file_id(&self.path).is_ok_and(|found| found == self.bound_file)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(%error, path = %self.path.display(), "removing the socket file failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("tollgate-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[tokio::test]
    async fn the_file_goes_with_the_listener() {
        let directory = Directory::new("goes");
        let path = directory.0.join("a.sock");
        let unix = UnixSocketListener::bind(&path).await.unwrap();
        assert!(path.exists());
        drop(unix);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn the_file_of_a_killed_server_is_replaced() {
        let directory = Directory::new("killed");
        let path = directory.0.join("a.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        UnixSocketListener::bind(&path).await.unwrap();
    }

    #[tokio::test]
    async fn a_socket_in_use_and_other_files_are_left_alone() {
        let directory = Directory::new("in-use");
        let path = directory.0.join("a.sock");
        let first = UnixSocketListener::bind(&path).await.unwrap();
        let second = UnixSocketListener::bind(&path).await;
        assert_eq!(second.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(path.exists());
        drop(first);
        std::fs::write(&path, "precious").unwrap();
        let third = UnixSocketListener::bind(&path).await;
        assert_eq!(third.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }

    #[tokio::test]
    async fn another_servers_file_is_not_taken_away() {
        let directory = Directory::new("others");
        let path = directory.0.join("a.sock");
        let first = UnixSocketListener::bind(&path).await.unwrap();
        std::fs::remove_file(&path).unwrap();
        let second = UnixSocketListener::bind(&path).await.unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
    }
}

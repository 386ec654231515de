//! What a service manager is told: ready, reading files again, stopping. systemd listens on the socket that it names in
//! `NOTIFY_SOCKET`; where nobody does, nothing is said.
//!
//! Must not know: why anything happens.

#[cfg(unix)]
pub(super) use unix::ServiceManager;

/// Where there are no such sockets there is nobody to tell.
#[cfg(not(unix))]
#[derive(Clone, Debug, Default)]
pub(super) struct Manager;

#[cfg(not(unix))]
impl ServiceManager {
    pub(super) fn from_environment() -> Self {
        Self
    }

    pub(super) fn say(&self, _word: &str) {}
}

/// The server does what it is for.
pub(super) const READY: &str = "READY=1";
/// It reads its files again; ready again afterwards.
pub(super) const RELOADING: &str = "RELOADING=1";
/// It is about to end.
pub(super) const STOPPING: &str = "STOPPING=1";

#[cfg(unix)]
mod unix {
    use std::ffi::OsStr;
    use std::io;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    use std::sync::Arc;

    /// Whoever is told.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct ServiceManager(Option<Arc<(UnixDatagram, SocketAddr)>>);

    impl ServiceManager {
        /// The one that the environment names, if any.
        pub(crate) fn from_environment() -> Self {
            Self::from_socket_name(std::env::var_os("NOTIFY_SOCKET").as_deref())
        }

        fn from_socket_name(name: Option<&OsStr>) -> Self {
            let Some(name) = name.filter(|name| !name.is_empty()) else {
                return Self(None);
            };
            match open_socket(name) {
                Ok(reached) => Self(Some(Arc::new(reached))),
                Err(error) => {
                    tracing::warn!(%error, ?name, "the service manager cannot be told anything");
                    Self(None)
                }
            }
        }

        /// Tells it. It is never waited for.
        pub(crate) fn notify(&self, word: &str) {
            let Some((socket, address)) = self.0.as_deref() else {
                return;
            };
            if let Err(error) = socket.send_to_addr(word.as_bytes(), address) {
                tracing::warn!(%error, word, "the service manager was not told");
            }
        }
    }

    fn open_socket(name: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
        let address = match name.as_bytes() {
            [b'@', rest @ ..] => abstract_address(rest)?,
            _ => SocketAddr::from_pathname(name)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok((socket, address))
    }

    #[cfg(target_os = "linux")]
    fn abstract_address(name: &[u8]) -> io::Result<SocketAddr> {
        use std::os::linux::net::SocketAddrExt as _;

        SocketAddr::from_abstract_name(name)
    }

    #[cfg(not(target_os = "linux"))]
    fn abstract_address(_name: &[u8]) -> io::Result<SocketAddr> {
        Err(io::ErrorKind::Unsupported.into())
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn nobody_is_told_where_nobody_listens() {
            assert!(ServiceManager::from_socket_name(None).0.is_none());
            assert!(
                ServiceManager::from_socket_name(Some(OsStr::new("")))
                    .0
                    .is_none()
            );
            let long = "/".repeat(200);
            assert!(
                ServiceManager::from_socket_name(Some(OsStr::new(&long)))
                    .0
                    .is_none()
            );
            // It went away: the server goes on.
            ServiceManager::from_socket_name(Some(OsStr::new("/nowhere/at/all"))).notify("READY=1");
        }

        #[cfg(target_os = "linux")]
        #[test]
        fn a_name_without_a_file_is_understood() {
            use std::os::linux::net::SocketAddrExt as _;

            let name = format!("tollgate-manager-{}", std::process::id());
            let address = SocketAddr::from_abstract_name(&name).unwrap();
            let hears = UnixDatagram::bind_addr(&address).unwrap();
            ServiceManager::from_socket_name(Some(OsStr::new(&format!("@{name}"))))
                .notify("READY=1");
            let mut heard = [0; 64];
            let len = hears.recv(&mut heard).unwrap();
            assert_eq!(&heard[..len], b"READY=1");
        }
    }
}

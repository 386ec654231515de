//! Notifies the service manager: ready, reloading, stopping. systemd passes its socket in `NOTIFY_SOCKET`; without the
//! variable nothing is sent.
//!
//! Must not know: why the state changes.

#[cfg(unix)]
pub(super) use unix::ServiceManager;

/// Platforms without Unix sockets have no service manager.
#[cfg(not(unix))]
#[derive(Clone, Debug, Default)]
pub(super) struct ServiceManager;

#[cfg(not(unix))]
impl ServiceManager {
    pub(super) fn from_environment() -> Self {
        Self
    }

    pub(super) fn notify(&self, _state: &str) {}
}

/// The server accepts requests.
pub(super) const READY: &str = "READY=1";
/// The server reloads its files. `READY` follows.
pub(super) const RELOADING: &str = "RELOADING=1";
/// The server is shutting down.
pub(super) const STOPPING: &str = "STOPPING=1";

#[cfg(unix)]
mod unix {
    use std::ffi::OsStr;
    use std::io;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    use std::sync::Arc;

    /// The socket of the service manager, if there is one.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct ServiceManager(Option<Arc<(UnixDatagram, SocketAddr)>>);

    impl ServiceManager {
        /// The service manager that `NOTIFY_SOCKET` names, if any.
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
                    tracing::warn!(%error, ?name, "socket of the service manager is not usable");
                    Self(None)
                }
            }
        }

        /// Sends a state. Never blocks.
        pub(crate) fn notify(&self, state: &str) {
            let Some((socket, address)) = self.0.as_deref() else {
                return;
            };
            if let Err(error) = socket.send_to_addr(state.as_bytes(), address) {
                tracing::warn!(%error, state, "service manager was not notified");
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
        fn without_a_usable_socket_nothing_is_sent() {
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
            // The socket is gone: `notify` logs a warning and returns.
            ServiceManager::from_socket_name(Some(OsStr::new("/nowhere/at/all"))).notify("READY=1");
        }

        #[cfg(target_os = "linux")]
        #[test]
        fn an_abstract_socket_name_is_supported() {
            use std::os::linux::net::SocketAddrExt as _;

            let name = format!("tollgate-manager-{}", std::process::id());
            let address = SocketAddr::from_abstract_name(&name).unwrap();
            let receiver = UnixDatagram::bind_addr(&address).unwrap();
            ServiceManager::from_socket_name(Some(OsStr::new(&format!("@{name}"))))
                .notify("READY=1");
            let mut received = [0; 64];
            let len = receiver.recv(&mut received).unwrap();
            assert_eq!(&received[..len], b"READY=1");
        }
    }
}

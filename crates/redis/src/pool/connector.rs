//! Makes connections to a server: address, socket settings, TLS and credentials.
//!
//! Must not know: what is sent over them, which servers there are.

use std::sync::Arc;
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, RedisConnectionInfo, RedisResult};
use tollgate_store::StoreError;

use crate::address::Endpoint;
use crate::connection::{PipelinedConnection, ServerStream};
use crate::credentials::{Credentials, CredentialsProvider};
use crate::options::RedisOptions;
use crate::pool::call_window::CallWindow;
use crate::tls::TlsClient;

/// Replies that a connection may await beside those of calls: probes and scripts that are loaded.
const OTHER_REPLIES: usize = 64;

/// Makes connections to all servers with the same settings.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    settings: RedisConnectionInfo,
    deadline: Duration,
    call_deadline: Duration,
    max_in_flight: usize,
    credentials: Option<Arc<dyn CredentialsProvider>>,
    tls: Option<TlsClient>,
}

impl Connector {
    /// A connector with the template's settings and the options' timeouts.
    ///
    /// # Errors
    ///
    /// The address asks for TLS, and it cannot be set up.
    pub(crate) fn new(
        template: &ConnectionInfo,
        options: &RedisOptions,
    ) -> Result<Self, StoreError> {
        let is_tls = matches!(template.addr(), ConnectionAddr::TcpTls { .. });
        Ok(Self {
            settings: template.redis_settings().clone(),
            deadline: options.connect_deadline,
            call_deadline: options.deadline,
            max_in_flight: options.max_in_flight.max(1),
            credentials: options.credentials.clone(),
            // Invalid certificates are reported now, and not at every connect in the background.
            tls: is_tls.then(|| TlsClient::new(&options.tls)).transpose()?,
        })
    }

    /// The same settings with other credentials and no database, for sentinels.
    pub(crate) fn with_credentials(
        &self,
        credentials: Option<Arc<dyn CredentialsProvider>>,
    ) -> Self {
        Self {
            settings: RedisConnectionInfo::default(),
            credentials,
            ..self.clone()
        }
    }

    /// The longest time that connecting may take.
    pub(crate) const fn deadline(&self) -> Duration {
        self.deadline
    }

    /// A window for the calls to one server.
    pub(crate) fn call_window(&self) -> CallWindow {
        CallWindow::new(self.max_in_flight, self.call_deadline)
    }

    /// The current credentials, if they come from a provider.
    pub(crate) async fn credentials(&self) -> std::io::Result<Option<Credentials>> {
        let Some(provider) = self.credentials.clone() else {
            return Ok(None);
        };
        let read = tokio::task::spawn_blocking(move || provider.current());
        match read.await {
            Ok(credentials) => credentials.map(Some),
            Err(_panicked) => Err(std::io::Error::other("the credentials cannot be read")),
        }
    }

    /// Connects, authenticates and selects the database.
    pub(crate) async fn connect(
        &self,
        endpoint: &Endpoint,
        credentials: Option<&Credentials>,
    ) -> RedisResult<PipelinedConnection> {
        let connecting = async {
            let stream = ServerStream::connect(endpoint, self.tls.as_ref()).await?;
            let max_awaited = self.max_in_flight.saturating_add(OTHER_REPLIES);
            let connection = PipelinedConnection::start(stream, max_awaited);
            for reply in connection.pipeline(&self.greeting(credentials)).await? {
                reply?;
            }
            Ok(connection)
        };
        match tokio::time::timeout(self.deadline, connecting).await {
            Ok(connected) => connected,
            Err(_elapsed) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
        }
    }

    /// The commands that every connection begins with.
    fn greeting(&self, credentials: Option<&Credentials>) -> Vec<redis::Cmd> {
        let (username, password) = match credentials {
            Some(given) => {
                let username = given.username.as_deref().or(self.settings.username());
                (username, Some(given.password.as_str()))
            }
            None => (self.settings.username(), self.settings.password()),
        };
        let mut commands = Vec::new();
        if let Some(password) = password {
            let mut login = redis::cmd("AUTH");
            if let Some(username) = username {
                login.arg(username);
            }
            login.arg(password);
            commands.push(login);
        }
        if self.settings.db() != 0 {
            let mut select = redis::cmd("SELECT");
            select.arg(self.settings.db());
            commands.push(select);
        }
        commands
    }
}

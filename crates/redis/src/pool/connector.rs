//! Makes connections to a server: address, socket settings, TLS and credentials.
//!
//! Must not know: what is sent over them, which servers there are.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ProtocolVersion, RedisResult,
};
use tollgate_store::{StoreError, StoreErrorKind};

use crate::address::Endpoint;
use crate::credentials::{Credentials, CredentialsProvider};
use crate::options::RedisOptions;
use crate::pool::call_window::CallWindow;

/// Idle time after which the system sends a TCP keepalive probe.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// How long written data may stay unacknowledged before the connection fails. This detects a peer that vanished
/// silently.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(2);

/// Makes connections to all servers with the same settings.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    template: ConnectionInfo,
    config: AsyncConnectionConfig,
    deadline: Duration,
    call_deadline: Duration,
    max_in_flight: usize,
    credentials: Option<Arc<dyn CredentialsProvider>>,
    #[cfg(feature = "tls")]
    certificates: Option<redis::TlsCertificates>,
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
        let tcp = redis::io::tcp::TcpSettings::default()
            // Without it, under many calls, each write would wait for the acknowledgement of the previous one.
            .set_nodelay(true)
            .set_keepalive(redis::io::tcp::socket2::TcpKeepalive::new().with_time(KEEPALIVE));
        #[cfg(target_os = "linux")]
        let tcp = tcp.set_user_timeout(USER_TIMEOUT);
        let settings = template
            .redis_settings()
            .clone()
            .set_protocol(ProtocolVersion::RESP2)
            .set_skip_set_lib_name();
        let is_tls = matches!(template.addr(), ConnectionAddr::TcpTls { .. });
        if is_tls {
            crate::tls::prepare_tls(&options.tls)?;
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(options.connect_deadline))
            // Each call has its own deadline, which also covers retries.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(options.max_in_flight.max(1));
        let connector = Self {
            template: template
                .clone()
                .set_tcp_settings(tcp)
                .set_redis_settings(settings),
            config,
            deadline: options.connect_deadline,
            call_deadline: options.deadline,
            max_in_flight: options.max_in_flight,
            credentials: options.credentials.clone(),
            #[cfg(feature = "tls")]
            certificates: (is_tls && options.tls.is_given()).then(|| options.tls.certificates()),
        };
        // Report invalid certificates now, and not at every connect in the background.
        connector
            .client(&Endpoint::Tcp("localhost".to_owned(), 0), None)
            .map_err(|_may_quote: redis::RedisError| {
                let detail = "the certificates for TLS cannot be read";
                StoreError::new(StoreErrorKind::BadRequest, detail)
            })?;
        Ok(connector)
    }

    /// The same settings with other credentials and no database, for sentinels.
    pub(crate) fn with_credentials(
        &self,
        credentials: Option<Arc<dyn CredentialsProvider>>,
    ) -> Self {
        let settings = redis::RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP2)
            .set_skip_set_lib_name();
        Self {
            template: self.template.clone().set_redis_settings(settings),
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

    /// Connects and authenticates.
    pub(crate) async fn connect(
        &self,
        endpoint: &Endpoint,
        credentials: Option<&Credentials>,
    ) -> RedisResult<MultiplexedConnection> {
        let client = self.client(endpoint, credentials)?;
        let connecting = client.get_multiplexed_async_connection_with_config(&self.config);
        match tokio::time::timeout(self.deadline, connecting).await {
            Ok(connected) => connected,
            Err(_elapsed) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
        }
    }

    fn client(
        &self,
        endpoint: &Endpoint,
        credentials: Option<&Credentials>,
    ) -> RedisResult<Client> {
        let address = match (endpoint, self.template.addr()) {
            (Endpoint::Unix(path), _) => ConnectionAddr::Unix(path.clone()),
            (Endpoint::Tcp(host, port), ConnectionAddr::TcpTls { .. }) => ConnectionAddr::TcpTls {
                host: host.clone(),
                port: *port,
                insecure: false,
                tls_params: None,
            },
            (Endpoint::Tcp(host, port), _) => ConnectionAddr::Tcp(host.clone(), *port),
        };
        let mut info = self.template.clone().set_addr(address);
        if let Some(credentials) = credentials {
            let mut settings = info
                .redis_settings()
                .clone()
                .set_password(&credentials.password);
            if let Some(username) = &credentials.username {
                settings = settings.set_username(username);
            }
            info = info.set_redis_settings(settings);
        }
        #[cfg(feature = "tls")]
        if let Some(certificates) = &self.certificates {
            return Client::build_with_tls(info, certificates.clone());
        }
        Client::open(info)
    }
}

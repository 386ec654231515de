//! How a connection to a server is made: its address, socket settings, TLS, and whom we say we are.
//!
//! Must not know: what is sent over it, which servers there are.

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

/// How long a connection may be silent before the system asks whether the other side is still there.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// How long written data may stay unacknowledged: a peer that vanished without a word is noticed by this.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(2);

/// Makes connections to any server of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    template: ConnectionInfo,
    config: AsyncConnectionConfig,
    deadline: Duration,
    credentials: Option<Arc<dyn CredentialsProvider>>,
    #[cfg(feature = "tls")]
    certificates: Option<redis::TlsCertificates>,
}

impl Connector {
    /// Connections as the template says, in the options' time.
    ///
    /// # Errors
    /// TLS is asked for and cannot be had.
    pub(crate) fn new(
        template: &ConnectionInfo,
        options: &RedisOptions,
    ) -> Result<Self, StoreError> {
        let tcp = redis::io::tcp::TcpSettings::default()
            // Without it, under many calls, each write would wait for the last one's acknowledgement.
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
            // Calls have a deadline of their own, over everything that happens to them.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(options.max_in_flight.max(1));
        let dial = Self {
            template: template
                .clone()
                .set_tcp_settings(tcp)
                .set_redis_settings(settings),
            config,
            deadline: options.connect_deadline,
            credentials: options.credentials.clone(),
            #[cfg(feature = "tls")]
            certificates: (is_tls && options.tls.is_given()).then(|| options.tls.certificates()),
        };
        // What is wrong with the certificates is said now, not at every connection in the background.
        dial.client(&Endpoint::Tcp("localhost".to_owned(), 0), None)
            .map_err(|_may_quote: redis::RedisError| {
                let detail = "the certificates for TLS cannot be read";
                StoreError::new(StoreErrorKind::BadRequest, detail)
            })?;
        Ok(dial)
    }

    /// The same for servers that know other users: sentinels. They have no databases.
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

    /// How long making a connection may take.
    pub(crate) const fn deadline(&self) -> Duration {
        self.deadline
    }

    /// The credentials of the moment, if they come from somewhere that may change.
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

    /// Connects and logs in.
    pub(crate) async fn connect(
        &self,
        to: &Endpoint,
        credentials: Option<&Credentials>,
    ) -> RedisResult<MultiplexedConnection> {
        let client = self.client(to, credentials)?;
        let connecting = client.get_multiplexed_async_connection_with_config(&self.config);
        match tokio::time::timeout(self.deadline, connecting).await {
            Ok(connected) => connected,
            Err(_elapsed) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
        }
    }

    fn client(&self, to: &Endpoint, credentials: Option<&Credentials>) -> RedisResult<Client> {
        let address = match (to, self.template.addr()) {
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

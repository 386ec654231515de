//! Settings of the fleet and of the Redis that its nodes share.
//!
//! Must not know: how Redis is reached, what is shared.

use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tollgate_policy::grammar::parse_duration;
use tollgate_redis::{
    ClientIdentity, Credentials, CredentialsProvider, KeyHashSecret, PasswordFile, RedisOptions,
};
use tollgate_service::fleet::MembershipSettings;
use tollgate_store::register::FleetName;

use super::secrets::warn_if_world_readable;
use super::{parse_at_least_one, read_at_startup, read_variable};

/// The variable with the password itself.
pub(crate) const PASSWORD_VARIABLE: &str = "TOLLGATE_REDIS_PASSWORD";
/// Five times the size of a bundle with all certificate authorities that browsers trust.
const MAX_PEM_BYTES: u64 = 1 << 20;
/// The largest deadline of a call to Redis.
const MAX_DEADLINE: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Fleet")]
pub(crate) struct FleetOptions {
    /// Redis or Valkey that all nodes share, so that the fleet enforces each limit once and not once per node: `redis://host:port`,
    /// `redis+unix:///path`, `redis+sentinel://host:port,…/master`, `redis+cluster://host:port,…` or `redis+shards://name=host:port,…`;
    /// `rediss` for TLS. Requires a fleet secret. Give the password in a file or a variable: every user of the machine can read a command
    /// line. Default: each process counts by itself
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "TOLLGATE_REDIS",
        hide_env_values = true
    )]
    redis: Option<RedisAddress>,
    /// User name for Redis
    #[arg(
        long,
        value_name = "NAME",
        requires = "redis",
        env = "TOLLGATE_REDIS_USER"
    )]
    redis_user: Option<String>,
    /// File with the password for Redis. The file may change while the server runs. Alternative: the password in TOLLGATE_REDIS_PASSWORD
    #[arg(
        long,
        value_name = "FILE",
        requires = "redis",
        env = "TOLLGATE_REDIS_PASSWORD_FILE"
    )]
    redis_password_file: Option<PathBuf>,
    /// User name for Redis Sentinel
    #[arg(
        long,
        value_name = "NAME",
        requires = "redis_sentinel_password_file",
        env = "TOLLGATE_REDIS_SENTINEL_USER"
    )]
    redis_sentinel_user: Option<String>,
    /// File with the password for Redis Sentinel
    #[arg(
        long,
        value_name = "FILE",
        requires = "redis",
        env = "TOLLGATE_REDIS_SENTINEL_PASSWORD_FILE"
    )]
    redis_sentinel_password_file: Option<PathBuf>,
    /// CA certificates for TLS to Redis, in PEM. Default: the CAs of the system
    #[arg(
        long,
        value_name = "FILE",
        requires = "redis",
        env = "TOLLGATE_REDIS_CA"
    )]
    redis_ca: Option<PathBuf>,
    /// Client certificate for TLS to Redis, in PEM
    #[arg(
        long,
        value_name = "FILE",
        requires = "redis_key",
        env = "TOLLGATE_REDIS_CERT"
    )]
    redis_cert: Option<PathBuf>,
    /// Private key of that certificate, in PEM and not encrypted
    #[arg(
        long,
        value_name = "FILE",
        requires = "redis_cert",
        env = "TOLLGATE_REDIS_KEY"
    )]
    redis_key: Option<PathBuf>,
    /// Deadline of a call to Redis. After it the node decides by itself. At most 10s
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "15ms",
        value_parser = parse_deadline,
        env = "TOLLGATE_REDIS_DEADLINE"
    )]
    redis_deadline: Duration,
    /// Connections to each Redis server. Calls are pipelined on them
    #[arg(
        long,
        value_name = "N",
        default_value_t = 3,
        value_parser = parse_at_least_one,
        env = "TOLLGATE_REDIS_CONNECTIONS"
    )]
    redis_connections: usize,
    /// Calls to Redis in flight at the same time. The node decides further requests by itself
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4_096,
        value_parser = parse_at_least_one,
        env = "TOLLGATE_REDIS_MOST_IN_FLIGHT"
    )]
    redis_most_in_flight: usize,
    /// Name of the fleet. Nodes with the same name on the same Redis form one fleet
    #[arg(
        long,
        value_name = "NAME",
        default_value_t = FleetName::default(),
        env = "TOLLGATE_FLEET_NAME"
    )]
    fleet_name: FleetName,
    /// Number of nodes, used while Redis is unreachable and before the node has seen others. Each node then admits half of each limit
    /// divided by this number
    #[arg(
        long,
        value_name = "N",
        value_parser = parse_nodes,
        env = "TOLLGATE_FLEET_NODES"
    )]
    fleet_nodes: Option<NonZeroU32>,
    /// Accept fleet messages without a signature, as versions up to 0.1 write them. Set it on all nodes only while nodes of such a version
    /// are replaced: meanwhile every client that can write to Redis can throw switches
    #[arg(long, env = "TOLLGATE_FLEET_ACCEPT_UNSIGNED")]
    fleet_accept_unsigned: bool,
}

/// An address that may contain a password, so `Debug` hides it.
#[derive(Clone)]
struct RedisAddress(String);

impl FleetOptions {
    /// Whether `--redis` is set.
    pub(crate) const fn has_redis(&self) -> bool {
        self.redis.is_some()
    }

    /// The settings of this node's membership.
    pub(crate) fn membership(&self) -> MembershipSettings {
        let mut settings = MembershipSettings::default();
        settings.fleet = self.fleet_name.clone();
        settings.nodes = self.fleet_nodes;
        settings.accept_unsigned = self.fleet_accept_unsigned;
        settings
    }

    /// The options of the Redis connection, if `--redis` is set.
    pub(crate) fn redis_options(
        &self,
        secret: KeyHashSecret,
    ) -> Result<Option<RedisOptions>, Box<dyn Error>> {
        let Some(RedisAddress(address)) = &self.redis else {
            return Ok(None);
        };
        let mut options = RedisOptions::new(address.as_str(), secret);
        if options.has_password_in_address() && is_on_command_line(address, std::env::args_os()) {
            tracing::warn!(
                "the password in --redis is on the command line, where every user of the machine can read it; \
                 use --redis-password-file or {PASSWORD_VARIABLE}"
            );
        }
        options.credentials = self.credentials(read_variable)?;
        options.sentinel_credentials = self.redis_sentinel_password_file.as_ref().map(|path| {
            let file = PasswordFile::new(self.redis_sentinel_user.clone(), path);
            warn_if_world_readable(path);
            Arc::new(file) as Arc<dyn CredentialsProvider>
        });
        options.tls.roots = self.redis_ca.as_deref().map(read_pem).transpose()?;
        if let (Some(certificate), Some(key)) = (&self.redis_cert, &self.redis_key) {
            options.tls.identity = Some(ClientIdentity {
                certificate: read_pem(certificate)?,
                key: read_pem(key)?,
            });
        }
        options.deadline = self.redis_deadline;
        options.connections = self.redis_connections;
        options.max_in_flight = self.redis_most_in_flight;
        Ok(Some(options))
    }

    fn credentials(
        &self,
        environment: impl Fn(&'static str) -> Option<String>,
    ) -> Result<Option<Arc<dyn CredentialsProvider>>, Box<dyn Error>> {
        let username = self.redis_user.clone();
        Ok(
            match (&self.redis_password_file, environment(PASSWORD_VARIABLE)) {
                (Some(_), Some(_)) => {
                    let message = "and --redis-password-file are both set; set one";
                    return Err(format!("{PASSWORD_VARIABLE} {message}").into());
                }
                (Some(path), None) => {
                    let file = PasswordFile::new(username, path);
                    // At startup a missing file is an error. Later it may be missing for a moment while it is replaced.
                    file.current()
                        .map_err(|error| read_error("--redis-password-file", path, &error))?;
                    warn_if_world_readable(path);
                    Some(Arc::new(file))
                }
                (None, Some(password)) => Some(Arc::new(StaticCredentials(Credentials {
                    username,
                    password,
                }))),
                (None, None) if username.is_some() => {
                    return Err(
                        "--redis-user requires a password: set --redis-password-file".into(),
                    );
                }
                (None, None) => None,
            },
        )
    }
}

/// Credentials that do not change.
#[derive(Debug)]
struct StaticCredentials(Credentials);

impl CredentialsProvider for StaticCredentials {
    fn current(&self) -> std::io::Result<Credentials> {
        let Self(credentials) = self;
        Ok(credentials.clone())
    }
}

/// Whether an argument of this process contains the text. Otherwise it comes from the environment, which only the user of the
/// process can read.
fn is_on_command_line(text: &str, mut arguments: impl Iterator<Item = OsString>) -> bool {
    arguments.any(|argument| argument.to_string_lossy().contains(text))
}

fn read_pem(path: impl AsRef<Path>) -> Result<Vec<u8>, Box<dyn Error>> {
    let path = path.as_ref();
    read_at_startup(path, MAX_PEM_BYTES)
        .map_err(|error| read_error("a certificate for Redis", path, &error))
}

fn read_error(what: &str, path: &Path, error: &std::io::Error) -> Box<dyn Error> {
    format!("cannot read {what} file={}: {error}", path.display()).into()
}

impl FromStr for RedisAddress {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Address(..)")
    }
}

fn parse_deadline(text: &str) -> Result<Duration, String> {
    let span = parse_duration(text).map_err(|wrong| match wrong.help {
        Some(help) => format!("{}; {help}", wrong.message),
        None => wrong.message.into(),
    })?;
    let span = Duration::from_nanos(span.as_nanos());
    if span > MAX_DEADLINE {
        return Err("it must be at most 10s".to_owned());
    }
    Ok(span)
}

fn parse_nodes(text: &str) -> Result<NonZeroU32, String> {
    let count: u32 = text.parse().map_err(|error| format!("{error}"))?;
    NonZeroU32::new(count).ok_or_else(|| "it must be at least 1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        fleet: FleetOptions,
    }

    fn parsed(arguments: &[&str]) -> FleetOptions {
        let line = std::iter::once("serve").chain(arguments.iter().copied());
        Line::try_parse_from(line).unwrap().fleet
    }

    #[test]
    fn the_password_is_never_shown_and_has_one_source() {
        let fleet = parsed(&["--redis", "redis://me:opensesame@a:1", "--redis-user", "u"]);
        assert!(!format!("{fleet:?}").contains("opensesame"));
        let named = fleet.credentials(|_| Some("opensesame".to_owned()));
        let named = named.unwrap().unwrap();
        assert!(!format!("{named:?}").contains("opensesame"));
        assert_eq!(named.current().unwrap().username.as_deref(), Some("u"));
        let without = fleet.credentials(|_| None).unwrap_err();
        assert!(without.to_string().contains("--redis-password-file"));
        let both = parsed(&["--redis", "redis://a:1", "--redis-password-file", "f"]);
        let error = both.credentials(|_| Some(String::new())).unwrap_err();
        assert!(error.to_string().starts_with(PASSWORD_VARIABLE), "{error}");
        let error = both.credentials(|_| None).unwrap_err();
        assert!(error.to_string().contains("--redis-password-file"));
    }

    #[test]
    fn a_password_in_the_address_is_found_wherever_it_is() {
        let has_password = |address: &str| {
            let options = parsed(&["--redis", address]).redis_options(KeyHashSecret::new([0; 16]));
            options.unwrap().unwrap().has_password_in_address()
        };
        for address in [
            "redis://:opensesame@a:1",
            "rediss://me:opensesame@a:1/3",
            "redis+unix:///run/redis.sock?pass=opensesame",
            "redis+sentinel://me:opensesame@a,b/limits",
            "redis+shards://me:opensesame@x=a:1,y=b:2",
        ] {
            assert!(has_password(address), "{address}");
            let line = ["tollgate".into(), format!("--redis={address}").into()];
            assert!(is_on_command_line(address, line.into_iter()));
            assert!(!is_on_command_line(
                address,
                ["tollgate".into()].into_iter()
            ));
        }
        assert!(!has_password("redis://a:1") && !has_password("redis://me@a:1"));
    }

    #[test]
    fn deadlines_and_node_counts_have_bounds() {
        assert_eq!(parse_deadline("15ms"), Ok(Duration::from_millis(15)));
        assert!(parse_deadline("11s").is_err() && parse_deadline("15").is_err());
        assert!(parse_nodes("0").is_err() && parse_nodes("x").is_err() && parse_nodes("3").is_ok());
        let options = parsed(&["--redis", "redis://a:1", "--redis-deadline", "20ms"]);
        let store = options
            .redis_options(KeyHashSecret::new([0; 16]))
            .unwrap()
            .unwrap();
        assert_eq!(store.deadline, Duration::from_millis(20));
        assert!(
            parsed(&[])
                .redis_options(KeyHashSecret::new([0; 16]))
                .unwrap()
                .is_none()
        );
    }
}

//! What can be set about the store that several nodes share.
//!
//! Must not know: how it is reached, what is shared.

use std::error::Error;
use std::fmt;
use std::fs;
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

use super::{parse_at_least_one, read_variable};

/// The password itself, for those who keep it in the environment.
const PASSWORD_VARIABLE: &str = "TOLLGATE_REDIS_PASSWORD";
/// Whoever asks has long gone on after this.
const MAX_DEADLINE: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Fleet")]
pub(crate) struct FleetOptions {
    /// The Redis or Valkey that all nodes count in, so that N of them do not mean N times the limit: `redis://host:port`, `redis+unix:///path`, `redis+sentinel://host:port,…/master`, `redis+cluster://host:port,…` or `redis+shards://name=host:port,…`; `rediss` for TLS. Needs a fleet secret. Without it every process counts by itself
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "TOLLGATE_REDIS",
        hide_env_values = true
    )]
    redis: Option<RedisAddress>,
    /// The user to log in to Redis as
    #[arg(
        long,
        value_name = "NAME",
        requires = "redis",
        env = "TOLLGATE_REDIS_USER"
    )]
    redis_user: Option<String>,
    /// A file with the password for Redis, which may change while the server runs; or the password itself in TOLLGATE_REDIS_PASSWORD
    #[arg(
        long,
        value_name = "FILE",
        requires = "redis",
        env = "TOLLGATE_REDIS_PASSWORD_FILE"
    )]
    redis_password_file: Option<PathBuf>,
    /// The user to log in to sentinels as
    #[arg(
        long,
        value_name = "NAME",
        requires = "redis_sentinel_password_file",
        env = "TOLLGATE_REDIS_SENTINEL_USER"
    )]
    redis_sentinel_user: Option<String>,
    /// A file with the password for sentinels, if they want one
    #[arg(
        long,
        value_name = "FILE",
        requires = "redis",
        env = "TOLLGATE_REDIS_SENTINEL_PASSWORD_FILE"
    )]
    redis_sentinel_password_file: Option<PathBuf>,
    /// Authorities of the certificates of Redis, in PEM; without it the system's are trusted
    #[arg(
        long,
        value_name = "FILE",
        requires = "redis",
        env = "TOLLGATE_REDIS_CA"
    )]
    redis_ca: Option<PathBuf>,
    /// The certificate to show to Redis, in PEM
    #[arg(
        long,
        value_name = "FILE",
        requires = "redis_key",
        env = "TOLLGATE_REDIS_CERT"
    )]
    redis_cert: Option<PathBuf>,
    /// That certificate's private key, in PEM and not encrypted
    #[arg(
        long,
        value_name = "FILE",
        requires = "redis_cert",
        env = "TOLLGATE_REDIS_KEY"
    )]
    redis_key: Option<PathBuf>,
    /// The longest that a decision waits for Redis; then this node decides by itself. At most 10s
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "15ms",
        value_parser = parse_deadline,
        env = "TOLLGATE_REDIS_DEADLINE"
    )]
    redis_deadline: Duration,
    /// Connections to each server, each of which carries many calls at a time
    #[arg(
        long,
        value_name = "N",
        default_value_t = 3,
        value_parser = parse_at_least_one,
        env = "TOLLGATE_REDIS_CONNECTIONS"
    )]
    redis_connections: usize,
    /// Calls of Redis under way at once; what would be one more is decided by this node
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4_096,
        value_parser = parse_at_least_one,
        env = "TOLLGATE_REDIS_MOST_IN_FLIGHT"
    )]
    redis_most_in_flight: usize,
    /// What the fleet is called, the same on all of its nodes: those of one name see each other in the Redis that they share
    #[arg(
        long,
        value_name = "NAME",
        default_value_t = FleetName::default(),
        env = "TOLLGATE_FLEET_NAME"
    )]
    fleet_name: FleetName,
    /// How many nodes there are: while Redis is away and nobody has been seen, each admits half of a limit divided by this
    #[arg(
        long,
        value_name = "N",
        value_parser = parse_nodes,
        env = "TOLLGATE_FLEET_NODES"
    )]
    fleet_nodes: Option<NonZeroU32>,
}

/// An address that may hold a password, and so is never shown.
#[derive(Clone)]
struct RedisAddress(String);

impl FleetOptions {
    /// Whether states are shared at all.
    pub(crate) const fn has_redis(&self) -> bool {
        self.redis.is_some()
    }

    /// How this node takes part in its fleet.
    pub(crate) fn membership(&self) -> MembershipSettings {
        let mut settings = MembershipSettings::default();
        settings.fleet = self.fleet_name.clone();
        settings.nodes = self.fleet_nodes;
        settings
    }

    /// How the store is reached, if there is one.
    pub(crate) fn redis_options(
        &self,
        secret: KeyHashSecret,
    ) -> Result<Option<RedisOptions>, Box<dyn Error>> {
        let Some(RedisAddress(address)) = &self.redis else {
            return Ok(None);
        };
        let mut options = RedisOptions::new(address.as_str(), secret);
        options.credentials = self.credentials(read_variable)?;
        options.sentinel_credentials = self.redis_sentinel_password_file.as_ref().map(|path| {
            let file = PasswordFile::new(self.redis_sentinel_user.clone(), path);
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
                    let why = "is set and so is --redis-password-file; which of the two is meant?";
                    return Err(format!("{PASSWORD_VARIABLE} {why}").into());
                }
                (Some(path), None) => {
                    let file = PasswordFile::new(username, path);
                    // A file that is not there is a mistake now; later it may be just being replaced.
                    file.current()
                        .map_err(|error| read_error("--redis-password-file", path, &error))?;
                    Some(Arc::new(file))
                }
                (None, Some(password)) => Some(Arc::new(StaticCredentials(Credentials {
                    username,
                    password,
                }))),
                (None, None) if username.is_some() => {
                    return Err("--redis-user takes a password: set --redis-password-file".into());
                }
                (None, None) => None,
            },
        )
    }
}

/// Credentials that stay as they are.
#[derive(Debug)]
struct StaticCredentials(Credentials);

impl CredentialsProvider for StaticCredentials {
    fn current(&self) -> std::io::Result<Credentials> {
        let Self(credentials) = self;
        Ok(credentials.clone())
    }
}

fn read_pem(path: impl AsRef<Path>) -> Result<Vec<u8>, Box<dyn Error>> {
    let path = path.as_ref();
    fs::read(path).map_err(|error| read_error("a certificate for Redis", path, &error))
}

fn read_error(what: &str, path: &Path, error: &std::io::Error) -> Box<dyn Error> {
    format!("cannot read {what}, {}: {error}", path.display()).into()
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
    fn the_password_is_never_shown_and_comes_from_one_place() {
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
    fn waits_and_counts_have_bounds() {
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

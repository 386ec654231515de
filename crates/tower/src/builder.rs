//! Builds a layer: where its policy comes from, and its settings.
//!
//! Must not know: how requests are decided.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use http::{HeaderMap, Uri};
use serde_json::{Value, json};
use tollgate_service::reload::{FileWatcher, WatchTiming};
use tollgate_service::{
    ClientAddressResolver, Clock, Dialects, InvalidPolicy, InvalidService, KeyFileWatcher,
    OverloadControl, PolicyFormat, RateLimitService, Secret, SystemClock, load_policy,
};

use crate::layer::TollgateLayer;
use crate::layer_state::LayerState;
use crate::limit_spec::LimitSpec;
use crate::overload::TargetFinder;
use crate::request::{ExtensionAttribute, RequestSettings};

/// How many keys have state of their own at the same time, unless the builder says so.
const DEFAULT_KEYS: usize = 100_000;

/// Settings of a [`TollgateLayer`].
///
/// ```
/// use tollgate_tower::{ClientAddressResolver, ForwardedHeader, LimitSpec, TollgateLayer};
///
/// struct User { id: String }
///
/// let proxies = vec!["10.0.0.0/8".parse()?];
/// let layer = TollgateLayer::builder()
///     .limit(LimitSpec::rate("per-client", "100/min").key("ip"))
///     .limit(LimitSpec::rate("per-user", "1000/h").key("extension.user"))
///     .client_addresses(ClientAddressResolver::behind_proxies(ForwardedHeader::XForwardedFor, proxies))
///     .extension("user", |user: &User| Some(user.id.as_str()))
///     .keys(50_000)
///     .build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "call `build`"]
#[derive(Debug)]
pub struct TollgateLayerBuilder {
    source: PolicySource,
    keys: usize,
    settings: RequestSettings,
    dialects: Dialects,
    reports_decisions: bool,
    secret: Option<Secret>,
}

#[derive(Debug)]
enum PolicySource {
    Code(Vec<LimitSpec>),
    Yaml(String),
    File(PathBuf),
}

/// Why a layer cannot be built.
#[non_exhaustive]
pub enum InvalidLayer {
    /// The policy is invalid.
    Policy(InvalidPolicy),
    /// The service cannot be built.
    Service(InvalidService),
    /// The thread that watches the policy file cannot be started.
    Watch(io::Error),
}

impl TollgateLayerBuilder {
    pub(crate) fn new() -> Self {
        Self {
            source: PolicySource::Code(Vec::new()),
            keys: DEFAULT_KEYS,
            settings: RequestSettings::default(),
            dialects: Dialects::default(),
            reports_decisions: false,
            secret: None,
        }
    }

    /// Adds a limit. All limits that match a request apply to it. Replaces a policy of text or of a file.
    pub fn limit(mut self, limit: LimitSpec) -> Self {
        match &mut self.source {
            PolicySource::Code(limits) => limits.push(limit),
            other => *other = PolicySource::Code(vec![limit]),
        }
        self
    }

    /// Uses a policy in YAML, and no other.
    pub fn policy(mut self, yaml: &str) -> Self {
        self.source = PolicySource::Yaml(yaml.to_owned());
        self
    }

    /// Uses the policy of a file, and no other. The file is loaded again when it changes.
    pub fn policy_file(mut self, path: impl AsRef<Path>) -> Self {
        self.source = PolicySource::File(path.as_ref().to_owned());
        self
    }

    /// Sets how many keys have state of their own at the same time. The default is 100,000.
    pub const fn keys(mut self, keys: usize) -> Self {
        self.keys = keys;
        self
    }

    /// Sets how clients are found behind proxies. Without it, the connection's peer is the client.
    pub fn client_addresses(mut self, clients: ClientAddressResolver) -> Self {
        self.settings.clients = clients;
        self
    }

    /// Provides the attribute `extension.NAME` from a value in the request's extensions. It is absent if the request has no
    /// such value, or if `read` returns `None`.
    pub fn extension<T: Send + Sync + 'static>(
        mut self,
        name: &str,
        read: impl for<'a> Fn(&'a T) -> Option<&'a str> + Send + Sync + 'static,
    ) -> Self {
        let extension = ExtensionAttribute::new(name, read);
        self.settings.extensions.push(extension);
        self
    }

    /// Names the gRPC methods of the service, such as `/package.Service/Method`. Their paths become the attribute `route`.
    ///
    /// Clients choose the paths of calls. So a path that is not named here is no route: otherwise each made-up method would get a
    /// quota of its own.
    ///
    /// ```
    /// use tollgate_tower::{LimitSpec, TollgateLayer};
    ///
    /// let layer = TollgateLayer::builder()
    ///     .limit(LimitSpec::rate("per-method", "100/s").key("route"))
    ///     .grpc_methods(["/demo.Greeter/SayHello", "/demo.Greeter/SayGoodbye"])
    ///     .build()?;
    /// # Ok::<(), tollgate_tower::InvalidLayer>(())
    /// ```
    pub fn grpc_methods<'a>(mut self, paths: impl IntoIterator<Item = &'a str>) -> Self {
        let paths = paths.into_iter().map(Box::from);
        self.settings.grpc_methods.extend(paths);
        self
    }

    /// Sets which requests share a concurrency limit of `overload`: those whose target is the same. Make targets with
    /// [`OverloadTargets::target`](tollgate_service::OverloadTargets::target) and keep them. Without it, all requests share one.
    pub fn overload_targets(
        mut self,
        find: impl Fn(&HeaderMap, &Uri) -> Option<Arc<OverloadControl>> + Send + Sync + 'static,
    ) -> Self {
        self.settings.overload_targets = Some(TargetFinder::new(find));
        self
    }

    /// Sets the dialects of header fields. The default is `RateLimit` and `RateLimit-Policy` of the current draft.
    ///
    /// ```
    /// use tollgate_tower::{Dialects, LimitSpec, TollgateLayer};
    ///
    /// let layer = TollgateLayer::builder()
    ///     .limit(LimitSpec::rate("all", "5/s"))
    ///     .dialects(Dialects::NONE)
    ///     .build()?;
    /// # Ok::<(), tollgate_tower::InvalidLayer>(())
    /// ```
    pub const fn dialects(mut self, dialects: Dialects) -> Self {
        self.dialects = dialects;
        self
    }

    /// Puts a [`DecisionInfo`](crate::DecisionInfo) into the extensions of each response, for logs of the application. It costs
    /// two allocations for each request.
    ///
    /// ```
    /// use tollgate_tower::{DecisionInfo, LimitSpec, TollgateLayer};
    /// # use tower::{Layer as _, ServiceExt as _, service_fn};
    ///
    /// let builder = TollgateLayer::builder().limit(LimitSpec::rate("all", "1/h"));
    /// let layer = builder.report_decisions().build()?;
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # let inner = service_fn(async |_| Ok::<_, std::convert::Infallible>(http::Response::new(String::new())));
    /// # let request = || http::Request::new(());
    /// let service = layer.layer(inner);
    /// for outcome in ["admitted", "denied"] {
    ///     let response = service.clone().oneshot(request()).await?;
    ///     let info = response.extensions().get::<DecisionInfo>().unwrap();
    ///     assert_eq!((info.outcome(), info.limit()), (outcome, Some("all")));
    /// }
    /// # Ok::<(), std::convert::Infallible>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn report_decisions(mut self) -> Self {
        self.reports_decisions = true;
        self
    }

    /// Sets the secret that keys digests: the same in all processes of a fleet. The default is a random one.
    ///
    /// ```
    /// use tollgate_tower::{LimitSpec, Secret, TollgateLayer};
    ///
    /// let secret = Secret::from_shared_text(b"the same text in every process")?;
    /// let layer = TollgateLayer::builder().limit(LimitSpec::rate("all", "5/s")).secret(secret).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn secret(mut self, secret: Secret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// Builds the layer.
    ///
    /// # Errors
    /// All problems of the policy; or `keys` is out of range.
    pub fn build(self) -> Result<TollgateLayer, InvalidLayer> {
        self.build_with_clock(SystemClock::new())
    }

    /// Builds the layer with another clock, for tests.
    ///
    /// ```
    /// use tollgate_tower::{LimitSpec, ManualClock, Timestamp, TollgateLayer};
    ///
    /// let builder = TollgateLayer::builder().limit(LimitSpec::rate("all", "5/s"));
    /// let layer = builder.build_with_clock(ManualClock::at(Timestamp::from_secs(1_700_000_000)))?;
    /// # Ok::<(), tollgate_tower::InvalidLayer>(())
    /// ```
    ///
    /// # Errors
    /// As for [`build`](Self::build).
    pub fn build_with_clock<C: Clock + 'static>(
        self,
        clock: C,
    ) -> Result<TollgateLayer<C>, InvalidLayer> {
        let secret = self.secret.unwrap_or_else(Secret::random);
        let service = match &self.source {
            PolicySource::File(path) => {
                RateLimitService::from_file(path, self.keys, clock, secret)?
            }
            PolicySource::Yaml(text) => {
                let policy = load_policy(text, "policy", PolicyFormat::Yaml)?;
                RateLimitService::new(&policy, self.keys, clock, secret)?
            }
            PolicySource::Code(limits) => {
                let limits: Vec<&Value> = limits.iter().map(LimitSpec::as_json).collect();
                let text = json!({ "limits": limits }).to_string();
                let policy = load_policy(&text, "limits in code", PolicyFormat::Json)?;
                RateLimitService::new(&policy, self.keys, clock, secret)?
            }
        };
        let service = service.with_dialects(self.dialects);
        self.build_with_service(Arc::new(service))
    }

    /// Builds the layer over a service that exists: one that has joined a fleet, or that a server shares. The settings of
    /// policy, keys and dialects are the service's own.
    ///
    /// # Errors
    /// The thread that watches the policy file cannot be started.
    pub fn build_with_service<C: Clock + 'static>(
        self,
        service: Arc<RateLimitService<C>>,
    ) -> Result<TollgateLayer<C>, InvalidLayer> {
        let layer = TollgateLayer::new(LayerState {
            service,
            settings: self.settings,
            reports_decisions: self.reports_decisions,
            kept_alive: Mutex::default(),
            has_warned: AtomicBool::new(false),
        });
        let service = layer.rate_limit_service();
        if let (PolicySource::File(_), Some(reloader)) = (&self.source, service.reloader()) {
            let timing = WatchTiming::default();
            let keys = KeyFileWatcher::new(Arc::clone(service), timing);
            keys.follow_policy().map_err(InvalidLayer::Watch)?;
            let watcher = FileWatcher::start(Arc::clone(reloader), timing, move |_| {
                keys.follow_policy_or_log();
            });
            layer.keep_alive(watcher.map_err(InvalidLayer::Watch)?);
        }
        Ok(layer)
    }
}

impl fmt::Debug for InvalidLayer {
    /// The message: this is what a program shows whose `main` returns the error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for InvalidLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(problems) => problems.fmt(f),
            Self::Service(error) => error.fmt(f),
            Self::Watch(error) => write!(f, "cannot watch the policy file: {error}"),
        }
    }
}

impl std::error::Error for InvalidLayer {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Policy(_) => None,
            Self::Service(error) => Some(error),
            Self::Watch(error) => Some(error),
        }
    }
}

impl From<InvalidService> for InvalidLayer {
    fn from(error: InvalidService) -> Self {
        Self::Service(error)
    }
}

impl From<InvalidPolicy> for InvalidLayer {
    fn from(problems: InvalidPolicy) -> Self {
        Self::Policy(problems)
    }
}

//! Settings for files of envoyproxy/ratelimit: its own environment variables, by the names of ours.
//!
//! Must not know: what the settings do.

use tollgate_envoy::EnvoyOptions;
use tollgate_envoy::config::Modes;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Files of envoyproxy/ratelimit")]
pub(crate) struct EnvoyFileOptions {
    /// Merge files with the same domain, as with `MERGE_DOMAIN_CONFIG`
    #[arg(long, env = "TOLLGATE_MERGE_DOMAINS")]
    merge_domains: bool,
    /// Count, but answer OK to every request, as with `SHADOW_MODE`. Statuses of descriptors still say `OVER_LIMIT`
    #[arg(long, env = "TOLLGATE_ENVOY_SHADOW_MODE")]
    envoy_shadow_mode: bool,
    /// Treat every rule as if it had `quota_mode`, as with `QUOTA_MODE`: a request is denied if all of its descriptors are over their limits
    #[arg(long, env = "TOLLGATE_ENVOY_QUOTA_MODE")]
    envoy_quota_mode: bool,
    /// Send dynamic metadata with every answer, as with `RESPONSE_DYNAMIC_METADATA`. Default: only if a rule with `metadata` admitted the
    /// request
    #[arg(long, env = "TOLLGATE_ENVOY_DYNAMIC_METADATA")]
    envoy_dynamic_metadata: bool,
}

impl EnvoyFileOptions {
    pub(crate) const fn to_envoy_options(&self) -> EnvoyOptions {
        EnvoyOptions {
            merge_domains: self.merge_domains,
            modes: Modes {
                shadow_mode: self.envoy_shadow_mode,
                quota_mode: self.envoy_quota_mode,
            },
            dynamic_metadata: self.envoy_dynamic_metadata,
        }
    }

    /// The first setting that is given. A policy of Tollgate has none of them, so it must not be ignored there.
    pub(crate) const fn first_given(&self) -> Option<&'static str> {
        match self {
            Self {
                merge_domains: true,
                ..
            } => Some("--merge-domains"),
            Self {
                envoy_shadow_mode: true,
                ..
            } => Some("--envoy-shadow-mode"),
            Self {
                envoy_quota_mode: true,
                ..
            } => Some("--envoy-quota-mode"),
            Self {
                envoy_dynamic_metadata: true,
                ..
            } => Some("--envoy-dynamic-metadata"),
            _ => None,
        }
    }
}

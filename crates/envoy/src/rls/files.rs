//! Apps that decide by files of envoyproxy/ratelimit, and the files that an app decides by, whichever kind they are.
//!
//! Must not know: what files say, how anything is decided.

use std::path::Path;
use std::sync::Arc;

use crate::config::EnvoyPolicy;
use tollgate_policy::model::Policy;
use tollgate_service::reload::{EnvoyReloader, Reload, Reloader, Status};
use tollgate_store::Clock;

use super::Rls;
use crate::app::App;
use tollgate_service::{InvalidService, Secret};

impl<C: Clock> App<C> {
    /// An app that decides by files of envoyproxy/ratelimit, and only on what Envoy asks.
    ///
    /// # Errors
    /// There cannot be so many keys.
    pub fn by_envoys_files(
        files: EnvoyPolicy,
        keys: usize,
        clock: C,
    ) -> Result<Self, InvalidService> {
        let mut app = Self::new(&Policy::default(), keys, clock)?;
        app.rls = Rls::by_files(files, app.engine(), app.service.secret().bytes())
            .map_err(InvalidService::Numbers)?;
        Ok(app)
    }

    /// The same, of which somebody says when to look at the files again.
    pub(crate) fn following_files(
        path: &Path,
        keys: usize,
        clock: C,
        secret: Secret,
    ) -> Result<Self, InvalidService> {
        let mut app = Self::keyed(&Policy::default(), keys, clock, secret)?;
        app.rls = Rls::following(path, app.engine(), app.service.secret().bytes())
            .map_err(|refused| InvalidService::Files(refused.0))?;
        Ok(app)
    }

    /// What looks at the file or files that decide, whichever kind they are, if there are any.
    pub fn reload(&self) -> Option<Arc<dyn Reload>>
    where
        C: 'static,
    {
        if let Some(reloader) = self.rls.reloader() {
            return Some(Arc::<EnvoyReloader<_>>::clone(reloader));
        }
        let reloader = self.service.reloader()?;
        Some(Arc::<Reloader<_>>::clone(reloader))
    }

    /// What is known of the file or files that decide, if there are any.
    pub(crate) fn file_status(&self) -> Option<Status> {
        match self.rls.reloader() {
            Some(reloader) => Some(reloader.status()),
            None => Some(self.service.reloader()?.status()),
        }
    }

    /// The number of the version of the policy, or of the files, that decides.
    pub(crate) fn generation(&self) -> u64 {
        self.rls
            .generation()
            .unwrap_or_else(|| self.engine().generation().number())
    }

    /// Whether files of envoyproxy/ratelimit decide. Then only what Envoy asks is answered.
    #[must_use]
    pub const fn is_by_envoys_files(&self) -> bool {
        self.rls.is_by_files()
    }
}

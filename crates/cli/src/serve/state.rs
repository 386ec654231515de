//! The state file of the server: loaded at the start, saved at an interval by a thread of its own, and once more at the end.
//!
//! Must not know: what the state contains, how it is written.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use tollgate_server::HttpApi;
use tollgate_server::resp::RespServer;
use tollgate_service::state::{
    InitialState, LoadOutcome, ProcessState, RestoredState, StateFile, read_state, write_state,
};
use tollgate_store::{MemoryStore, SystemClock};

use super::settings::Options;

/// How long the end of the process waits for the last save.
const LAST_SAVE_TIMEOUT: Duration = Duration::from_secs(5);

/// What the server begins with.
pub(super) struct StateSetup {
    pub(super) file: Option<Arc<StateFile>>,
    pub(super) initial: InitialState<SystemClock>,
    pub(super) throttle: MemoryStore<SystemClock>,
    pub(super) process: Option<ProcessState>,
}

impl StateSetup {
    /// Loads the state file, if there is one.
    pub(super) fn load(options: &Options) -> Result<Self, Box<dyn Error>> {
        let keys = options.capacity.keys;
        let Some(path) = &options.state.state else {
            return Self::empty(keys, None);
        };
        let file = Arc::new(StateFile::open(path)?);
        let read = move |input: &mut io::BufReader<_>| read_state(input, keys, SystemClock::new);
        let path = path.display();
        match file.load(read) {
            LoadOutcome::Missing => {
                tracing::info!(%path, "state file does not exist yet; starting without state");
                Self::empty(keys, Some(file))
            }
            LoadOutcome::Loaded(RestoredState {
                initial,
                throttle,
                process,
            }) => {
                let age = initial.store.now().since(process.saved_at());
                let age_seconds = age.as_secs_ceil();
                tracing::info!(%path, age_seconds, "state loaded");
                if initial.store.now() < process.saved_at() {
                    tracing::warn!(%path, "state was saved in the future; the clock went back");
                }
                Ok(Self {
                    file: Some(file),
                    initial,
                    throttle,
                    process: Some(process),
                })
            }
            // A save would replace a file that may be intact. A supervisor starts the process again.
            LoadOutcome::Unreadable(error) => {
                Err(format!("cannot read the state file {path}: {error}").into())
            }
            LoadOutcome::Damaged(reason) if options.state.state_required => Err(format!(
                "--state-required: the state file {path} cannot be used: {reason}"
            )
            .into()),
            LoadOutcome::Damaged(reason) => {
                let kept = match file.keep_aside() {
                    Ok(kept) => format!("it was renamed to {}", kept.display()),
                    Err(error) => format!("it cannot be renamed: {error}"),
                };
                tracing::error!(%path, %reason, %kept, "state file damaged; starting without state");
                Self::empty(keys, Some(file))
            }
        }
    }

    fn empty(keys: usize, file: Option<Arc<StateFile>>) -> Result<Self, Box<dyn Error>> {
        Ok(Self {
            file,
            initial: InitialState::empty(keys, SystemClock::new())?,
            throttle: MemoryStore::for_keys(keys)?,
            process: None,
        })
    }
}

/// Saves the state at an interval until it is finished.
pub(super) struct StateSaver {
    stop: SyncSender<()>,
    /// Closed when the last save has ended.
    ended: Receiver<()>,
}

impl StateSaver {
    pub(super) fn start(
        file: Arc<StateFile>,
        interval: Duration,
        app: Arc<HttpApi<SystemClock>>,
        resp: Arc<RespServer<SystemClock>>,
    ) -> io::Result<Self> {
        let (stop, stopped) = sync_channel(1);
        let (has_ended, ended) = sync_channel(1);
        let save = move || {
            let (app, resp) = (Arc::clone(&app), Arc::clone(&resp));
            let now = app.engine().store().now();
            // The file counts and logs the result.
            let _saved = file.save(now, move |out| {
                write_state(out, app.service(), resp.store())
            });
        };
        thread::Builder::new()
            .name("tollgate-state".to_owned())
            .spawn(move || {
                while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                    save();
                }
                save();
                drop(has_ended);
            })?;
        Ok(Self { stop, ended })
    }

    /// Saves once more. Call it when no request is served any more.
    pub(super) fn finish(self) {
        // The queue is empty, and the thread ends with the process otherwise.
        let _sent = self.stop.try_send(());
        if self.ended.recv_timeout(LAST_SAVE_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            tracing::error!("state not saved at the end; the disk does not answer");
        }
    }
}

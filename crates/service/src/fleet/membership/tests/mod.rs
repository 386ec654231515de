//! Nodes of a fleet on a register in memory, with a clock that tests advance.
//!
//! Must not know: real registers.

mod authentication;
mod convergence;
mod members;
mod operator_changes;
mod task_panics;
mod usage;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tollgate_core::{Nanos, Timestamp};
use tollgate_engine::control::Attribution;
use tollgate_policy::source::SourceFormat;
use tollgate_store::ManualClock;
use tollgate_store::register::Register;
use tollgate_testkit::register::ModelRegister;

use super::{LocalNode, Membership, MembershipSettings};
use crate::{RateLimitService, Secret};

const BY: Attribution<'_> = Attribution {
    who: "ada",
    why: "a test",
};
const POLICY: &str = "limits: [{ name: api, key: header.x-api-key, rate: 10/s }]";
const OTHER_POLICY: &str = "limits: [{ name: api, key: header.x-api-key, rate: 11/s }]";

type TestService = RateLimitService<Arc<ManualClock>>;

fn service_with(policy: &str, secret: &str) -> Arc<TestService> {
    let policy = tollgate_policy::load(policy, "policy.yaml", SourceFormat::Yaml).unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)));
    let secret = Secret::from_shared_text(secret.as_bytes()).unwrap();
    Arc::new(RateLimitService::new(&policy, 1_000, clock, secret).unwrap())
}

fn service() -> Arc<TestService> {
    service_with(POLICY, "the secret of this fleet")
}

/// A running node. Stopping it leaves the fleet; dropping it kills it.
struct Member {
    service: Arc<TestService>,
    membership: Arc<Membership>,
    stop: oneshot::Sender<()>,
    task: JoinSet<()>,
}

impl Member {
    fn start(register: &Arc<ModelRegister>, service: Arc<TestService>, secret: &str) -> Self {
        let node: Arc<dyn LocalNode> = Arc::<TestService>::clone(&service);
        Self::start_as(register, service, node, secret)
    }

    fn start_as(
        register: &Arc<ModelRegister>,
        service: Arc<TestService>,
        node: Arc<dyn LocalNode>,
        secret: &str,
    ) -> Self {
        Self::start_with(
            register,
            service,
            node,
            secret,
            MembershipSettings::default(),
        )
    }

    fn start_with(
        register: &Arc<ModelRegister>,
        service: Arc<TestService>,
        node: Arc<dyn LocalNode>,
        secret: &str,
        settings: MembershipSettings,
    ) -> Self {
        let secret = Secret::from_shared_text(secret.as_bytes()).unwrap();
        let membership = Membership::new(secret, settings);
        let (stop, stopping) = oneshot::channel::<()>();
        let register: Arc<dyn Register> = Arc::<ModelRegister>::clone(register);
        let mut task = JoinSet::new();
        task.spawn(Arc::clone(&membership).run(register, node, async {
            let _sent_or_dropped = stopping.await;
        }));
        Self {
            service,
            membership,
            stop,
            task,
        }
    }

    fn start_default(register: &Arc<ModelRegister>) -> Self {
        Self::start(register, service(), "the secret of this fleet")
    }

    fn visible_nodes(&self) -> usize {
        self.membership.view().nodes.len()
    }

    async fn stop(mut self) {
        self.stop.send(()).unwrap();
        self.task.join_next().await.unwrap().unwrap();
    }

    fn block(&self, key: &str) {
        let control = self.service.engine().control();
        control.block_key("api", &[key], None, BY).unwrap();
    }

    fn blocks(&self) -> usize {
        self.service
            .engine()
            .control()
            .operator_state()
            .blocks
            .len()
    }
}

/// Advances the time of the nodes and of the register.
async fn advance(register: &ModelRegister, time: Duration) {
    let step = Duration::from_millis(50);
    for _ in 0..time.as_millis() / step.as_millis() {
        register.advance(Nanos::from_millis(50));
        // The paused clock advances to the end of the step once all earlier timers have fired.
        let _advanced = tokio::time::timeout(step, std::future::pending::<()>()).await;
    }
}

const TWO_SECONDS: Duration = Duration::from_secs(2);

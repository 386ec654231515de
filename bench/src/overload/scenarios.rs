//! The traces: how many requests arrive, and how long the server works on each.
//!
//! Must not know: who decides.

use tollgate_core::Nanos;

/// The workers of the server: a hundred times those of tripwire.
pub const WORKERS: u32 = 1_200;
/// A response is good if the client has it after this time: twice the longest service time of the traces.
pub const DEADLINE: Nanos = Nanos::from_millis(300);

/// A part of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// How long it lasts.
    pub seconds: f64,
    /// Requests per second of the most important class.
    pub critical: f64,
    /// Requests per second of the other class.
    pub sheddable: f64,
    /// The service time.
    pub service: Nanos,
    /// The workers.
    pub workers: u32,
}

impl Stage {
    /// Requests per second that the server can do.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a service time is short")]
    pub fn capacity(&self) -> f64 {
        f64::from(self.workers) * 1e9 / self.service.as_nanos() as f64
    }

    /// Requests per second that arrive.
    #[must_use]
    pub fn demand(&self) -> f64 {
        self.critical + self.sheddable
    }
}

/// A trace.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// Its parts in order.
    pub stages: Vec<Stage>,
    /// Whether service times vary as much as their mean (an exponential distribution) or not at all.
    pub is_service_random: bool,
    /// The seed of arrivals and service times.
    pub seed: u64,
}

impl Scenario {
    /// The same with a smaller server and as much less demand, for tests that are built without optimization.
    #[must_use]
    pub fn scaled_down(mut self, divisor: u32) -> Self {
        for stage in &mut self.stages {
            stage.workers /= divisor;
            stage.critical /= f64::from(divisor);
            stage.sheddable /= f64::from(divisor);
        }
        self
    }
}

/// tripwire's `gcl.yaml`, a hundred times as large: 10,000 requests/s, and a service time of 50, 150 and 50 ms. `seconds` is the
/// length of the whole; the original has 80.
#[must_use]
pub fn gcl(seconds: f64) -> Scenario {
    let stage = |part: f64, millis| Stage {
        seconds: seconds * part,
        critical: 0.0,
        sheddable: 10_000.0,
        service: Nanos::from_millis(millis),
        workers: WORKERS,
    };
    Scenario {
        name: "gcl".to_owned(),
        stages: vec![stage(0.25, 50), stage(0.5, 150), stage(0.25, 50)],
        is_service_random: false,
        seed: 1,
    }
}

/// Demand steps from 0.8 times the capacity to `factor` times, and back. Half of the capacity is critical demand all the time.
#[must_use]
pub fn steps(factor: f64, seconds: f64) -> Scenario {
    let service = Nanos::from_millis(50);
    let stage = |seconds: f64, factor: f64| {
        let mut stage = Stage {
            seconds,
            critical: 0.0,
            sheddable: 0.0,
            service,
            workers: WORKERS,
        };
        stage.critical = 0.5 * stage.capacity();
        stage.sheddable = factor * stage.capacity() - stage.critical;
        stage
    };
    Scenario {
        name: format!("{factor}×"),
        stages: vec![stage(2.0, 0.8), stage(seconds, factor), stage(2.0, 0.8)],
        is_service_random: false,
        seed: 2,
    }
}

/// Demand grows slowly from 0.8 to 3 times the capacity: limits that follow a drifting latency run away.
#[must_use]
pub fn ramp(seconds: f64) -> Scenario {
    let stages = (0..23_u32).map(|tenth| {
        let mut stage = Stage {
            seconds: seconds / 23.0,
            critical: 0.0,
            sheddable: 0.0,
            service: Nanos::from_millis(50),
            workers: WORKERS,
        };
        stage.sheddable = (0.8 + 0.1 * f64::from(tenth)) * stage.capacity();
        stage
    });
    Scenario {
        name: "ramp".to_owned(),
        stages: stages.collect(),
        is_service_random: false,
        seed: 3,
    }
}

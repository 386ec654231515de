//! One server and one connection to it, and the counters that laps are measured by.
//!
//! Must not know: who is measured, how the numbers are shown.

use redis::Connection;
use tollgate_testkit::redis::{RedisServer, ServerProgram, info};

use crate::contender::Contender;
use crate::{Failure, clock};

/// Calls that are sent together, as a busy client's are.
pub(crate) const PIPELINE: usize = 100;

/// A server of our own. It ends when this is dropped.
pub(crate) struct BenchRedis {
    connection: Connection,
    /// What the article's script is called by.
    article: String,
    _server: RedisServer,
}

/// What one call cost, in microseconds: the same number as seconds per million calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallCost {
    /// The server's processor time, for everything that it does.
    pub(crate) server: f64,
    /// Time within the script alone, as the server counts it: on the wall, so a server that loses the processor counts on.
    pub(crate) script: f64,
    /// This thread's processor time, from building the call to reading the answer.
    pub(crate) client: f64,
}

impl BenchRedis {
    pub(crate) fn start(kind: ServerProgram) -> Result<Self, Failure> {
        // A missing program is told as an error with the command that installs it, before anything is started.
        kind.look_up()?;
        let server = RedisServer::start(kind);
        let mut connection = redis::Client::open(server.url())?.get_connection()?;
        let mut article = String::new();
        for text in Contender::scripts() {
            let load = redis::cmd("SCRIPT").arg("LOAD").arg(text).take();
            article = load.query(&mut connection)?;
        }
        Ok(Self {
            connection,
            article,
            _server: server,
        })
    }

    /// The server's name and version.
    pub(crate) fn version(&mut self) -> Result<String, Failure> {
        let text = self.info("server")?;
        let version = text
            .lines()
            .find_map(|line| line.strip_prefix("redis_version:"));
        Ok(format!(
            "Redis {}",
            version.unwrap_or("of some version").trim()
        ))
    }

    /// Forgets every key.
    pub(crate) fn empty(&mut self) -> Result<(), Failure> {
        let flush = redis::cmd("FLUSHALL").arg("SYNC").take();
        Ok(flush.query(&mut self.connection)?)
    }

    /// Bytes that the server has in use.
    pub(crate) fn used_memory(&mut self) -> Result<f64, Failure> {
        let text = self.info("memory")?;
        Ok(info::number(&text, "used_memory").ok_or("INFO says nothing of used_memory")?)
    }

    /// Calls once for every number, and answers what a call cost. Fails unless all are decided as they must be.
    pub(crate) fn lap(
        &mut self,
        contender: &Contender,
        numbers: &[u64],
        must_admit: Option<bool>,
    ) -> Result<CallCost, Failure> {
        let reset = redis::cmd("CONFIG").arg("RESETSTAT").take();
        reset.query::<()>(&mut self.connection)?;
        let (used, thread) = (self.processor_micros()?, clock::thread_time());
        for numbers in numbers.chunks(PIPELINE) {
            let mut pipe = redis::pipe();
            for number in numbers {
                pipe.add_command(contender.call(&self.article, *number)?);
            }
            let replies: Vec<Vec<i64>> = pipe.query(&mut self.connection)?;
            for (number, reply) in numbers.iter().zip(&replies) {
                let is_admitted = contender.is_admitted(*number, reply)?;
                if must_admit.is_some_and(|must| must != is_admitted) {
                    return Err(format!("{contender:?} admits: {is_admitted}").into());
                }
            }
        }
        let thread = clock::thread_time().saturating_sub(thread);
        let used = self.processor_micros()? - used;
        let text = self.info("commandstats")?;
        let scripts = info::command(&text, "evalsha").ok_or("no script was called")?;
        let calls = f64::from(u32::try_from(numbers.len())?);
        Ok(CallCost {
            server: used / calls,
            script: scripts.micros / calls,
            client: thread.as_secs_f64() * 1e6 / calls,
        })
    }

    /// Processor time of the server so far, its own and the system's on its behalf.
    fn processor_micros(&mut self) -> Result<f64, Failure> {
        let text = self.info("cpu")?;
        let number = |name| info::number(&text, name).ok_or(format!("INFO says nothing of {name}"));
        Ok((number("used_cpu_user")? + number("used_cpu_sys")?) * 1e6)
    }

    fn info(&mut self, section: &str) -> Result<String, Failure> {
        let info = redis::cmd("INFO").arg(section).take();
        Ok(info.query(&mut self.connection)?)
    }
}

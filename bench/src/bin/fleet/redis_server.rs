//! A Redis server of our own, and what it says that it has done.
//!
//! Must not know: who calls it, how the numbers are shown.

use std::time::Duration;

use redis::Connection;
use tollgate_testkit::redis::{RedisServer, ServerProgram, info};

use crate::Failure;

/// A server of our own. It ends when this is dropped.
pub(crate) struct BenchRedis {
    connection: Connection,
    server: RedisServer,
}

/// What a server has done so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandTotals {
    /// Microseconds of processor time, its own and the system's on its behalf.
    pub(crate) cpu: f64,
    /// How often it read from a connection: each is one system call, however many calls came with it.
    pub(crate) reads: f64,
    /// Calls of scripts.
    pub(crate) scripts: f64,
}

impl BenchRedis {
    pub(crate) fn start() -> Result<Self, Failure> {
        // A missing program is told as an error with the command that installs it, before anything is started.
        ServerProgram::Redis.look_up()?;
        let server = RedisServer::start(ServerProgram::Redis);
        let connection = redis::Client::open(server.url())?.get_connection()?;
        Ok(Self { connection, server })
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    /// The server's name and version.
    pub(crate) fn version(&mut self) -> Result<String, Failure> {
        let text = self.info("server")?;
        let mut lines = text.lines();
        let version = lines.find_map(|line| line.strip_prefix("redis_version:"));
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

    /// Keeps its connections and says nothing for so long.
    pub(crate) fn fall_silent(&mut self, span: Duration) -> Result<(), Failure> {
        let mut sleep = redis::cmd("DEBUG");
        sleep.arg("SLEEP").arg(span.as_secs_f64());
        self.connection
            .send_packed_command(&sleep.get_packed_command())?;
        Ok(())
    }

    /// What it has done so far.
    pub(crate) fn done(&mut self) -> Result<CommandTotals, Failure> {
        let text = self.info("all")?;
        let number = |name| info::number(&text, name).ok_or(format!("INFO says nothing of {name}"));
        let scripts = info::command(&text, "evalsha").map_or(0, |command| command.calls);
        Ok(CommandTotals {
            cpu: (number("used_cpu_user")? + number("used_cpu_sys")?) * 1e6,
            reads: number("total_reads_processed")?,
            scripts: f64::from(u32::try_from(scripts)?),
        })
    }

    fn info(&mut self, section: &str) -> Result<String, Failure> {
        let info = redis::cmd("INFO").arg(section).take();
        Ok(info.query(&mut self.connection)?)
    }
}

impl CommandTotals {
    /// What it has done since then.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            cpu: self.cpu - before.cpu,
            reads: self.reads - before.reads,
            scripts: self.scripts - before.scripts,
        }
    }
}

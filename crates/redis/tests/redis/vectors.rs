//! The test vectors through the scripts: they hold here as in core.

use std::path::Path;

use redis::Connection;
use tollgate_core::Timestamp;
use tollgate_core::compose::BatchOutcome;
use tollgate_core::limit::{Limit, OpError};
use tollgate_core::reservation::ReservationOptions;
use tollgate_redis::ReservationRetention;
use tollgate_redis::wire::{ScriptCall, ScriptKind, decode};
use tollgate_store::{IdentifiedLimit, Op, QuotaCheck, StoreKey, StoreReply};
use tollgate_testkit::redis::{RedisServer, ServerProgram};
use tollgate_testkit::vectors::{Batches, Suite, VectorBatch, run};

use crate::SECRET;
use crate::differential::{BLANK, first_limit};
use crate::server_time::connection;

/// A server that decides at the instants of a vector.
struct ScriptSubject(Connection);

impl Batches for ScriptSubject {
    fn batch(
        &mut self,
        now: Timestamp,
        options: Option<&ReservationOptions>,
        checks_asked: &[VectorBatch<'_>],
    ) -> Result<(BatchOutcome, Vec<StoreReply>), OpError> {
        let retention = options.map_or_else(ReservationRetention::default, |options| {
            ReservationRetention {
                retention: options.retention,
                max_records: u32::try_from(options.max_records).unwrap(),
            }
        });
        let limits: Vec<IdentifiedLimit> = checks_asked
            .iter()
            .map(|(_, limit, _)| first_limit(**limit))
            .collect();
        let checks: Vec<QuotaCheck<'_>> = checks_asked
            .iter()
            .zip(&limits)
            .map(|((key, _, op), limit)| QuotaCheck {
                key: StoreKey::new(key.as_bytes()).unwrap(),
                limit,
                op: *op,
            })
            .collect();
        let request = ScriptCall::new(SECRET, retention, &checks, Some(now))
            .map_err(|_senseless| OpError::Unsupported)?;
        let mut call = redis::cmd("EVALSHA");
        call.arg(&request.kind.script().digest)
            .arg(request.keys.len());
        for bytes in request.keys.iter().chain(&request.args) {
            call.arg(bytes);
        }
        let reply: Vec<i64> = call.query(&mut self.0).unwrap();
        let mut answers = vec![BLANK; checks.len()];
        let batch = decode(&checks, &reply, &mut answers).unwrap();
        Ok((batch.outcome, answers))
    }

    /// States record their window length, so a peek is enough: it converts the counts.
    fn change(&mut self, now: Timestamp, key: &str, _old: &Limit, new: &Limit) {
        let looked = self.batch(now, None, &[(key, new, Op::Spend(0))]);
        // A limit that cannot be spent on has nothing to convert.
        assert!(matches!(looked, Ok(_) | Err(OpError::Unsupported)));
    }
}

fn passes(kind: ServerProgram) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/vectors");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .collect();
    files.sort();
    let server = RedisServer::start(kind);
    let mut scripts = ScriptSubject(connection(&server));
    for which in ScriptKind::DECIDING {
        let load = redis::cmd("SCRIPT")
            .arg("LOAD")
            .arg(which.script().text)
            .query::<()>(&mut scripts.0);
        load.unwrap();
    }
    let mut cases = 0;
    for file in &files {
        let suite = Suite::load(file, 1).unwrap();
        match run(&suite, &mut scripts) {
            Ok(count) => cases += count,
            Err(mismatch) => panic!("{kind:?}: {mismatch}"),
        }
    }
    println!("{kind:?}: {cases} cases of {} files", files.len());
    assert!(cases >= 190, "{cases}");
}

#[test]
fn every_vector_passes_on_every_promised_server() {
    for kind in ServerProgram::under_test() {
        passes(kind);
    }
}

//! Random calls on the register and on the testkit's model: the replies must be equal.

use tollgate_redis::RedisRegister;
use tollgate_store::register::{
    NodeId, PutMode, Register, RegisterCursor, RegisterPut, RegisterSnapshot,
};
use tollgate_testkit::redis::{RedisServer, ServerProgram};
use tollgate_testkit::register::ModelRegister;

use super::{register, remove, set, summary};
use crate::server_time::connection;

/// Random numbers that repeat with the seed (splitmix64).
struct SplitMix(u64);

impl SplitMix {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % bound
    }
}

/// Runs the same calls on the register and on the model. Returns the first difference.
async fn compare(seed: u64, real: &RedisRegister, model: &ModelRegister) -> Option<String> {
    let mut rng = SplitMix(seed);
    let mut numbers = [0_u64; 3];
    let mut marks: Vec<(Option<RegisterCursor>, Option<RegisterCursor>)> = vec![(None, None)];
    for step in 0..60 {
        let node = rng.below(3);
        if rng.below(3) == 0 {
            let pick = usize::try_from(rng.below(marks.len() as u64)).unwrap();
            let (since, as_model_has_it) = marks[pick];
            let one = real.entries(since).await.unwrap();
            let two = model.entries_now(as_model_has_it).unwrap();
            let of = |snapshot: &RegisterSnapshot| {
                (
                    summary(snapshot),
                    snapshot.is_complete,
                    snapshot.lost_after.is_some(),
                )
            };
            if of(&one) != of(&two) {
                return Some(format!(
                    "seed {seed}, step {step}: {:?} {:?}",
                    of(&one),
                    of(&two)
                ));
            }
            marks.push((Some(one.cursor), Some(two.cursor)));
            continue;
        }
        let number = &mut numbers[usize::try_from(node).unwrap()];
        // Sometimes repeat the last number.
        *number += u64::from(*number == 0 || rng.below(5) > 0);
        let change = |rng: &mut SplitMix| {
            let how = [PutMode::Set, PutMode::SetIfAbsent, PutMode::Remove]
                [usize::try_from(rng.below(3)).unwrap()];
            RegisterPut {
                mode: how,
                ..set(&format!("n{}", rng.below(4)), &rng.below(100).to_string())
            }
        };
        let changes: Vec<RegisterPut> = (0..=rng.below(3)).map(|_| change(&mut rng)).collect();
        let one = real.put(NodeId(node), *number, &changes).await.unwrap();
        let two = model.put_now(NodeId(node), *number, &changes).unwrap();
        marks.push((Some(one), Some(two)));
    }
    None
}

#[tokio::test]
async fn the_register_replies_like_the_model_for_any_sequence_of_puts() {
    for kind in ServerProgram::under_test() {
        let server = RedisServer::start(kind);
        let real = register(server.url()).await;
        for seed in 0..15 {
            let flushed = redis::cmd("FLUSHALL").query::<()>(&mut connection(&server));
            flushed.unwrap();
            let difference = compare(seed, &real, &ModelRegister::default()).await;
            assert_eq!(difference, None, "{kind:?}");
        }
    }
}

#[tokio::test]
async fn control_a_register_with_more_entries_than_the_model_is_noticed() {
    let server = RedisServer::start(ServerProgram::Redis);
    let real = register(server.url()).await;
    real.put(NodeId(9), 1, &[remove("n0")]).await.unwrap();
    let model = ModelRegister::default();
    assert!(compare(1, &real, &model).await.is_some());
}

//! The Redis protocol, one command at a time and pipelined by 16, beside other limiters that speak it and beside an echo.
//!
//! Must not know: how anything is measured.

use super::{Keys, ONE_BY_ONE, PIPELINED, Report, Workload, fill_all};
use crate::contenders::{Article, Ours, RedisCell, Throttlecrab, bare_echo};
use crate::options::{Options, Part};

pub(super) fn run(
    options: &Options,
    ours: &Ours,
    throttlecrab: Option<&Throttlecrab>,
    report: &mut Report,
) -> Result<(), String> {
    let (throttle, check, article) = (ours.resp(), ours.resp_check(), Article::start()?);
    let floor = bare_echo(&throttle)?;
    let mut contenders = vec![throttle, check, floor, article.resp()];
    let [echo, lua] = [2, 3].map(|index| contenders[index].name);
    contenders.extend(throttlecrab.map(Throttlecrab::resp));
    let redis_cell = options.redis_cell.as_deref();
    let redis_cell = redis_cell.map(RedisCell::start).transpose()?;
    contenders.extend(redis_cell.as_ref().map(RedisCell::resp));
    fill_all(&contenders, options.keys)?;
    let patterns = [
        (" hot", Keys::Hot),
        ("", Keys::Many(options.many())),
        (" million", Keys::Many(options.keys)),
    ];
    // A short run has no more than that.
    let count = if options.keys > options.many() { 3 } else { 2 };
    for (suffix, keys) in patterns.into_iter().take(count) {
        let what = keys.name();
        if options.parts.contains(&Part::Resp) {
            let workload = Workload {
                id: &format!("resp one by one{suffix}"),
                title: "Redis protocol, one by one",
                shape: ONE_BY_ONE,
                keys,
            };
            let study = report.study(options, workload, &contenders)?;
            let what = format!("RESP beside the echo, {what}");
            report.goals.at_most(&what, 1.15, study.ours_to(echo));
        }
        if options.parts.contains(&Part::Pipelined) {
            let workload = Workload {
                id: &format!("resp by 16{suffix}"),
                title: "Redis protocol, pipelined by 16",
                shape: PIPELINED,
                keys,
            };
            let study = report.study(options, workload, &contenders)?;
            let goal = |part| format!("RESP by 16 {part}, {what}");
            let goals = &mut report.goals;
            goals.at_least(
                &goal("beside throttlecrab-server"),
                4.0,
                study.times_ours(Throttlecrab::NAME),
            );
            goals.at_least(
                &goal("beside the articles' script"),
                8.0,
                study.times_ours(lua),
            );
            goals.at_most(&goal("beside the echo"), 2.0, study.ours_to(echo));
        }
    }
    Ok(())
}

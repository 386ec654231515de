//! The throttle commands: arguments, errors and replies as in the original implementations.
//!
//! `CL.THROTTLE` follows the module redis-cell, `THROTTLE` the server throttlecrab, and `GCRA` the unreleased Redis command.
//! Must not know: how calls are decided.

use std::fmt;
use std::time::Duration;

use tollgate_core::Nanos;
use tollgate_store::{Clock, KeyTooLong, MAX_KEY_LEN, StoreError, StoreKey};

use super::batch_counts::CommandOutcome;
use super::number::parse_integer;
use super::parse::RespCommand;
use super::pipeline::{Pipeline, RenderedReply};
use super::reply_writer::{EchoedInput, ReplyWriter};
use super::session::RespSession;
use super::throttle::{
    MAX_FLEET_KEY_LEN, Throttle, ThrottleFamily, ThrottleOp, ThrottleQuota, ThrottleReply,
};

const NANOS_PER_SEC: u64 = 1_000_000_000;
const NANOS_PER_MILLI: u64 = 1_000_000;

/// Why a call is not decided.
pub(super) enum ThrottleError<'a> {
    /// A complete error message.
    Text(&'static str),
    /// redis-cell's error for an argument that is not a number.
    CellNumber(&'a [u8]),
    /// throttlecrab's error for a negative quantity.
    Negative(i64),
    /// A key of this many bytes, and the most that are allowed.
    Key(usize, usize),
    Store(StoreError),
}

impl fmt::Display for ThrottleError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::CellNumber(word) => {
                write!(
                    f,
                    "Cell error: Store error: Couldn't parse as integer: {}",
                    EchoedInput(word)
                )
            }
            Self::Negative(quantity) => write!(f, "ERR negative quantity: {quantity}"),
            Self::Key(len, most) => {
                write!(f, "ERR key: it has {len} bytes, at most {most} are allowed")
            }
            Self::Store(error) => write!(f, "ERR {error}"),
        }
    }
}

/// Decides and answers one call: immediately, or through the connection's pipeline if a fleet decides.
pub(super) fn run<'s, C: Clock>(
    throttle: &'s Throttle<C>,
    family: ThrottleFamily,
    command: &RespCommand<'_>,
    session: &mut RespSession,
    pipeline: &mut Pipeline<'s>,
    out: &mut Vec<u8>,
) {
    let is_resp3 = session.is_resp3;
    let call = match ThrottleCall::parse(family, command) {
        Ok(call) => call,
        Err(wrong) => {
            session.counts.add(CommandOutcome::Failed);
            return pipeline.reply(out, |out| {
                ReplyWriter::new(out, is_resp3).error(format_args!("{wrong}"));
            });
        }
    };
    if let Some(fleet) = throttle.fleet() {
        let key = (family, command.argument(1));
        let key_len = key.1.len();
        let recent = &mut session.recent_quota;
        let reply = throttle.decide_with_fleet(fleet, key, &call.quota, call.op, recent);
        return pipeline.push(async move {
            let decided = match reply.await {
                Ok(reply) => reply.map_err(ThrottleError::Store),
                Err(KeyTooLong { .. }) => Err(ThrottleError::Key(key_len, MAX_FLEET_KEY_LEN)),
            };
            let mut bytes = Vec::new();
            let counted = call.render(
                &decided,
                family,
                &mut ReplyWriter::new(&mut bytes, is_resp3),
            );
            RenderedReply {
                bytes,
                outcome: counted,
            }
        });
    }
    let key = StoreKey::new(command.argument(1))
        .map_err(|KeyTooLong { len, .. }| ThrottleError::Key(len, MAX_KEY_LEN));
    let decided = key.and_then(|key| {
        let recent = &mut session.recent_quota;
        let decided = throttle.decide(family, key, &call.quota, call.op, recent);
        decided.map_err(ThrottleError::Store)
    });
    let counts = &mut session.counts;
    pipeline.reply(out, |out| {
        counts.add(call.render(&decided, family, &mut ReplyWriter::new(out, is_resp3)));
    });
}

/// The arguments of a call.
struct ThrottleCall {
    quota: ThrottleQuota,
    op: ThrottleOp,
    /// The limit as the reply reports it.
    limit: i64,
}

impl ThrottleCall {
    /// Renders the reply.
    #[inline]
    fn render(
        &self,
        decided: &Result<ThrottleReply, ThrottleError<'_>>,
        family: ThrottleFamily,
        reply: &mut ReplyWriter<'_>,
    ) -> CommandOutcome {
        match decided {
            Ok(outcome) => {
                reply.throttle_numbers(self.numbers(family, outcome));
                CommandOutcome::Throttled(family, outcome.is_limited)
            }
            Err(wrong) => {
                reply.error(format_args!("{wrong}"));
                CommandOutcome::Failed
            }
        }
    }

    fn parse<'a>(
        family: ThrottleFamily,
        command: &RespCommand<'a>,
    ) -> Result<Self, ThrottleError<'a>> {
        match family {
            ThrottleFamily::RedisCell => Self::parse_redis_cell(command),
            ThrottleFamily::Throttlecrab => Self::parse_throttlecrab(command),
            ThrottleFamily::Gcra => Self::parse_gcra(command),
        }
    }

    /// `CL.THROTTLE key max_burst count period [quantity]`
    fn parse_redis_cell<'a>(command: &RespCommand<'a>) -> Result<Self, ThrottleError<'a>> {
        if !matches!(command.len(), 5 | 6) {
            return Err(ThrottleError::Text(
                "Cell error: Store error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]",
            ));
        }
        let number = |index| {
            let word = command.argument(index);
            parse_integer(word).ok_or(ThrottleError::CellNumber(word))
        };
        let (max_burst, count, period) = (number(2)?, number(3)?, number(4)?);
        let quantity = if command.len() == 6 { number(5)? } else { 1 };
        if count == 0 || period == 0 {
            return Err(ThrottleError::Text(
                "Cell error: Store error: Zero rates are not supported",
            ));
        }
        let (Ok(count), Ok(period)) = (u64::try_from(count), u64::try_from(period)) else {
            return Err(ThrottleError::Text(
                "Cell error: Store error: Negative rates are not supported",
            ));
        };
        let limit = max_burst.saturating_add(1);
        Ok(Self {
            quota: quota_per_seconds(limit, count, period),
            op: match u64::try_from(quantity) {
                Ok(cost) => ThrottleOp::Take(cost),
                Err(_negative) => ThrottleOp::Return(quantity.unsigned_abs()),
            },
            limit,
        })
    }

    /// `THROTTLE key max_burst count_per_period period [quantity]`
    fn parse_throttlecrab<'a>(command: &RespCommand<'a>) -> Result<Self, ThrottleError<'a>> {
        if !matches!(command.len(), 5 | 6) {
            return Err(ThrottleError::Text(
                "ERR wrong number of arguments for 'throttle' command",
            ));
        }
        let number =
            |index, wrong| parse_integer(command.argument(index)).ok_or(ThrottleError::Text(wrong));
        let max_burst = number(2, "ERR invalid max_burst")?;
        let count = number(3, "ERR invalid count_per_period")?;
        let period = number(4, "ERR invalid period")?;
        let quantity = match command.len() {
            6 => number(5, "ERR invalid quantity")?,
            _ => 1,
        };
        let Ok(cost) = u64::try_from(quantity) else {
            return Err(ThrottleError::Negative(quantity));
        };
        let positive = |number: i64| u64::try_from(number).ok().filter(|number| *number > 0);
        let (Some(_), Some(count), Some(period)) =
            (positive(max_burst), positive(count), positive(period))
        else {
            return Err(ThrottleError::Text("ERR invalid rate limit parameters"));
        };
        Ok(Self {
            quota: quota_per_seconds(max_burst, count, period),
            op: ThrottleOp::Take(cost),
            limit: max_burst,
        })
    }

    /// `GCRA key max_burst tokens_per_period period [TOKENS count]`
    fn parse_gcra<'a>(command: &RespCommand<'a>) -> Result<Self, ThrottleError<'a>> {
        if !matches!(command.len(), 5..=7) {
            return Err(ThrottleError::Text(
                "ERR wrong number of arguments for 'gcra' command",
            ));
        }
        let number = |index| {
            let wrong = ThrottleError::Text("ERR value is not an integer or out of range");
            parse_integer(command.argument(index)).ok_or(wrong)
        };
        let at_least_one = |number: i64| {
            let wrong = "ERR value is out of range, value must between 1 and 9223372036854775807";
            let number = u64::try_from(number).ok().filter(|number| *number > 0);
            number.ok_or(ThrottleError::Text(wrong))
        };
        let max_burst = number(2)?;
        if max_burst < 0 {
            return Err(ThrottleError::Text(
                "ERR value is out of range, must be positive",
            ));
        }
        let count = at_least_one(number(3)?)?;
        let period = parse_period(command.argument(4))?;
        let cost = match command.len() {
            5 => 1,
            _ if !command.argument(5).eq_ignore_ascii_case(b"tokens") => {
                return Err(ThrottleError::Text("ERR syntax error"));
            }
            6 => return Err(ThrottleError::Text("ERR Missing TOKENS value")),
            _ => at_least_one(number(6)?)?,
        };
        let limit = max_burst.saturating_add(1);
        Ok(Self {
            quota: ThrottleQuota {
                burst: limit.unsigned_abs(),
                deficit: 0,
                count,
                period,
            },
            op: ThrottleOp::Take(cost),
            limit,
        })
    }

    /// The numbers of the reply, in the order and units of the original.
    fn numbers(&self, family: ThrottleFamily, reply: &ThrottleReply) -> [i64; 5] {
        let seconds = match family {
            ThrottleFamily::RedisCell => cell_seconds,
            ThrottleFamily::Throttlecrab | ThrottleFamily::Gcra => {
                |span: Nanos| to_i64(span.as_secs_ceil())
            }
        };
        let remaining = to_i64(reply.remaining);
        let reset = seconds(reply.reset_after);
        let never = if reply.is_limited || family != ThrottleFamily::Throttlecrab {
            -1
        } else {
            0
        };
        let retry = reply.retry_after.map_or(never, seconds);
        match family {
            ThrottleFamily::RedisCell | ThrottleFamily::Gcra => {
                [reply.is_limited.into(), self.limit, remaining, retry, reset]
            }
            ThrottleFamily::Throttlecrab => [
                (!reply.is_limited).into(),
                self.limit,
                remaining,
                reset,
                retry,
            ],
        }
    }
}

fn quota_per_seconds(burst: i64, count: u64, seconds: u64) -> ThrottleQuota {
    ThrottleQuota {
        burst: u64::try_from(burst).unwrap_or(0),
        deficit: burst.min(0).unsigned_abs(),
        count,
        period: u128::from(seconds).saturating_mul(NANOS_PER_SEC.into()),
    }
}

/// Parses a period of `GCRA`: seconds with a fraction, as Redis parses doubles.
fn parse_period<'a>(word: &[u8]) -> Result<u128, ThrottleError<'a>> {
    let text = std::str::from_utf8(word).ok();
    let seconds = text.and_then(|text| text.parse::<f64>().ok());
    let seconds = seconds.filter(|seconds| !seconds.is_nan());
    let seconds = seconds.ok_or(ThrottleError::Text("ERR value is not a valid float"))?;
    if seconds <= 0.0 || seconds >= 1e12 {
        return Err(ThrottleError::Text("ERR period must be > 0 and < 1e12"));
    }
    let span = Duration::try_from_secs_f64(seconds);
    // Less than half a nanosecond is rounded up, so that no period is zero.
    Ok(span.map_or(u128::MAX, |span| span.as_nanos().max(1)))
}

/// Seconds as redis-cell rounds them since 0.3.1: up if at least one millisecond has begun, otherwise down.
fn cell_seconds(span: Nanos) -> i64 {
    let nanos = span.as_nanos();
    let rounds_up = nanos % NANOS_PER_SEC >= NANOS_PER_MILLI;
    to_i64(nanos / NANOS_PER_SEC + u64::from(rounds_up))
}

fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_of_redis_cell_round_up_from_a_millisecond_on() {
        let cases = [
            (0, 0),
            (999_999, 0),
            (1_000_000, 1),
            (1_000_000_000, 1),
            (1_000_000_002, 1),
            (1_001_000_000, 2),
            (u64::MAX, 18_446_744_074),
        ];
        for (nanos, seconds) in cases {
            assert_eq!(cell_seconds(Nanos::from_nanos(nanos)), seconds, "{nanos}");
        }
    }

    #[test]
    fn periods_are_read_as_doubles_and_never_empty() {
        let nanos = |text: &str| parse_period(text.as_bytes()).ok();
        assert_eq!(nanos("60"), Some(60_000_000_000));
        assert_eq!(nanos("0.1"), Some(100_000_000));
        assert_eq!(nanos("1.5e3"), Some(1_500_000_000_000));
        assert_eq!(nanos("1e-30"), Some(1));
        for text in ["0", "-1", "1e12", "inf", "nan", "", "x", "1 "] {
            assert_eq!(nanos(text), None, "{text}");
        }
    }
}

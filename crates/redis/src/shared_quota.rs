//! Quotas that clients of one server share, in Redis or Valkey: one exchange is one round trip.
//!
//! Must not know: how the state is kept, how connections are made, what a client does with the reply.

use tollgate_core::Nanos;
use tollgate_store::shared_quota::{
    MAX_SHARED_LIMITS, QuotaExchange, QuotaExchangeReply, RetryBudgetChange, SharedQuotaStore,
};
use tollgate_store::{StoreError, StoreErrorKind, StoreFuture, StoreKey};

use crate::key_name::{KeyName, NameDigest};
use crate::store::RedisStore;
use crate::wire::ScriptCall;

/// The largest number that a script calculates with exactly.
const MAX_NUMBER: u64 = 1 << 52;
/// What a first try earns and what a retry costs, in hundredths of a retry.
const EARNED: &[u8] = b"20";
const SPENT: &[u8] = b"-100";

impl SharedQuotaStore for RedisStore {
    fn exchange<'a>(
        &'a self,
        partition: StoreKey<'a>,
        exchange: &'a QuotaExchange,
    ) -> StoreFuture<'a, QuotaExchangeReply> {
        Box::pin(async move {
            let key_name = KeyName::new(self.secret(), &partition, None);
            let digest = NameDigest::new(self.secret(), &partition);
            let mut key = b"tg2:{".to_vec();
            key.extend_from_slice(&digest.to_text());
            // No limit's id is a word, so no state of a limiter has this name.
            key.extend_from_slice(b"}:client");
            let call = ScriptCall::for_shared_quota(&key, arguments(exchange));
            self.call(key_name, &call, |reply| Ok((decode(reply)?, 0)))
                .await
        })
    }

    fn digest(&self, credentials: StoreKey<'_>) -> u64 {
        NameDigest::new(self.secret(), &credentials).upper_half()
    }
}

fn arguments(exchange: &QuotaExchange) -> Vec<Vec<u8>> {
    let retries = match exchange.retries {
        RetryBudgetChange::None => b"0",
        RetryBudgetChange::Earn => EARNED,
        RetryBudgetChange::Spend => SPENT,
    };
    let mut arguments = vec![
        number(u64::from(exchange.is_take)),
        millis(exchange.block),
        retries.to_vec(),
    ];
    for limit in exchange.limits.iter().take(MAX_SHARED_LIMITS) {
        let report = limit.report;
        arguments.extend([
            format!("{:x}", limit.id).into_bytes(),
            number(limit.cost),
            optional(limit.quota),
            millis(limit.window),
            optional(report.map(|report| report.remaining)),
            millis(report.map_or(Nanos::ZERO, |report| report.reset_after)),
            optional(report.and_then(|report| report.count)),
        ]);
    }
    arguments
}

fn number(number: u64) -> Vec<u8> {
    number.min(MAX_NUMBER).to_string().into_bytes()
}

fn optional(value: Option<u64>) -> Vec<u8> {
    value.map_or_else(|| b"-1".to_vec(), number)
}

fn millis(span: Nanos) -> Vec<u8> {
    number(span.as_millis_ceil())
}

fn decode(reply: &[i64]) -> Result<QuotaExchangeReply, StoreError> {
    let invalid = || {
        let detail = "the reply is not that of a shared quota";
        StoreError::new(StoreErrorKind::InvalidReply, detail)
    };
    let [wait, may_retry, counts @ ..] = reply else {
        return Err(invalid());
    };
    let unsigned = |number: &i64| u64::try_from(*number).ok().ok_or_else(invalid);
    Ok(QuotaExchangeReply {
        wait: Nanos::from_millis(unsigned(wait)?),
        may_retry: *may_retry != 0,
        counts: counts.iter().map(unsigned).collect::<Result<_, _>>()?,
    })
}

//! The token bucket that most articles print, to be measured beside ours: two floats in a hash, three commands and the
//! clock. Written by us after the common shape, and as short as they are.
//!
//! Must not know: how it is called, what is measured.

/// The script.
pub const SCRIPT: &str = "
local state = redis.call('HMGET', KEYS[1], 'tokens', 'ts')
local rate, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local tokens, ts = tonumber(state[1]) or burst, tonumber(state[2]) or now
tokens = math.min(burst, tokens + math.max(0, now - ts) * rate)
local allowed = tokens >= cost
if allowed then tokens = tokens - cost end
redis.call('HMSET', KEYS[1], 'tokens', tokens, 'ts', now)
redis.call('EXPIRE', KEYS[1], math.ceil(burst / rate * 2))
return { allowed and 1 or 0, math.floor(tokens) }";

/// A key of the same length as ours, so that only the values differ.
#[must_use]
pub fn key(number: u64) -> String {
    format!("ratelimit:{number:020}")
}

/// The script's arguments: tokens a second, the most there are, and what one call spends.
#[must_use]
pub fn arguments(per_second: f64, burst: u64, cost: u64) -> [String; 3] {
    [per_second.to_string(), burst.to_string(), cost.to_string()]
}

-- Shared by all algorithms. An algorithm is a function (op, args, raw). It reads the state `raw` (false if absent), appends
-- the fields that core needs to the reply, and returns
--   admits, next state or nil, the instant until which that state matters (a pair), the receipt's mark (a pair).
-- It writes nothing to Redis: finish.lua writes after all checks are decided.
local call, unpacked, packed = redis.call, struct.unpack, struct.pack
local byte, slice, format = string.byte, string.sub, string.format

-- Operation codes. The same numbers as in wire/mod.rs.
local LOOK, NEVER, SPEND, UP_TO, ALWAYS, CREDIT, SETTLE = 0, 1, 2, 3, 4, 5, 6
local ACQUIRE, RENEW, RELEASE = 7, 8, 9
local RESERVE, SETTLE_RESERVED, CANCEL_RESERVED, UNDO = 10, 11, 12, 13
-- Flag: decide the operation, but store nothing.
local PEEK = 128

local algorithms = {}
local reply, filled = { 0, 0, 0, 0 }, 4
-- Number of states that could not be parsed. They count as absent and are overwritten, so that no key stays locked out.
local corrupt = 0
-- The charge that SETTLE corrects, as pairs: its cost, instant and mark, and the actual cost.
local cost_h, cost_l, at_h, at_l, mark_h, mark_l, actual_h, actual_l

local function put(a, b)
  reply[filled + 1], reply[filled + 2] = a, b
  filled = filled + 2
end

-- One instant per decision. Only tests pass their own time; then the script sets no expiry.
local now_h, now_l
local is_time_ours = ARGV[1] == ''
if is_time_ours then
  local time = call('TIME')
  now_h, now_l = tonumber(time[1]), tonumber(time[2]) * 1000
else
  now_h, now_l = unpacked('>I5I4', ARGV[1])
end

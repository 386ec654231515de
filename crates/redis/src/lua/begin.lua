-- What every algorithm shares. An algorithm is a function (op, args, raw) that reads the state `raw` (false if absent),
-- puts what core needs to know of it into the reply, and returns
--   admits, next state or nil, the instant until which that state matters (a pair), the receipt's mark (a pair).
-- It writes nothing: the end of the script does, once all have spoken.
local call, unpacked, packed = redis.call, struct.unpack, struct.pack
local byte, slice, format = string.byte, string.sub, string.format

-- What is asked. The same numbers as in request.rs.
local LOOK, NEVER, SPEND, UP_TO, ALWAYS, CREDIT, SETTLE = 0, 1, 2, 3, 4, 5, 6
local ACQUIRE, RENEW, RELEASE = 7, 8, 9
local RESERVE, SETTLE_RESERVED, CANCEL_RESERVED, UNDO = 10, 11, 12, 13
-- Added to an operation that is to be judged but not carried out.
local PEEK = 128

local algorithms = {}
local reply, filled = { 0, 0, 0, 0 }, 4
-- States that could not be read. They count as absent and are overwritten, so that nobody stays locked out.
local corrupt = 0
-- The charge that SETTLE is about, as pairs: its cost, instant and mark, and what it is to become.
local cost_h, cost_l, at_h, at_l, mark_h, mark_l, actual_h, actual_l

local function put(a, b)
  reply[filled + 1], reply[filled + 2] = a, b
  filled = filled + 2
end

-- One instant per decision. It is handed in only by tests that move time themselves; those write no expiry.
local now_h, now_l
local is_time_ours = ARGV[1] == ''
if is_time_ours then
  local time = call('TIME')
  now_h, now_l = tonumber(time[1]), tonumber(time[2]) * 1000
else
  now_h, now_l = unpacked('>I5I4', ARGV[1])
end

-- Quotas that clients of one server share: what remains of each limit as the server last reported it, less what clients have
-- taken since. A report is older than the requests that were taken after its own, so those are subtracted from it.
--
-- KEYS  1 hash: block (until when nothing is sent), retry (the retry budget, in hundredths of a retry), and for each limit
--         l:ID left, r:ID reset at, a:ID reported at, t:ID units ever taken, s:ID the count of the newest report
-- ARGV  1 whether to take, 2 ms of block, 3 hundredths of a retry that are earned or (negative) spent, then for each limit
--         ID, cost, quota or -1, window in ms or 0, remaining or -1, ms until the reset, count of the reported request or -1
-- Returns the ms to wait, whether the retry budget allows the retry, and t:ID of each limit.
-- Instants are milliseconds of the server's clock. All numbers are below 2^53, so they are exact.
local call, max, min = redis.call, math.max, math.min
local KEY, STEP, MOST_FIELDS = KEYS[1], 7, 64
local MOST_SAVED, LIFE, LONGEST = 1000, 3600000, 86400000

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local state, changes = {}, {}
local fields = call('HGETALL', KEY)
if #fields > 2 * MOST_FIELDS then
  -- The server names its limits anew all the time: begin again.
  call('DEL', KEY)
  fields = {}
end
for i = 1, #fields, 2 do
  state[fields[i]] = tonumber(fields[i + 1])
end

local function set(field, value)
  state[field] = value
  changes[#changes + 1] = field
  changes[#changes + 1] = string.format('%.0f', value)
end

local function until_instant(instant)
  local wait = instant - now
  -- An instant that is too far away was written before the clock went back.
  return (wait > 0 and wait <= LONGEST) and wait or 0
end

local block = tonumber(ARGV[2])
if block > 0 then
  set('block', max(state['block'] or 0, now + min(block, LONGEST)))
end
local wait = until_instant(state['block'] or 0)

local limits = {}
for i = 4, #ARGV, STEP do
  local id, cost, quota, window = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local remaining, reset, count = tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5]), tonumber(ARGV[i + 6])
  local taken = state['t:' .. id] or 0
  if remaining >= 0 then
    count = count >= 0 and count or taken
    local is_newest = count >= (state['s:' .. id] or 0)
    if is_newest or until_instant(state['r:' .. id] or 0) == 0 then
      set('s:' .. id, count)
      set('t:' .. id, max(taken, count))
      set('l:' .. id, remaining - max(0, taken - count))
      set('r:' .. id, now + min(reset, LONGEST))
      set('a:' .. id, now)
    end
  end
  local left = state['l:' .. id]
  local needed = quota >= 0 and min(cost, quota) or cost
  if left and left < needed then
    local until_reset = until_instant(state['r:' .. id] or 0)
    if until_reset == 0 then
      -- The next response says how much there is. Until then a little has to do, whatever kind of limit it is.
      local gain = needed
      if quota >= 0 and window > 0 then
        gain = min(quota, max(1, math.floor(quota * (now - (state['a:' .. id] or now)) / window)))
      end
      left = max(left, gain)
      set('l:' .. id, left)
      set('r:' .. id, now + 1000)
      set('a:' .. id, now)
    end
    if left < needed then
      wait = max(wait, until_instant(state['r:' .. id]), 1)
    end
  end
  limits[#limits + 1] = { id = id, cost = cost }
end

local is_taken = ARGV[1] == '1' and wait == 0
if is_taken then
  for _, limit in ipairs(limits) do
    set('t:' .. limit.id, (state['t:' .. limit.id] or 0) + limit.cost)
    if state['l:' .. limit.id] then
      set('l:' .. limit.id, state['l:' .. limit.id] - limit.cost)
    end
  end
end

local change, saved, may_retry = tonumber(ARGV[3]), state['retry'] or MOST_SAVED, 1
if change < 0 and saved + change < 0 then
  may_retry = 0
elseif change < 0 or (change > 0 and is_taken) then
  set('retry', min(MOST_SAVED, saved + change))
end

if #changes > 0 then
  call('HSET', KEY, unpack(changes))
  call('PEXPIRE', KEY, LIFE)
end
local reply = { ARGV[1] == '1' and wait or 0, may_retry }
for i, limit in ipairs(limits) do
  reply[i + 2] = state['t:' .. limit.id] or 0
end
return reply

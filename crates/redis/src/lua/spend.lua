-- Spends on token and leaky buckets only, which is what nearly every call does. The same arithmetic as in bucket.lua and
-- finish.lua, written without functions, because defining functions costs the server as much time as deciding.
-- Numbers are pairs (billions, remainder), see numbers.lua; prices and capacities are too small to saturate.
local now_h, now_l
local is_time_ours = ARGV[1] == ''
if is_time_ours then
  local time = redis.call('TIME')
  now_h, now_l = time[1] + 0, time[2] * 1000
else
  now_h, now_l = struct.unpack('>I5I4', ARGV[1])
end
local states = redis.call('MGET', unpack(KEYS))
local is_lone = #KEYS == 1
-- Preallocated for one key, so that the table does not grow.
local reply, lifetimes, corrections = { now_h, now_l, 1, 0, 0, 0 }, nil, nil
for i = 1, #KEYS do
  local raw, th, tl = states[i], 0, 0
  states[i] = false
  if raw then
    local is_number = #raw < 21 and raw ~= '' and not string.find(raw, '%D')
    if is_number then
      th, tl = tonumber(string.sub(raw, 1, -10)) or 0, tonumber(string.sub(raw, -9))
    end
    if not is_number or th > 18446744073 or (th == 18446744073 and tl > 709551615) then
      reply[4] = reply[4] + 1
      th, tl = 0, 0
    end
  end
  reply[3 + 2 * i], reply[4 + 2 * i] = th, tl
  -- The largest debt, the largest debt after this request, the price.
  local ch, cl, bh, bl, ph, pl = struct.unpack('>I5I4I5I4I5I4', ARGV[i + 1], 3)
  local dh, dl = th - now_h, tl - now_l
  if dl < 0 then dh, dl = dh - 1, dl + 1000000000 end
  if dh < 0 then dh, dl = 0, 0 end
  local is_over = dh > ch or (dh == ch and dl > cl)
  if is_over then dh, dl = ch, cl end
  local nh, nl = dh + ph, dl + pl
  if nl >= 1000000000 then nh, nl = nh + 1, nl - 1000000000 end
  if nh > bh or (nh == bh and nl > bl) then
    reply[3] = 0
    -- After the clock went back, a state may lie too far ahead. A denial corrects it too.
    nh = nil
    if is_over then
      nh, nl = dh, dl
      corrections = corrections or {}
      corrections[i] = true
    end
  end
  if nh then
    -- The key expires when its state no longer matters, at most a millisecond later.
    local lifetime = string.format('%d', nh * 1000 + nl / 1000000 + 1)
    nh, nl = now_h + nh, now_l + nl
    if nl >= 1000000000 then nh, nl = nh + 1, nl - 1000000000 end
    local state = nh == 0 and string.format('%d', nl) or string.format('%d%09d', nh, nl)
    if is_lone and is_time_ours then
      redis.call('SET', KEYS[1], state, 'PX', lifetime)
      return reply
    end
    lifetimes = lifetimes or {}
    states[i], lifetimes[i] = state, lifetime
  end
end
if reply[3] == 1 or corrections then
  for i = 1, #KEYS do
    if states[i] and (reply[3] == 1 or corrections[i]) then
      if is_time_ours then
        redis.call('SET', KEYS[i], states[i], 'PX', lifetimes[i])
      else
        redis.call('SET', KEYS[i], states[i])
      end
    end
  end
end
return reply

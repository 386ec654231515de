-- Quota leases on a token bucket: a port of core's LeasedBucket, one lease request per call. The state is 'b', the bucket's
-- instant, then 52 bytes per lease, soonest expiry first: the expiry, the grant time, the leased blocks, the blocks reported
-- as spent, the id. Every value except the id is a pair.
local call, unpacked, packed, byte = redis.call, struct.unpack, struct.pack, string.byte
local RECORD = 52
local LAST_H, LAST_L = 9223372036, 854775807

local now_h, now_l
local is_time_ours = ARGV[1] == ''
if is_time_ours then
  local time = call('TIME')
  now_h, now_l = tonumber(time[1]), tonumber(time[2]) * 1000
else
  now_h, now_l = unpacked('>I5I4', ARGV[1])
end

-- One block's debt; blocks in a full bucket; the largest debt; the largest number of leases; whether to spend directly, and
-- how many blocks; whether a lease is requested, its id, its minimum and maximum blocks, and its duration.
local ih, il, bh, bl, ch, cl, most_loans, spends, ph, pl, wants, id, least_h, least_l, most_h, most_l, life_h, life_l =
  unpacked('>I5I4I5I4I5I4I4BI5I4Bc16I5I4I5I4I5I4', ARGV[2])

-- Adds a duration to an instant, capped at core's last instant.
local function later(ah, al, xh, xl)
  local h, l = add(ah, al, xh, xl)
  if less(LAST_H, LAST_L, h, l) then return LAST_H, LAST_L end
  return h, l
end

-- Leases as parallel lists: expiry, grant time, blocks, spent blocks, id.
local eh, el, gh, gl, nh, nl, sh, sl, ids, count = {}, {}, {}, {}, {}, {}, {}, {}, {}, 0
local th, tl, corrupt = 0, 0, 0
local function is_number(h, l)
  return l < BILLION and (h < MAX_HIGH or (h == MAX_HIGH and l <= MAX_LOW))
end
local raw = call('GET', KEYS[1])
if raw then
  -- 98 is 'b'.
  local is_read = byte(raw) == 98 and #raw >= 10 and (#raw - 10) % RECORD == 0
  if is_read then
    th, tl = unpacked('>I5I4', raw, 2)
    is_read = is_number(th, tl)
    for at = 11, #raw, RECORD do
      count = count + 1
      local i = count
      eh[i], el[i], gh[i], gl[i], nh[i], nl[i], sh[i], sl[i], ids[i] = unpacked('>I5I4I5I4I5I4I5I4c16', raw, at)
      is_read = is_read and is_number(eh[i], el[i]) and is_number(gh[i], gl[i])
        and is_number(nh[i], nl[i]) and is_number(sh[i], sl[i])
        and (i == 1 or not less(eh[i], el[i], eh[i - 1], el[i - 1]))
    end
  end
  if not is_read then
    corrupt, count, th, tl = 1, 0, 0, 0
  end
end

-- Blocks of a lease that may still be spent.
local function out_of(i)
  return subtract(nh[i], nl[i], sh[i], sl[i])
end

-- The bucket's instant after spending these blocks at `at`.
local function charged(h, l, at_h, at_l, kh, kl)
  if less(h, l, at_h, at_l) then h, l = at_h, at_l end
  kh, kl = multiply(kh, kl, ih, il)
  return add(h, l, kh, kl)
end

local function move(from, to)
  eh[to], el[to], gh[to], gl[to], nh[to], nl[to], sh[to], sl[to], ids[to] =
    eh[from], el[from], gh[from], gl[from], nh[from], nl[from], sh[from], sl[from], ids[from]
end

local function insert(position, e_h, e_l, g_h, g_l, n_h, n_l, s_h, s_l, name)
  for i = count, position, -1 do move(i, i + 1) end
  count = count + 1
  eh[position], el[position], gh[position], gl[position] = e_h, e_l, g_h, g_l
  nh[position], nl[position], sh[position], sl[position], ids[position] = n_h, n_l, s_h, s_l, name
end

local function remove(position)
  for i = position, count - 1 do move(i + 1, i) end
  count = count - 1
end

-- The clock went back: leases granted after now get their full duration again. Keep the list sorted by expiry.
local is_moved = false
for i = 1, count do
  if less(now_h, now_l, gh[i], gl[i]) then
    local h, l = subtract(eh[i], el[i], gh[i], gl[i])
    eh[i], el[i] = later(now_h, now_l, h, l)
    gh[i], gl[i] = now_h, now_l
    is_moved = true
  end
end
if is_moved then
  for i = 2, count do
    local e_h, e_l, g_h, g_l, n_h, n_l, s_h, s_l, name = eh[i], el[i], gh[i], gl[i], nh[i], nl[i], sh[i], sl[i], ids[i]
    local j = i - 1
    while j >= 1 and less(e_h, e_l, eh[j], el[j]) do
      move(j, j + 1)
      j = j - 1
    end
    eh[j + 1], el[j + 1], gh[j + 1], gl[j + 1] = e_h, e_l, g_h, g_l
    nh[j + 1], nl[j + 1], sh[j + 1], sl[j + 1], ids[j + 1] = n_h, n_l, s_h, s_l, name
  end
end

-- Expired leases count as fully spent at their expiry, in that order.
local gone = 0
while gone < count and not less(now_h, now_l, eh[gone + 1], el[gone + 1]) do
  gone = gone + 1
  local kh, kl = out_of(gone)
  th, tl = charged(th, tl, eh[gone], el[gone], kh, kl)
end
if gone > 0 then
  for i = gone + 1, count do move(i, i - gone) end
  count = count - gone
end
-- Clamp the state to the largest debt.
local far_h, far_l = add(now_h, now_l, ch, cl)
local function clamp()
  if less(far_h, far_l, th, tl) then th, tl = far_h, far_l end
end
clamp()

-- Reports: the total of spent blocks, the age of the last spend, and whether the report is final.
for argument = 3, #ARGV do
  local name, kh, kl, ago_h, ago_l, is_last = unpacked('>c16I5I4I5I4B', ARGV[argument])
  for i = 1, count do
    if ids[i] == name then
      if less(nh[i], nl[i], kh, kl) then kh, kl = nh[i], nl[i] end
      if less(kh, kl, sh[i], sl[i]) then kh, kl = sh[i], sl[i] end
      local more_h, more_l = subtract(kh, kl, sh[i], sl[i])
      if more_h > 0 or more_l > 0 then
        local at_h, at_l = subtract(now_h, now_l, ago_h, ago_l)
        if less(at_h, at_l, gh[i], gl[i]) then at_h, at_l = gh[i], gl[i] end
        th, tl = charged(th, tl, at_h, at_l, more_h, more_l)
        clamp()
      end
      sh[i], sl[i] = kh, kl
      if is_last == 1 or not less(kh, kl, nh[i], nl[i]) then remove(i) end
      break
    end
  end
end

local out_h, out_l = 0, 0
for i = 1, count do
  local kh, kl = out_of(i)
  out_h, out_l = add(out_h, out_l, kh, kl)
end

-- Time until these blocks fit without further requests: the bucket drains, and each expiry turns a lease into debt.
local function wait_for(kh, kl)
  local h, l, oh, ol, from_h, from_l = th, tl, out_h, out_l, now_h, now_l
  for i = 1, count + 1 do
    local rh, rl = subtract(bh, bl, oh, ol)
    if not less(rh, rl, kh, kl) then
      rh, rl = subtract(rh, rl, kh, kl)
      rh, rl = multiply(rh, rl, ih, il)
      local fh, fl = subtract(h, l, rh, rl)
      if less(fh, fl, from_h, from_l) then fh, fl = from_h, from_l end
      if i > count or less(fh, fl, eh[i], el[i]) then return subtract(fh, fl, now_h, now_l) end
    end
    if i > count then return 0, 0 end
    local xh, xl = out_of(i)
    h, l = charged(h, l, eh[i], el[i], xh, xl)
    oh, ol = subtract(oh, ol, xh, xl)
    from_h, from_l = eh[i], el[i]
  end
end

-- Debt that still fits; leased blocks reduce the capacity.
local function room()
  local h, l = subtract(bh, bl, out_h, out_l)
  h, l = multiply(h, l, ih, il)
  local dh, dl = subtract(th, tl, now_h, now_l)
  return subtract(h, l, dh, dl)
end

-- `spends`: 1 spends, 2 costs more than a full bucket holds. `decided`: 0 admitted, 1 denied, 2 never.
local decided, spend_h, spend_l = 0, 0, 0
if spends == 2 then
  decided = 2
elseif spends == 1 then
  local rh, rl = room()
  local price_h, price_l = multiply(ph, pl, ih, il)
  if less(rh, rl, price_h, price_l) then
    decided = 1
    spend_h, spend_l = wait_for(ph, pl)
  else
    th, tl = charged(th, tl, now_h, now_l, ph, pl)
  end
end

local lent_h, lent_l, retry_h, retry_l = 0, 0, 0, 0
if wants == 1 and decided == 0 then
  local known = false
  for i = 1, count do
    if ids[i] == id then
      known, lent_h, lent_l = true, nh[i], nl[i]
      if less(most_h, most_l, lent_h, lent_l) then lent_h, lent_l = most_h, most_l end
      break
    end
  end
  if not known then
    local rh, rl = room()
    local there_h, there_l = divide(rh, rl, ih, il)
    if less(most_h, most_l, there_h, there_l) then there_h, there_l = most_h, most_l end
    if not less(there_h, there_l, least_h, least_l) and count < most_loans then
      lent_h, lent_l = there_h, there_l
      local e_h, e_l = later(now_h, now_l, life_h, life_l)
      local position = count + 1
      while position > 1 and less(e_h, e_l, eh[position - 1], el[position - 1]) do position = position - 1 end
      insert(position, e_h, e_l, now_h, now_l, lent_h, lent_l, 0, 0, id)
      out_h, out_l = add(out_h, out_l, lent_h, lent_l)
    end
  end
  if lent_h == 0 and lent_l == 0 then
    retry_h, retry_l = wait_for(least_h, least_l)
  else
    local rh, rl = room()
    retry_h, retry_l = subtract(ih, il, rh, rl)
  end
end

local fresh_h, fresh_l = th, tl
local parts = { packed('>BI5I4', 98, th, tl) }
for i = 1, count do
  local kh, kl = out_of(i)
  fresh_h, fresh_l = charged(fresh_h, fresh_l, eh[i], el[i], kh, kl)
  parts[i + 1] = packed('>I5I4I5I4I5I4I5I4c16', eh[i], el[i], gh[i], gl[i], nh[i], nl[i], sh[i], sl[i], ids[i])
end
-- An unused bucket needs no key.
if raw or th > 0 or tl > 0 or count > 0 then
  if is_time_ours then
    -- The key expires when its state no longer matters, rounded up to a millisecond, at least 1 ms.
    local h, l = subtract(fresh_h, fresh_l, now_h, now_l)
    local lifetime = math.max(h * 1000 + math.ceil(l / 1000000), 1)
    call('SET', KEYS[1], table.concat(parts), 'PX', string.format('%.0f', lifetime))
  else
    call('SET', KEYS[1], table.concat(parts))
  end
end
return {
  now_h, now_l, corrupt, decided, spend_h, spend_l, lent_h, lent_l, retry_h, retry_l,
  th, tl, out_h, out_l, fresh_h, fresh_l,
}

-- Spends on a leased bucket that has no leases, see quota_lease.lua: its state is 'b' and the bucket's instant. Replies one
-- number if it has leases. The same arithmetic as in spend.lua, for one key.
local now_h, now_l
local is_time_ours = ARGV[1] == ''
if is_time_ours then
  local time = redis.call('TIME')
  now_h, now_l = time[1] + 0, time[2] * 1000
else
  now_h, now_l = struct.unpack('>I5I4', ARGV[1])
end
local raw, th, tl, corrupt = redis.call('GET', KEYS[1]), 0, 0, 0
if raw then
  -- 98 is 'b'.
  local is_bucket = #raw >= 10 and string.byte(raw) == 98
  if is_bucket and #raw > 10 then return { 1 } end
  if is_bucket then th, tl = struct.unpack('>I5I4', raw, 2) end
  if not is_bucket or tl > 999999999 or th > 18446744073 or (th == 18446744073 and tl > 709551615) then
    corrupt, th, tl = 1, 0, 0
  end
end
local reply = { now_h, now_l, 1, corrupt, th, tl }
-- The largest debt, the largest debt after this request, the price.
local ch, cl, bh, bl, ph, pl = struct.unpack('>I5I4I5I4I5I4', ARGV[2], 3)
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
  if not is_over then return reply end
  nh, nl = dh, dl
end
-- The key expires when its state no longer matters, at most a millisecond later.
local lifetime = string.format('%d', nh * 1000 + nl / 1000000 + 1)
nh, nl = now_h + nh, now_l + nl
if nl >= 1000000000 then nh, nl = nh + 1, nl - 1000000000 end
local state = struct.pack('>BI5I4', 98, nh, nl)
if is_time_ours then
  redis.call('SET', KEYS[1], state, 'PX', lifetime)
else
  redis.call('SET', KEYS[1], state)
end
return reply

-- Decides every check first. If all admit, writes all of them; otherwise writes only corrections, which are edits by checks
-- that deny. ARGV holds, after the time, one blob per check: the algorithm, the operation and its numbers. An operation on an
-- earlier charge has a second blob with that charge. KEYS holds one key per check, followed by its ledger's key if it has one.
local states = call('MGET', unpack(KEYS))
local keys, values, hs, ls, due, writes = {}, {}, {}, {}, {}, 0
local admitted, key, argument = 1, 0, 1
while argument < #ARGV do
  key, argument = key + 1, argument + 1
  local args = ARGV[argument]
  local algorithm, op = byte(args, 1, 2)
  local own, after, is_silent = key, nil, false
  local is_peek = op >= PEEK
  if is_peek then op = op - PEEK end
  if op == SETTLE then
    argument = argument + 1
    cost_h, cost_l, at_h, at_l, mark_h, mark_l, actual_h, actual_l = unpacked('>I5I4I5I4I5I4I5I4', ARGV[argument])
  elseif op >= RESERVE then
    key, argument = key + 1, argument + 1
    op, after, is_silent = reservation(op, ARGV[argument], states[key])
  end
  local admits, value, h, l, marked_h, marked_l = algorithms[algorithm](op, args, states[own])
  if not admits then admitted = 0 end
  if value and not (is_silent or is_peek) then
    writes = writes + 1
    keys[writes], values[writes], hs[writes], ls[writes], due[writes] = KEYS[own], value, h, l, not admits
  end
  if after and admits then
    value, h, l = after(marked_h, marked_l)
    if value then
      writes = writes + 1
      keys[writes], values[writes], hs[writes], ls[writes], due[writes] = KEYS[key], value, h, l, false
    end
  end
end
for i = 1, writes do
  if admitted == 1 or due[i] then
    if is_time_ours then
      -- The key expires when its state no longer matters, rounded up to a millisecond, at least 1 ms.
      local h, l = subtract(hs[i], ls[i], now_h, now_l)
      local lifetime = math.max(h * 1000 + math.ceil(l / 1000000), 1)
      call('SET', keys[i], values[i], 'PX', format('%.0f', lifetime))
    else
      call('SET', keys[i], values[i])
    end
  end
end
reply[1], reply[2], reply[3], reply[4] = now_h, now_l, admitted, corrupt
return reply

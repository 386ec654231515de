-- Concurrency: 'h', the sum of all weights (6 bytes), then 29 bytes per lease, soonest expiry first: the expiry, the
-- weight, the id. As with the log, the reply holds only the values that a decision depends on.
local LEASE = 29

algorithms[5] = function(op, args, raw)
  local total, body = 0, ''
  if raw then
    -- 104 is 'h'.
    if byte(raw) == 104 and (#raw - 7) % LEASE == 0 and #raw > 6 then
      total, body = unpacked('>I6', raw, 2), slice(raw, 8)
    else
      corrupt = corrupt + 1
    end
  end
  -- The limit; the lease's duration; the requested weight; the lease id.
  local limit, lh, ll, weight, id = unpacked('>I4I5I4I4c16', args, 3)
  local latest_h, latest_l = add(now_h, now_l, lh, ll)
  local used, position = total, 1
  while position <= #body do
    local eh, el, held = unpacked('>I5I4I4', body, position)
    if less(now_h, now_l, eh, el) then break end
    used, position = used - held, position + LEASE
  end
  local last_h, last_l = 0, 0
  if body ~= '' then last_h, last_l = unpacked('>I5I4', body, #body - LEASE + 1) end
  local is_ahead = less(latest_h, latest_l, last_h, last_l)

  -- The bytes of the id may also occur across two records; only a match at an id's offset counts.
  local found, found_at = 0, 0
  local at = string.find(body, id, 1, true)
  while at and op >= ACQUIRE do
    if (at - 14) % LEASE == 0 then
      found_at = at - 13
      found = found_at < position and 2 or 1
      break
    end
    at = string.find(body, id, at + 1, true)
  end
  local found_h, found_l, found_weight = 0, 0, 0
  if found > 0 then found_h, found_l, found_weight = unpacked('>I5I4I4', body, found_at) end

  local admits, change = op ~= NEVER, false
  if op == ACQUIRE then
    change = found ~= 1 and used + weight <= limit
    admits = change or found == 1
  elseif op == RENEW then
    change = found == 1
  elseif op == RELEASE then
    change = found > 0
  end

  -- The lease after whose expiry the weight fits, and the weight that expires until then.
  local gone_h, gone_l, gone = last_h, last_l, used
  if op == ACQUIRE and not admits then
    gone = 0
    for place = position, #body, LEASE do
      local eh, el, held = unpacked('>I5I4I4', body, place)
      gone_h, gone_l, gone = eh, el, gone + held
      if gone >= used + weight - limit then break end
    end
  end
  put(found, used)
  put(found_h, found_l)
  put(gone_h, gone_l)
  put(gone, 0)
  put(last_h, last_l)
  -- Renewing a lease that is not held changes nothing; the reply says that it was not found.
  if not (change or is_ahead) or op == RENEW and not change then
    put(used, last_h)
    put(last_l, 0)
    return admits, nil, 0, 0, 0, 0
  end

  if change and found > 0 and (op == RELEASE or op == RENEW) then
    body = slice(body, 1, found_at - 1) .. slice(body, found_at + LEASE)
    if found == 2 then position = position - LEASE else used = used - found_weight end
  end
  body, total = slice(body, position), used
  local place = #body - LEASE + 1
  local moved = ''
  while place > 0 do
    local eh, el, held, owner = unpacked('>I5I4I4c16', body, place)
    if not less(latest_h, latest_l, eh, el) then break end
    moved = packed('>I5I4I4c16', latest_h, latest_l, held, owner) .. moved
    place = place - LEASE
  end
  if moved ~= '' then body = slice(body, 1, place + LEASE - 1) .. moved end
  if change and op ~= RELEASE then
    -- No lease expires later than one that starts now, so append it.
    if op == RENEW then weight = found_weight end
    body = body .. packed('>I5I4I4c16', latest_h, latest_l, weight, id)
    total = total + weight
  end
  last_h, last_l = 0, 0
  if body ~= '' then last_h, last_l = unpacked('>I5I4', body, #body - LEASE + 1) end
  put(total, last_h)
  put(last_l, 0)
  return admits, packed('>BI6', 104, total) .. body, last_h, last_l, 0, 0
end

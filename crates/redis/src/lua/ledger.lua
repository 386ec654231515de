-- Reservations: 'r', then 53 bytes per record, oldest first: the id, the receipt (cost, instant, mark), the expiry, and
-- whether it is open. They are stored under a key of their own, next to the limit's key.
local RECORD = 53
local LAST_H, LAST_L = 9223372036, 854775807
-- The status of an id. The same numbers as in wire/ledger.rs.
local FRESH, KNOWN, FULL, OPEN, LATE, CLOSED, EXPIRED, UNKNOWN = 0, 1, 2, 3, 4, 5, 6, 7

-- Adds a duration to an instant, capped at core's last instant.
local function later(ah, al, bh, bl)
  local h, l = add(ah, al, bh, bl)
  if less(LAST_H, LAST_L, h, l) then return LAST_H, LAST_L end
  return h, l
end

-- Refunds a charge unless its marker key exists, which means that it was refunded before. Replies as for a cancelled
-- reservation.
local function undo(args, raw)
  local memory_h, memory_l
  cost_h, cost_l, at_h, at_l, mark_h, mark_l, memory_h, memory_l = unpacked('>I5I4I5I4I5I4I5I4', args)
  actual_h, actual_l = 0, 0
  put(raw and CLOSED or OPEN, 0)
  put(cost_h, cost_l)
  put(at_h, at_l)
  put(mark_h, mark_l)
  put(LAST_H, LAST_L)
  if raw then return LOOK, nil, false end
  local function after()
    return '1', later(now_h, now_l, memory_h, memory_l)
  end
  return SETTLE, after, false
end

-- Looks up an id and sets the receipt that SETTLE corrects. Returns the operation to run on the limit instead, a function
-- (mark) that returns the ledger's next state and its expiry, and whether nothing may be stored.
local function reservation(op, args, raw)
  if op == UNDO then return undo(args, raw) end
  -- The id; the hold time or the actual cost; the retention after expiry; the largest number of records; the cost; the
  -- operation that charges it.
  local id, xh, xl, memory_h, memory_l, most, ch, cl, charging = unpacked('>c16I5I4I5I4I4I5I4B', args)
  local body = ''
  if raw then
    -- 114 is 'r'.
    if byte(raw) == 114 and (#raw - 1) % RECORD == 0 then body = slice(raw, 2) else corrupt = corrupt + 1 end
  end
  local kept, count, until_h, until_l, soonest_h, soonest_l = {}, 0, now_h, now_l, LAST_H, LAST_L
  local found_at, expires_h, expires_l, is_open = nil, 0, 0, 0
  cost_h, cost_l, at_h, at_l, mark_h, mark_l = 0, 0, 0, 0, 0, 0
  for at = 1, #body, RECORD do
    local eh, el = unpacked('>I5I4', body, at + 43)
    local fh, fl = later(eh, el, memory_h, memory_l)
    if less(now_h, now_l, fh, fl) then
      count = count + 1
      kept[count] = slice(body, at, at + RECORD - 1)
      if less(until_h, until_l, fh, fl) then until_h, until_l = fh, fl end
      if less(fh, fl, soonest_h, soonest_l) then soonest_h, soonest_l = fh, fl end
      if not found_at and slice(body, at, at + 15) == id then
        found_at = at
        cost_h, cost_l, at_h, at_l, mark_h, mark_l, expires_h, expires_l, is_open =
          unpacked('>I5I4I5I4I5I4I5I4B', body, at + 16)
      end
    end
  end
  local standing, instead
  if op == RESERVE then
    if found_at then
      standing, instead = KNOWN, LOOK
    elseif count >= most then
      standing, instead = FULL, NEVER
    else
      standing, instead = FRESH, charging
    end
  elseif not found_at then
    standing, instead = UNKNOWN, LOOK
  elseif is_open == 0 then
    standing, instead = CLOSED, LOOK
  else
    local is_late = not less(now_h, now_l, expires_h, expires_l)
    standing, instead = is_late and LATE or OPEN, SETTLE
    actual_h, actual_l = xh, xl
    if is_late and op == CANCEL_RESERVED then
      standing, instead = EXPIRED, LOOK
    elseif is_late and less(actual_h, actual_l, cost_h, cost_l) then
      actual_h, actual_l = cost_h, cost_l
    end
  end
  put(standing, 0)
  put(cost_h, cost_l)
  put(at_h, at_l)
  put(mark_h, mark_l)
  put(soonest_h, soonest_l)
  local function after(marked_h, marked_l)
    if standing == FRESH then
      local eh, el = later(now_h, now_l, xh, xl)
      kept[count + 1] =
        packed('>c16I5I4I5I4I5I4I5I4B', id, ch, cl, now_h, now_l, marked_h, marked_l, eh, el, 1)
      local fh, fl = later(eh, el, memory_h, memory_l)
      if less(until_h, until_l, fh, fl) then until_h, until_l = fh, fl end
    elseif standing == OPEN or standing == LATE or standing == EXPIRED then
      -- Only the flag changes. The next reservation removes forgotten records, as in core.
      return 'r' .. slice(body, 1, found_at + RECORD - 2) .. '\0' .. slice(body, found_at + RECORD), until_h, until_l
    else
      return nil
    end
    return 'r' .. table.concat(kept), until_h, until_l
  end
  return instead, after, standing == FULL
end

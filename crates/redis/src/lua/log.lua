-- Sliding window log: 'l', the sum of all blocks (6 bytes), then 13 bytes per entry, oldest first: the instant in whole
-- microseconds (written as seconds and nanoseconds), and the blocks. Each instant has one entry. The reply holds only the
-- values that a decision depends on; core decides on an equivalent log of two entries.
local ENTRY = 13

-- The offset of the first entry inside a window of this length, by binary search: entries are sorted.
local function first_within(body, th, tl, sh, sl)
  local low, high = 0, #body / ENTRY
  while low < high do
    local middle = math.floor((low + high) / 2)
    local eh, el = unpacked('>I5I4', body, middle * ENTRY + 1)
    eh, el = add(eh, el, sh, sl)
    if less(th, tl, eh, el) then high = middle else low = middle + 1 end
  end
  return low * ENTRY + 1
end

-- The sum of blocks of the entries from `from` to before `to`.
local function blocks_between(body, from, to)
  local sum = 0
  for at = from, to - 1, ENTRY do
    local _, _, blocks = unpacked('>I5I4I4', body, at)
    sum = sum + blocks
  end
  return sum
end

algorithms[4] = function(op, args, raw)
  local total, body = 0, ''
  if raw then
    -- 108 is 'l'.
    if byte(raw) == 108 and (#raw - 7) % ENTRY == 0 and #raw > 6 then
      total, body = unpacked('>I6', raw, 2), slice(raw, 8)
    else
      corrupt = corrupt + 1
    end
  end
  -- The limit and the largest count after this operation, in blocks; the cost; the window; the entries' retention; one block.
  local limit, bound, asked, wh, wl, rh, rl, kh, kl = unpacked('>I4I4I4I5I4I5I4I5I4', args, 3)
  local th, tl = now_h, now_l - now_l % 1000
  local position = first_within(body, th, tl, wh, wl)
  -- The total is known, so add up only the shorter side: usually few entries have left the window.
  local used
  if position * 2 < #body then
    used = total - blocks_between(body, 1, position)
  else
    used = blocks_between(body, position, #body)
  end
  local newest_h, newest_l = 0, 0
  if body ~= '' then newest_h, newest_l = unpacked('>I5I4', body, #body - ENTRY + 1) end
  local is_ahead = less(th, tl, newest_h, newest_l)

  local admits, charge, take, take_at = op ~= NEVER, 0, 0, false
  if op == SETTLE then
    local was_h, was_l = blocks_of(cost_h, cost_l, kh, kl)
    local is_h, is_l = blocks_of(actual_h, actual_l, kh, kl)
    if less(was_h, was_l, is_h, is_l) then
      is_h, is_l = subtract(is_h, is_l, was_h, was_l)
      asked = is_h * BILLION + is_l
      op = ALWAYS
    else
      was_h, was_l = subtract(was_h, was_l, is_h, is_l)
      take, take_at = was_h * BILLION + was_l, true
    end
  elseif op == CREDIT then
    take = asked
  end
  if op == UP_TO then asked = math.min(asked, math.max(limit - used, 1)) end
  if op == SPEND or op == UP_TO then
    admits = used + asked <= limit
    if admits then charge = asked end
  elseif op == ALWAYS then
    charge = math.max(math.min(asked, bound - used), 0)
  end

  -- The entry after whose expiry the cost fits, and the blocks that leave the window until then.
  local gone_h, gone_l, gone = newest_h, newest_l, used
  if not admits and op ~= NEVER then
    gone = 0
    for at = position, #body, ENTRY do
      local eh, el, blocks = unpacked('>I5I4I4', body, at)
      gone_h, gone_l, gone = eh, el, gone + blocks
      if gone >= used + asked - limit then break end
    end
  end
  put(used, gone)
  put(gone_h, gone_l)
  put(newest_h, newest_l)

  if used == 0 then take = 0 end
  if charge == 0 and take == 0 and not is_ahead then
    put(used, newest_h)
    put(newest_l, 0)
    return admits, nil, 0, 0, 0, 0
  end
  local forget = first_within(body, th, tl, rh, rl)
  total = total - blocks_between(body, 1, forget)
  body = slice(body, forget)
  local before = used
  -- Entries after now are merged into one entry at now, together with the charge.
  local ahead = charge
  while body ~= '' do
    local eh, el, blocks = unpacked('>I5I4I4', body, #body - ENTRY + 1)
    if less(eh, el, th, tl) then break end
    ahead = ahead + blocks
    body = slice(body, 1, -ENTRY - 1)
  end
  if ahead > 0 then
    if charge > 0 and ahead == charge and #body >= 10000 * ENTRY then
      local _, _, oldest = unpacked('>I5I4I4', body)
      -- The log is full: drop the oldest entry, which is kept only for a longer window than this one.
      if forget < position then before = before + oldest end
      body, total = slice(body, ENTRY + 1), total - oldest
      before = before - oldest
    end
    body = body .. packed('>I5I4I4', th, tl, ahead)
  end
  total = total + charge
  local after = before + charge

  if take > 0 and take_at then
    -- Binary search for the entry at the receipt's instant.
    local low, high = 0, #body / ENTRY - 1
    while low <= high do
      local middle = math.floor((low + high) / 2)
      local at = middle * ENTRY + 1
      local eh, el, blocks = unpacked('>I5I4I4', body, at)
      if eh == mark_h and el == mark_l then
        local taken = math.min(blocks, take)
        local kept = ''
        if taken < blocks then kept = packed('>I5I4I4', eh, el, blocks - taken) end
        body = slice(body, 1, at - 1) .. kept .. slice(body, at + ENTRY)
        total = total - taken
        local lh, ll = add(eh, el, wh, wl)
        if less(th, tl, lh, ll) then after = after - taken end
        break
      elseif less(eh, el, mark_h, mark_l) then
        low = middle + 1
      else
        high = middle - 1
      end
    end
  end
  while take > 0 and not take_at and body ~= '' do
    local eh, el, blocks = unpacked('>I5I4I4', body, #body - ENTRY + 1)
    local taken = math.min(blocks, take)
    take, total = take - taken, total - taken
    local lh, ll = add(eh, el, wh, wl)
    if less(th, tl, lh, ll) then after = after - taken end
    body = slice(body, 1, -ENTRY - 1)
    if taken < blocks then body = body .. packed('>I5I4I4', eh, el, blocks - taken) end
  end
  newest_h, newest_l = 0, 0
  if body ~= '' then newest_h, newest_l = unpacked('>I5I4', body, #body - ENTRY + 1) end
  put(after, newest_h)
  put(newest_l, 0)
  local uh, ul = add(newest_h, newest_l, rh, rl)
  local state = packed('>BI6', 108, total) .. body
  if charge > 0 then return admits, state, uh, ul, th, tl end
  return admits, state, uh, ul, 0, 0
end

-- Sliding window counter: the start of the current window, two 32-bit counts, the window's length, and its tick as a
-- power of ten of nanoseconds. The tick keeps products below 2^52, so they are exact here as in core.

-- Whole ticks in a duration. A tick below a second divides the second; a longer tick is whole seconds.
local function ticks_in(h, l, power)
  if power < 9 then return h * 10 ^ (9 - power) + math.floor(l / 10 ^ power) end
  return math.floor(h / 10 ^ (power - 9))
end

-- Advances the start and the counts to now, under windows of this length.
local function rolled(sh, sl, previous, current, lh, ll)
  -- The clock went back: keep the counts and weigh them in full.
  if less(now_h, now_l, sh, sl) then return now_h, now_l, previous, current end
  local gone_h, gone_l = subtract(now_h, now_l, sh, sl)
  if less(gone_h, gone_l, lh, ll) then return sh, sl, previous, current end
  gone_h, gone_l = subtract(gone_h, gone_l, lh, ll)
  if less(gone_h, gone_l, lh, ll) then
    sh, sl = add(sh, sl, lh, ll)
    return sh, sl, current, 0
  end
  sh, sl = start_of_span(lh, ll)
  return sh, sl, 0, 0
end

-- The previous count times the ticks for which it still counts.
local function weigh(sh, sl, previous, window, power)
  local h, l = subtract(now_h, now_l, sh, sl)
  return previous * math.max(window - ticks_in(h, l, power), 0)
end

algorithms[3] = function(op, args, raw)
  -- The limit; the largest count after this operation; the largest count; the cost; the window in ticks; the tick's power
  -- of ten; the window's length.
  local limit, bound, ceiling, asked, window, power, lh, ll = unpacked('>I4I4I4I4I7BI5I4', args, 3)
  local sh, sl, previous, current, is_inherited = 0, 0, 0, 0, false
  if raw then
    -- 99 is 'c'. The first version wrote 18 bytes, without the window's length: assume the caller's length.
    local oh, ol, old_power, old_window = lh, ll, power, window
    local is_read = byte(raw) == 99
    if is_read and #raw == 28 then
      sh, sl, previous, current, oh, ol, old_power = unpacked('>I5I4I4I4I5I4B', raw, 2)
    elseif is_read and #raw == 18 then
      sh, sl, previous, current = unpacked('>I5I4I4I4', raw, 2)
    else
      is_read = false
    end
    is_inherited = oh ~= lh or ol ~= ll
    if is_inherited then
      old_window = ticks_in(oh, ol, old_power)
      is_read = ol < BILLION and oh <= MAX_HIGH and old_power < 20 and old_window >= 1
    end
    if not is_read or sl >= BILLION or sh > MAX_HIGH or (sh == MAX_HIGH and sl > MAX_LOW) then
      corrupt = corrupt + 1
      sh, sl, previous, current, is_inherited = 0, 0, 0, 0, false
    elseif is_inherited then
      -- The window's length has changed, so these counts cannot be weighed. Their estimate, rounded up, becomes the
      -- current count. A denial writes it back too; otherwise the retry time of the denial would be wrong.
      sh, sl, previous, current = rolled(sh, sl, previous, current, oh, ol)
      current = current + math.ceil(weigh(sh, sl, previous, old_window, old_power) / old_window)
      current, previous = math.min(current, 4294967295), 0
      sh, sl = start_of_span(lh, ll)
    end
  end
  put(sh, sl)
  put(previous, current)

  local is_ahead = less(now_h, now_l, sh, sl)
  local is_over = is_inherited or previous > ceiling or current > ceiling
  if previous > ceiling then previous = ceiling end
  if current > ceiling then current = ceiling end
  sh, sl, previous, current = rolled(sh, sl, previous, current, lh, ll)
  local weighted = weigh(sh, sl, previous, window, power)
  local estimate = math.ceil(weighted / window) + current

  local admits, charge, p, c = op ~= NEVER, 0, previous, current
  if op == SETTLE then
    if less(cost_h, cost_l, actual_h, actual_l) then
      local mh, ml = subtract(actual_h, actual_l, cost_h, cost_l)
      asked = math.min(mh * BILLION + ml, 4294967295)
      op = ALWAYS
    else
      local mh, ml = subtract(cost_h, cost_l, actual_h, actual_l)
      -- Not exact beyond 2^53, which is far above any count.
      local surplus = mh * BILLION + ml
      local nh, nl = add(mark_h, mark_l, lh, ll)
      if mark_h == sh and mark_l == sl then
        c = math.max(current - surplus, 0)
      elseif nh == sh and nl == sl then
        p = math.max(previous - surplus, 0)
      end
    end
  elseif op == CREDIT then
    local from_current = math.min(asked, current)
    c = current - from_current
    p = math.max(previous - (asked - from_current), 0)
  end
  if op == UP_TO then asked = math.min(asked, math.max(limit - estimate, 1)) end
  if op == SPEND or op == UP_TO then
    local room = limit - current - asked
    admits = room >= 0 and weighted <= room * window
    if admits then charge = asked end
  elseif op == ALWAYS then
    charge = math.max(math.min(asked, bound - estimate), 0)
  end
  c = c + charge
  if not (c ~= current or p ~= previous or is_ahead or is_over) then return admits, nil, 0, 0, 0, 0 end
  local uh, ul = sh, sl
  if c > 0 then uh, ul = add(uh, ul, lh, ll) end
  if c > 0 or p > 0 then uh, ul = add(uh, ul, lh, ll) end
  local state = packed('>BI5I4I4I4I5I4B', 99, sh, sl, p, c, lh, ll, power)
  if charge > 0 then return admits, state, uh, ul, sh, sl end
  return admits, state, uh, ul, 0, 0
end

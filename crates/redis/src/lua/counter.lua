-- Sliding window counter: when the current window began, and two counts of 32 bits. Products stay below 2^52 by the
-- choice of the tick, so they are exact here as they are in core.
algorithms[3] = function(op, args, raw)
  -- 99 is 'c'.
  local sh, sl, previous, current = 0, 0, 0, 0
  if raw then
    local is_read = #raw == 18 and byte(raw) == 99
    if is_read then sh, sl, previous, current = unpacked('>I5I4I4I4', raw, 2) end
    if not is_read or sl >= BILLION or sh > MAX_HIGH or (sh == MAX_HIGH and sl > MAX_LOW) then
      corrupt = corrupt + 1
      sh, sl, previous, current = 0, 0, 0, 0
    end
  end
  put(sh, sl)
  put(previous, current)
  -- The limit; how far this operation may count; the largest count; what is asked; the window in ticks; one tick; the
  -- window's length.
  local limit, bound, ceiling, asked, window, kh, kl, lh, ll = unpacked('>I4I4I4I4I7I5I4I5I4', args, 3)

  local is_ahead = less(now_h, now_l, sh, sl)
  local is_over = previous > ceiling or current > ceiling
  if previous > ceiling then previous = ceiling end
  if current > ceiling then current = ceiling end
  local gone_h, gone_l = subtract(now_h, now_l, sh, sl)
  if is_ahead then
    -- The clock went back: the counts are kept and weigh in full.
    sh, sl = now_h, now_l
  elseif not less(gone_h, gone_l, lh, ll) then
    gone_h, gone_l = subtract(gone_h, gone_l, lh, ll)
    if less(gone_h, gone_l, lh, ll) then
      sh, sl = add(sh, sl, lh, ll)
      previous, current = current, 0
    else
      sh, sl = start_of_span(lh, ll)
      previous, current = 0, 0
    end
  end

  gone_h, gone_l = subtract(now_h, now_l, sh, sl)
  -- A tick is a power of ten: below a second it divides the second, above it is whole seconds.
  local ticks
  if kh == 0 then
    ticks = gone_h * (BILLION / kl) + math.floor(gone_l / kl)
  else
    ticks = math.floor(gone_h / kh)
  end
  local weighted = previous * math.max(window - ticks, 0)
  local estimate = math.ceil(weighted / window) + current

  local admits, charge, p, c = op ~= NEVER, 0, previous, current
  if op == SETTLE then
    if less(cost_h, cost_l, actual_h, actual_l) then
      local mh, ml = subtract(actual_h, actual_l, cost_h, cost_l)
      asked = math.min(mh * BILLION + ml, 4294967295)
      op = ALWAYS
    else
      local mh, ml = subtract(cost_h, cost_l, actual_h, actual_l)
      -- Beyond 2^53 this is not exact, but far above any count.
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
  local state = packed('>BI5I4I4I4', 99, sh, sl, p, c)
  if charge > 0 then return admits, state, uh, ul, sh, sl end
  return admits, state, uh, ul, 0, 0
end

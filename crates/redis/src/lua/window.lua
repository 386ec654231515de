-- Fixed window: the instant at which it ends, and a 64-bit count.

-- Calendar arithmetic, as in core's calendar.rs: days and years are small, so Lua numbers are exact. The script computes
-- the end because it depends on the server's clock.
local function begin_after(day, is_year)
  local days = day + 719468
  local era = math.floor(days / 146097)
  local of_era = days - era * 146097
  local leaps = math.floor(of_era / 1460) - math.floor(of_era / 36524) + math.floor(of_era / 146096)
  local year = math.floor((of_era - leaps) / 365)
  local function before_year(y)
    return y * 365 + math.floor(y / 4) - math.floor(y / 100) + math.floor(y / 400)
  end
  local of_year = of_era - before_year(year)
  if is_year then
    -- Years begin in March here, and January is their day 306.
    return era * 146097 + before_year(of_year >= 306 and year + 1 or year) + 306 - 719468
  end
  local month = math.floor((of_year * 5 + 2) / 153) + 1
  local first = month == 12 and before_year(year + 1) or before_year(year) + math.floor((month * 153 + 2) / 5)
  return era * 146097 + first - 719468
end

-- The end of the calendar window that contains this second.
local function calendar_end(second, which, shift)
  local today = math.floor((second + shift) / 86400)
  local day
  if which == 0 then
    day = today + 1
  elseif which == 1 then
    day = today - (today + 3) % 7 + 7
  else
    day = begin_after(today, which == 3)
  end
  return day * 86400 - shift, 0
end

algorithms[2] = function(op, args, raw)
  -- The window's end and its count. 102 is 'f'.
  local eh, el, nh, nl = 0, 0, 0, 0
  if raw then
    if #raw == 19 and byte(raw) == 102 then eh, el, nh, nl = unpacked('>I5I4I5I4', raw, 2) end
    if eh == 0 and el == 0 or el >= BILLION or nl >= BILLION or eh > MAX_HIGH
      or not less(nh, nl, MAX_HIGH, MAX_LOW + 1) then
      corrupt = corrupt + 1
      eh, el, nh, nl = 0, 0, 0, 0
    end
  end
  put(eh, el)
  put(nh, nl)
  -- The largest count after this operation; the cost; the window kind (0 epoch, 1 first hit, 2 calendar) and its length.
  local bh, bl, ph, pl, kind, lh, ll = unpacked('>I5I4I5I4BI5I4', args, 3)
  -- The end of a window opened now.
  local fh, fl
  if kind == 0 then
    fh, fl = start_of_span(lh, ll)
    fh, fl = add(fh, fl, lh, ll)
  elseif kind == 1 then
    fh, fl = add(now_h, now_l, lh, ll)
  else
    -- The length holds the calendar unit and its UTC offset in minutes plus 840.
    fh, fl = calendar_end(now_h, lh, (ll - 840) * 60)
  end
  local moved = false
  if (nh == 0 and nl == 0) or not less(now_h, now_l, eh, el) then
    eh, el, nh, nl = fh, fl, 0, 0
  elseif less(fh, fl, eh, el) then
    -- The clock went back, or the window became shorter: keep the count, and cap the end at the next window's end.
    if kind == 0 then
      fh, fl = add(fh, fl, lh, ll)
    elseif kind == 2 then
      -- This second contains core's last instant.
      fh, fl = calendar_end(math.min(fh, 9223372036), lh, (ll - 840) * 60)
    end
    if less(fh, fl, eh, el) then
      eh, el = fh, fl
      moved = true
    end
  end

  local admits, charged, back = op ~= NEVER, false, false
  local sh, sl = 0, 0
  if op == SETTLE then
    if less(cost_h, cost_l, actual_h, actual_l) then
      ph, pl = subtract(actual_h, actual_l, cost_h, cost_l)
      op = ALWAYS
    elseif eh == mark_h and el == mark_l then
      sh, sl = subtract(cost_h, cost_l, actual_h, actual_l)
    end
  elseif op == CREDIT then
    sh, sl = ph, pl
  end
  if op == SPEND then
    local rh, rl = subtract(bh, bl, nh, nl)
    charged = not less(rh, rl, ph, pl)
    admits = charged
  elseif op == UP_TO or op == ALWAYS then
    local rh, rl = subtract(bh, bl, nh, nl)
    if less(rh, rl, ph, pl) then ph, pl = rh, rl end
    charged = ph > 0 or pl > 0
    admits = charged or op == ALWAYS
  end
  if charged then
    nh, nl = add(nh, nl, ph, pl)
  elseif (sh > 0 or sl > 0) and (nh > 0 or nl > 0) then
    back = true
    nh, nl = subtract(nh, nl, sh, sl)
  end
  if not (charged or back or moved) then return admits, nil, 0, 0, 0, 0 end
  local state = packed('>BI5I4I5I4', 102, eh, el, nh, nl)
  if charged then return admits, state, eh, el, eh, el end
  return admits, state, eh, el, 0, 0
end

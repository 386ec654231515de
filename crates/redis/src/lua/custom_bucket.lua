-- A bucket that refills in steps, or whose new keys do not start full; see core's custom_bucket. The clock is rounded down to the last
-- step, and a key without a state gets the debt of a new key. The bucket then decides as usual.
algorithms[6] = function(op, args, raw)
  local th, tl = read_bucket(raw)
  -- At the end of the arguments: the step, the interval, the debt of a new key, and how long a state counts after its debt.
  local sh, sl, ih, il, gh, gl, mh, ml = unpacked('>I5I4I5I4I5I4I5I4', args, #args - 35)
  local real_h, real_l = now_h, now_l
  local is_stepped = sh > 0 or sl > 1
  if is_stepped then
    now_h, now_l = start_of_span(sh, sl)
    if op == SETTLE then
      local _, _, rh, rl = divide(at_h, at_l, sh, sl)
      at_h, at_l = subtract(at_h, at_l, rh, rl)
    end
  end
  local until_h, until_l = add(th, tl, mh, ml)
  local is_new = (gh > 0 or gl > 0) and ((th == 0 and tl == 0) or not less(real_h, real_l, until_h, until_l))
  if is_new then
    th, tl = add(now_h, now_l, gh, gl)
  elseif is_stepped then
    -- A part of a block cannot be owed.
    local dh, dl = subtract(th, tl, now_h, now_l)
    local _, _, rh, rl = divide(dh, dl, ih, il)
    if rh > 0 or rl > 0 then
      dh, dl = subtract(dh, dl, rh, rl)
      dh, dl = add(dh, dl, ih, il)
    end
    th, tl = add(now_h, now_l, dh, dl)
  end
  local admits, state, h, l, marked_h, marked_l = decide_bucket(op, args, th, tl)
  now_h, now_l = real_h, real_l
  -- A denial records that the key was seen: its tokens arrive counted from now.
  if is_new and not admits and op ~= NEVER then state, h, l = write_instant(th, tl), th, tl end
  if state then h, l = add(h, l, mh, ml) end
  return admits, state, h, l, marked_h, marked_l
end

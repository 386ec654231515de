-- Token bucket and leaky bucket: the state is one instant in nanoseconds, written in decimal digits because Redis stores
-- an integer of up to 63 bits in place of a pointer. The caller multiplies cost by interval and passes the price.
local function read_instant(raw)
  if #raw > 20 or not string.find(raw, '^%d+$') then return nil end
  -- At most eleven digits and nine: both halves are exact. An empty first half is no number.
  local h, l = tonumber(slice(raw, 1, -10)) or 0, tonumber(slice(raw, -9))
  if h > MAX_HIGH or (h == MAX_HIGH and l > MAX_LOW) then return nil end
  return h, l
end

local function write_instant(h, l)
  if h == 0 then return format('%d', l) end
  return format('%d%09d', h, l)
end

-- Reads the state and appends it to the reply.
local function read_bucket(raw)
  local th, tl = 0, 0
  if raw then
    th, tl = read_instant(raw)
    if not th then
      corrupt = corrupt + 1
      th, tl = 0, 0
    end
  end
  put(th, tl)
  return th, tl
end

-- Decides on a bucket whose state is this instant.
local function decide_bucket(op, args, th, tl)
  -- The largest debt; the largest debt after this operation; its price; one interval; one block.
  local ch, cl, bh, bl, ph, pl, ih, il, kh, kl, is_queue
  if op == SPEND then
    ch, cl, bh, bl, ph, pl = unpacked('>I5I4I5I4I5I4', args, 3)
  elseif op == LOOK or op == NEVER then
    ch, cl = unpacked('>I5I4', args, 3)
  else
    ch, cl, bh, bl, ph, pl, ih, il, kh, kl, is_queue = unpacked('>I5I4I5I4I5I4I5I4I5I4B', args, 3)
  end
  local dh, dl = subtract(th, tl, now_h, now_l)
  local is_over = less(ch, cl, dh, dl)
  if is_over then dh, dl = ch, cl end

  local admits, nh, nl = op ~= NEVER, nil, nil
  local sh, sl = 0, 0
  if op == SPEND then
    nh, nl = add(dh, dl, ph, pl)
    if less(bh, bl, nh, nl) then admits, nh = false, nil end
  elseif op == CREDIT then
    sh, sl = ph, pl
  elseif op == SETTLE then
    local was_h, was_l = blocks_of(cost_h, cost_l, kh, kl)
    local is_h, is_l = blocks_of(actual_h, actual_l, kh, kl)
    if less(was_h, was_l, is_h, is_l) then
      is_h, is_l = subtract(is_h, is_l, was_h, was_l)
      ph, pl = multiply(is_h, is_l, ih, il)
      op = ALWAYS
    else
      was_h, was_l = subtract(was_h, was_l, is_h, is_l)
      sh, sl = multiply(was_h, was_l, ih, il)
      if is_queue == 1 then
        -- A queue position is refunded only if no later request has queued behind it.
        if th ~= mark_h or tl ~= mark_l then sh, sl = 0, 0 end
      else
        -- Do not refund what refill has already restored.
        local gone_h, gone_l = subtract(now_h, now_l, at_h, at_l)
        sh, sl = subtract(sh, sl, gone_h, gone_l)
      end
    end
  end
  if op == UP_TO or op == ALWAYS then
    local rh, rl = subtract(bh, bl, dh, dl)
    if less(rh, rl, ph, pl) then
      -- Not all of it fits: charge as many whole intervals as fit.
      local _, _, xh, xl = divide(rh, rl, ih, il)
      ph, pl = subtract(rh, rl, xh, xl)
    end
    if ph > 0 or pl > 0 then
      nh, nl = add(dh, dl, ph, pl)
    elseif op == UP_TO then
      admits = false
    end
  end
  local is_charged = nh ~= nil
  if (sh > 0 or sl > 0) and (dh > 0 or dl > 0) then
    nh, nl = subtract(dh, dl, sh, sl)
  end
  if not nh and is_over then nh, nl = ch, cl end
  if not nh then return admits, nil, 0, 0, 0, 0 end
  nh, nl = add(now_h, now_l, nh, nl)
  if is_charged then return admits, write_instant(nh, nl), nh, nl, nh, nl end
  return admits, write_instant(nh, nl), nh, nl, 0, 0
end

algorithms[1] = function(op, args, raw)
  return decide_bucket(op, args, read_bucket(raw))
end

-- Products and quotients by doubling, for the few places where core multiplies or divides values that depend on the state.
-- The number of rounds is the number of bits of the quotient or factor, so ordinary numbers are fast.
local function divide(ah, al, bh, bl)
  local highs, lows, n = {}, {}, 0
  local dh, dl = bh, bl
  while not less(ah, al, dh, dl) do
    n = n + 1
    highs[n], lows[n] = dh, dl
    dh, dl = dh + dh, dl + dl
    if dl >= BILLION then dh, dl = dh + 1, dl - BILLION end
  end
  local qh, ql = 0, 0
  for i = n, 1, -1 do
    qh, ql = qh + qh, ql + ql
    if ql >= BILLION then qh, ql = qh + 1, ql - BILLION end
    if not less(ah, al, highs[i], lows[i]) then
      ah, al = subtract(ah, al, highs[i], lows[i])
      ql = ql + 1
    end
  end
  return qh, ql, ah, al
end

local function multiply(nh, nl, bh, bl)
  local h, l = 0, 0
  while nh > 0 or nl > 0 do
    local odd, carried = nl % 2, nh % 2
    if odd == 1 then h, l = add(h, l, bh, bl) end
    nh, nl = (nh - carried) / 2, (nl - odd + carried * BILLION) / 2
    bh, bl = add(bh, bl, bh, bl)
  end
  return h, l
end

-- The number of blocks that a cost is charged as, rounded up.
local function blocks_of(ch, cl, bh, bl)
  if bh == 0 and bl == 1 then return ch, cl end
  local qh, ql, rh, rl = divide(ch, cl, bh, bl)
  if rh > 0 or rl > 0 then return add(qh, ql, 0, 1) end
  return qh, ql
end

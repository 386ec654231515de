-- The start of the window of this length that contains now.
local function start_of_span(lh, ll)
  if ll == 0 then return now_h - now_h % lh, 0 end
  local _, _, rh, rl = divide(now_h, now_l, lh, ll)
  return subtract(now_h, now_l, rh, rl)
end

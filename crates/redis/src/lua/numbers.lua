-- Integers of up to 64 bits as pairs (billions, remainder), because a Lua number is exact only to 2^53. As a time, a pair is
-- (seconds, nanoseconds). Like core's arithmetic, all functions saturate at 0 and at 2^64 - 1.
local BILLION = 1000000000
local MAX_HIGH, MAX_LOW = 18446744073, 709551615

local function less(ah, al, bh, bl)
  return ah < bh or (ah == bh and al < bl)
end

local function add(ah, al, bh, bl)
  local h, l = ah + bh, al + bl
  if l >= BILLION then h, l = h + 1, l - BILLION end
  if h > MAX_HIGH or (h == MAX_HIGH and l > MAX_LOW) then return MAX_HIGH, MAX_LOW end
  return h, l
end

local function subtract(ah, al, bh, bl)
  local h, l = ah - bh, al - bl
  -- Borrow before testing the sign: (1, 0) - (0, 1) is not negative.
  if l < 0 then h, l = h - 1, l + BILLION end
  if h < 0 then return 0, 0 end
  return h, l
end

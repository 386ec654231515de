-- The register of a fleet: its live nodes and its operator entries. All keys share one hash tag, so they are in one slot.
--
-- KEYS  1 nodes: hash node -> sixteen digits of the instant of the last heartbeat, then the heartbeat
--       2 lives: sorted set of nodes by the instant at which their lease ends
--       3 mark:  hash with the epoch, the last version, and the floor: a node whose cursor is below it gets all entries
--       4 said:  hash name -> sixteen digits of version, + or -, sixteen digits of the expiry, the body
--       5 order: sorted set of entry names by version
--       6 ends:  sorted set of entry names by expiry, for entries that expire
--       7 marks: the last 1000 versions that were returned to nodes
--       8 put:   the number of the last put by this node
-- ARGV  1 the command; the following arguments depend on it.
-- Instants are milliseconds of the server's clock, far below 2^53, so they are exact.
local call, text = redis.call, string.format
local NODES, LIVES, MARK, ENTRIES, ORDER, ENDS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local MARKS, PUT = KEYS[7], KEYS[8]
-- The longest lease of a node. A later end was written before the clock went back.
local LONGEST_LIFE = 60000
-- The most expired entries that one call deletes, and the bytes of entries after which a reply ends.
local MOST_TIDIED, MOST_BYTES = 100, 131072
local MOST_MARKS = 1000

local time = call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)

local function digits(n)
  return text('%016.0f', n)
end

local function mark()
  local known = call('HMGET', MARK, 'epoch', 'version', 'floor')
  return tonumber(known[1] or 0), tonumber(known[2] or 0), tonumber(known[3] or 0)
end

local function keep(ms)
  for _, key in ipairs({ MARK, ENTRIES, ORDER, ENDS, MARKS }) do
    call('PEXPIRE', key, ms)
  end
end

-- Deletes expired entries. Deleting a tombstone raises the floor: a node whose cursor is below the floor may have missed the
-- tombstone, so it gets all entries.
local function tidy()
  local ended = call('ZRANGEBYSCORE', ENDS, '-inf', digits(now), 'LIMIT', 0, MOST_TIDIED)
  local epoch, _, floor = mark()
  if #ended == 0 or epoch == 0 then
    return
  end
  for _, name in ipairs(ended) do
    local entry = call('HGET', ENTRIES, name)
    if entry and string.sub(entry, 17, 17) == '-' then
      floor = math.max(floor, tonumber(string.sub(entry, 1, 16)) or 0)
    end
    call('HDEL', ENTRIES, name)
    call('ZREM', ORDER, name)
    call('ZREM', ENDS, name)
  end
  call('HSET', MARK, 'floor', digits(floor))
end

local function forget(nodes)
  for _, node in ipairs(nodes) do
    call('HDEL', NODES, node)
    call('ZREM', LIVES, node)
  end
end

local handlers = {}

-- node, lease in ms, heartbeat, the most nodes, the entries' time to live in ms
function handlers.beat(node, life, beat, most, kept)
  life = tonumber(life)
  forget(call('ZRANGEBYSCORE', LIVES, '-inf', digits(now)))
  forget(call('ZRANGEBYSCORE', LIVES, '(' .. digits(now + LONGEST_LIFE), '+inf'))
  if call('HEXISTS', NODES, node) == 0 and call('HLEN', NODES) >= tonumber(most) then
    return { 'full' }
  end
  call('HSET', NODES, node, digits(now) .. beat)
  call('ZADD', LIVES, digits(now + life), node)
  for _, key in ipairs({ NODES, LIVES }) do
    if call('PTTL', key) < life then
      call('PEXPIRE', key, life)
    end
  end
  local epoch, version = mark()
  if epoch > 0 then
    tidy()
    -- Entries do not expire while any node is alive. Renewing them once an hour is enough.
    if call('PTTL', MARK) < tonumber(kept) - 3600000 then
      keep(kept)
    end
  end
  return { 'roll', now, epoch, version, call('HVALS', NODES) }
end

-- node
function handlers.leave(node)
  forget({ node })
  return { 'left' }
end

-- epoch, version, whether this continues an earlier page, the most entries
function handlers.entries(of, since, goes_on, most)
  tidy()
  local epoch, version, floor = mark()
  if epoch == 0 then
    return { 'said', now, 0, 0, 1, -1, 0, {} }
  end
  since = tonumber(since)
  local is_other = tonumber(of) ~= epoch
  if is_other and goes_on == '1' then
    return { 'other' }
  end
  local is_whole, lost_after = is_other or since < floor, -1
  if not is_whole and goes_on == '0' and not call('ZSCORE', MARKS, digits(since)) then
    -- The register does not know this version: it has lost it, with all versions after the last one that it knows.
    local last = call('ZREVRANGEBYSCORE', MARKS, '(' .. digits(since), '-inf', 'LIMIT', 0, 1)
    is_whole, lost_after = true, tonumber(last[1] or floor)
  end
  if is_whole and goes_on == '0' then
    since = 0
  end
  local names = call('ZRANGEBYSCORE', ORDER, '(' .. digits(since), '+inf', 'LIMIT', 0, most)
  local entries, filled, bytes, has_more = {}, 0, 0, #names == tonumber(most) and 1 or 0
  for _, name in ipairs(names) do
    if bytes >= MOST_BYTES then
      has_more = 1
      break
    end
    local entry = call('HGET', ENTRIES, name)
    if entry then
      entries[filled + 1], entries[filled + 2] = name, entry
      filled, bytes = filled + 2, bytes + #name + #entry
    end
  end
  return { 'said', now, epoch, version, is_whole and 1 or 0, lost_after, has_more, entries }
end

-- number, the most entries, the entries' time to live in ms, the tombstones' time to live in ms, and for each put its mode,
-- its time to live in ms or an empty string, the name, the body
function handlers.put(number, most, kept, gone_for)
  local before = tonumber(call('GET', PUT) or 0)
  local epoch, version = mark()
  if before >= tonumber(number) and epoch > 0 then
    return { 'mark', epoch, version }
  end
  if epoch == 0 then
    epoch = micros
    call('HSET', MARK, 'epoch', digits(epoch))
  end
  tidy()
  local room = tonumber(most) - call('HLEN', ENTRIES)
  for at = 6, #ARGV, 4 do
    if ARGV[at] ~= 'remove' and call('HEXISTS', ENTRIES, ARGV[at + 2]) == 0 then
      room = room - 1
    end
  end
  if room < 0 then
    keep(kept)
    return { 'full' }
  end
  for at = 6, #ARGV, 4 do
    local how, left, name, body = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
    local is_known = call('HEXISTS', ENTRIES, name) == 1
    local is_remove = how == 'remove'
    local is_wanted = is_known and how ~= 'absent' or not is_known and (not is_remove or room > 0)
    if is_wanted then
      if is_remove then
        left, room = gone_for, is_known and room or room - 1
      end
      local ends = left ~= '' and now + tonumber(left) or 0
      -- Versions follow the clock, so that a server that has lost the latest entries does not reuse their versions.
      version = math.max(version + 1, micros)
      call('HSET', ENTRIES, name, digits(version) .. (is_remove and '-' or '+') .. digits(ends) .. body)
      call('ZADD', ORDER, digits(version), name)
      if ends > 0 then
        call('ZADD', ENDS, digits(ends), name)
      else
        call('ZREM', ENDS, name)
      end
    end
  end
  call('HSET', MARK, 'version', digits(version))
  call('ZADD', MARKS, digits(version), digits(version))
  if call('ZCARD', MARKS) > MOST_MARKS then
    local oldest = call('ZRANGE', MARKS, 0, 0)[1]
    call('ZREM', MARKS, oldest)
    local _, _, floor = mark()
    call('HSET', MARK, 'floor', digits(math.max(floor, oldest + 1)))
  end
  call('SET', PUT, number, 'PX', 3600000)
  keep(kept)
  return { 'mark', epoch, version }
end

return handlers[ARGV[1]](unpack(ARGV, 2))

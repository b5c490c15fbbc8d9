-- sweep: drop what is dead or expired in one slice of one space.
--
-- KEYS 1 head, 2 replicas, 3 serving, 4 spaces, 5 log, 6 lock, 7 blocks of the space
-- ARGV 1 token of the sweeper, 2 how long the lock is to last, ms; 0 = go ahead without it,
--      3 the space's field in KEYS[4], 4 age at which a hold is expired, ms, 5 log length,
--      6 cursor, '0' at the start, 7 about how many blocks to look at
-- Returns {1 done or -1 the lock was lost, cursor, '0' at the end,
--      records of live numbers dropped for their age, records of retired numbers dropped,
--      unreadable values dropped, blocks looked at, blocks gone}
--
-- A small hash is scanned whole whatever ARGV[7] says, and so is every hash on a
-- server that knows no cursors. Atomic, so that no reader meets a record whose count is
-- gone or the reverse, and no report of a block is undone by one that was read before it.
local serving, log, blocks = KEYS[3], KEYS[5], KEYS[7]
local token, lockms = ARGV[1], tonumber(ARGV[2])

local head = read('HMGET', KEYS[1], 'l')
local index = tonumber(read('HGET', KEYS[4], ARGV[3]) or nil)
local holder = lockms > 0 and read('GET', KEYS[6])
read('HLEN', serving)
read('XLEN', log)
local scan = read('HSCAN', blocks, ARGV[6], 'COUNT', ARGV[7])
if fault then return fault end
if lockms > 0 and holder ~= token then return {-1, ARGV[6], 0, 0, 0, 0, 0} end

-- live: number → its count in the scheme, false for a retired one. Filled as numbers
-- are met. A space that is not registered has no scheme, and nothing in it is live.
local scheme = index and u16(index)
local live, gone = {}, {}
local function liveness(m)
  local c = scheme and call('HGET', serving, scheme .. u24(m))
  c = c and (tonumber(c) or 1)
  live[m] = c
  return c
end

local cutoff = clock() - tonumber(ARGV[4])
local fields = scan[2]
local expired, retired, garbage = 0, 0, 0
local sets, dels, seen = {}, {}, {}
for i = 1, #fields, 2 do
  local hash, v = fields[i], fields[i + 1]
  local len = #v
  local out, from = nil, 1 -- out is set once something was dropped
  if len == 0 or len % 12 ~= 0 then
    if not seen[hash] then garbage = garbage + 1 end
    out, from = '', len + 1
  else
    -- A field may come twice in one scan; its records must be counted once.
    local again = seen[hash]
    for p = 1, len, 12 do
      local a, b, c, d, e, f, g, h = byte(v, p, p + 7)
      local m = a * 65536 + b * 256 + c
      local alive = live[m]
      if alive == nil then alive = liveness(m) end
      local drop = false
      if not alive then
        drop = true
        if not again then retired = retired + 1 end
      elseif (((d * 256 + e) * 256 + f) * 256 + g) * 256 + h <= cutoff then
        drop = true
        if not again then
          expired = expired + 1
          gone[m] = (gone[m] or 0) + 1
        end
      end
      if drop then
        out = out or ''
        if p > from then out = out .. sub(v, from, p - 1) end
        from = p + 12
      end
    end
  end
  if out and not seen[hash] then
    seen[hash] = true
    if from <= len then out = out .. sub(v, from) end
    if out == '' then
      dels[#dels + 1] = hash
    else
      sets[#sets + 1] = hash
      sets[#sets + 1] = out
    end
  end
end

-- From here on everything is written.
work_when_full(KEYS[1])
if lockms > 0 then call('PEXPIRE', KEYS[6], lockms) end
for i = 1, #sets, 2 * CHUNK do
  call('HSET', blocks, unpack(sets, i, math.min(i + 2 * CHUNK - 1, #sets)))
end
for i = 1, #dels, CHUNK do
  call('HDEL', blocks, unpack(dels, i, math.min(i + CHUNK - 1, #dels)))
end
local counts = {}
for m, c in pairs(gone) do counts[scheme .. u24(m)] = live[m] - c end
if put_counts(serving, counts) then
  local entry = append(log, ARGV[5], head[1], 'W', 1, '')
  call('HSET', KEYS[1], 'l', entry, 'v', entry)
end
return {1, scan[1], expired, retired, garbage, #fields / 2, #dels}

-- report: one replica holds these blocks of one space.
--
-- KEYS 1 head, 2 replicas, 3 serving, 4 spaces, 5 log, 6 blocks of the space
-- ARGV 1 replica id, 2 tenant, 3 model, 4 the space's field in KEYS[4],
--      5 seen: ms since 2020, -1 = now, later than now = now,
--      6 hold TTL ms, 7 log length,
--      8 for each block u8(len hash) hash u8 tier u24 tokens: the log's form,
--      9 for each block u8 tier u24 tokens,
--      10… the hashes, at most 500; of a hash given twice the last counts
-- Returns {now Unix ms, number, writes, was the partition empty 0|1, unreadable values replaced}
--
-- Atomic because the records, the counts of who serves, the head and the log must
-- agree at every moment a reader or another writer looks.
local replicas, serving, spaces, log, blocks = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local argv = ARGV -- a local is cheaper than a global, 256 times over
local id, tails, n = argv[1], argv[9], #argv - 9
local keyttl = tonumber(argv[6])
if n < 1 or n > 500 or #tails ~= 4 * n or #argv[4] < 4 then
  return redis.error_reply('ERR report: ' .. n .. ' hashes with ' .. #tails .. ' bytes of tier and tokens: give 1 to 500 hashes and 4 bytes for each')
end

-- last: of a hash given twice, which one counts.
local last, size = {}, 5 * n
for i = 1, n do
  local hash = argv[9 + i]
  if #hash > 255 then return redis.error_reply('ERR report: a hash of ' .. #hash .. ' bytes: give at most 255') end
  last[hash] = i
  size = size + #hash
end
if #argv[8] ~= size then
  return redis.error_reply('ERR report: the form for the log has ' .. #argv[8] .. ' bytes: these hashes need ' .. size)
end

local head = read('HMGET', KEYS[1], 'l', 'n', 'k', 't', 'd', 's')
local rec, unreadable = record_of(replicas, id)
local index = read('HGET', spaces, argv[4])
local empty = read('HLEN', serving) == 0
read('XLEN', log)
local values = {}
for i = 1, n, CHUNK do
  local got = read('HMGET', blocks, unpack(argv, 9 + i, math.min(9 + i + CHUNK - 1, #argv)))
  if fault then return fault end
  for j = 1, #got do values[i + j - 1] = got[j] end
end
local garbage = unreadable and 1 or 0

-- The scheme's index, shared by its spaces. A new one is the count of those before it.
index = index_of(index)
local newspace, newscheme = not index, false
if newspace then
  local prefix = sub(argv[4], 1, 4 + byte(argv[4], 3) * 256 + byte(argv[4], 4))
  local all = call('HGETALL', spaces)
  for i = 1, #all, 2 do
    if sub(all[i], 1, #prefix) == prefix then index = index_of(all[i + 1]) or index end
  end
  if not index then
    index, newscheme = tonumber(head[3]) or 0, true
    if index > 65535 then return redis.error_reply('ERR report: the partition has had 65,536 hash schemes: no more fit') end
  end
end

local now = clock()
local seen = occurred(argv[5], now)
local number = rec and number_at(rec, 1) or free_number(head[2], replicas, serving)
local scheme, own = u16(index), u24(number)
local count = rec and call('HGET', serving, scheme .. own)
local held = count and tonumber(count)
if count and not held then garbage = garbage + 1 end

-- live: −number → its count in the scheme, false for a retired one. Filled as numbers are
-- met. Negative, because miniredis' Lua lays an array up to the largest positive key.
local live, gone = {}, {}
local function liveness(m)
  local c = call('HGET', serving, scheme .. u24(-m))
  c = c and (tonumber(c) or 1)
  live[m] = c
  return c
end

-- splice returns a block's value with the replica's record in it, and whether it had one.
-- Dead and expired records are left out, which costs Lua a look at each record. While a
-- sweeper is at work there are next to none: then a look for the own record is enough, and
-- it most often stands where it stood in the block before.
local start = own .. u40(seen)
local splice
local swept = now + EPOCH - (tonumber(head[6] or nil) or 0)
if not head[5] and swept >= 0 and swept < 600000 then
  local at, low = 1, byte(own, 3)
  function splice(v, tail)
    if not held then return start .. tail .. v, false end
    if sub(v, at, at + 2) ~= own then
      local found
      for p = 1, #v, 12 do
        if byte(v, p + 2) == low and sub(v, p, p + 2) == own then
          found = p
          break
        end
      end
      if not found then return start .. tail .. v, false end
      at = found
    end
    if at == 1 then return start .. tail .. sub(v, 13), true end
    return sub(v, 1, at - 1) .. start .. tail .. sub(v, at + 12), true
  end
else
  -- A hold is expired once its last-seen, cut to its upper 3 bytes (65.5 s), is below this.
  local cutoff = floor((now - keyttl) / 65536)
  function splice(v, tail)
    -- Records that stay are copied in stretches; `from` is where the present one began.
    local out, from, before = start .. tail, 1, false
    for p = 1, #v, 12 do
      local a, b, c, d, e, f = byte(v, p, p + 5)
      local m = -(a * 65536 + b * 256 + c)
      local stays = false
      if m == -number then
        before = held ~= nil
      else
        local alive = live[m]
        if alive == nil then alive = liveness(m) end
        if alive then
          stays = d * 65536 + e * 256 + f >= cutoff
          if not stays then gone[m] = (gone[m] or 0) + 1 end
        end
      end
      if not stays then
        if p > from then out = out .. sub(v, from, p - 1) end
        from = p + 12
      end
    end
    return out .. sub(v, from), before
  end
end

local pairs_, np, added = {}, 0, 0
for i = 1, n do
  local hash = argv[9 + i]
  if last[hash] == i then
    local v, tail, before = values[i], sub(tails, 4 * i - 3, 4 * i), false
    if v and #v % 12 == 0 then
      v, before = splice(v, tail)
    else
      if v then garbage = garbage + 1 end
      v = start .. tail
    end
    if not before then added = added + 1 end
    pairs_[np + 1], pairs_[np + 2] = hash, v
    np = np + 2
  end
end

-- From here on everything is written.
for i = 1, np, 2 * CHUNK do
  call('HSET', blocks, unpack(pairs_, i, math.min(i + 2 * CHUNK - 1, np)))
end
local counts = {}
if added > 0 then counts[scheme .. own] = (held or 0) + added end
for m, c in pairs(gone) do counts[scheme .. u24(-m)] = live[m] - c end
local went = put_counts(serving, counts)
if newspace then call('HSET', spaces, argv[4], index) end

local newnumber = not rec
rec = rec and touched(rec, seen) or newborn(number, seen)
call('HSET', replicas, id, rec)
-- Spaces are part of the head: a space that the caller of State or evict does not
-- know must not hide behind a head that looks current.
local changed = went or newnumber or newspace or not held
local entry = append(log, argv[7], head[1], 'R', changed and 1 or 0, sub(blocks, -16) .. start .. argv[8])
call('HSET', KEYS[1], 'l', entry)
if changed then call('HSET', KEYS[1], 'v', entry) end
if newnumber then call('HSET', KEYS[1], 'n', number) end
if newscheme then call('HSET', KEYS[1], 'k', index + 1) end
if not head[4] then call('HSET', KEYS[1], 't', argv[2], 'm', argv[3]) end
prolong(keyttl, KEYS[1], replicas, serving, spaces, log, blocks)
return {now + EPOCH, number, u40_at(rec, 4), empty and 1 or 0, garbage}

-- evict: one replica no longer holds these hashes, in some or in every space.
--
-- KEYS 1 head, 2 replicas, 3 serving, 4 spaces, 5 log, 6… blocks of the spaces to evict from
-- ARGV 1 replica id, 2 when: ms since 2020, -1 = now, 3 hold TTL ms, 4 log length,
--      5 q: how many more spaces the caller knows; -1 = it does not claim to know all,
--      6… the fields in KEYS[4] of the spaces in KEYS[6…], in the same order,
--      then q fields of the other known spaces, then the hashes
-- Returns {now Unix ms, number (0: no such replica), writes, records removed, is the partition empty 0|1}
--      or {now Unix ms, -1, fields and values of KEYS[4]} if the caller knew other spaces
--      than there are: nothing was done, and it asks again with these. A script may touch
--      only keys that were declared, so it cannot go on by itself.
--
-- Atomic because a report that lands between two spaces must not leave half an eviction,
-- and because records, counts and log must agree.
local replicas, serving, spaces, log = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, keyttl, others = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[5])
local m = #KEYS - 5
local known = m + math.max(others, 0)
local first = 5 + known -- hashes follow
local n = #ARGV - first
if n < 1 or n > 500 then
  return redis.error_reply('ERR evict: ' .. n .. ' hashes: give 1 to 500')
end
for i = 1, n do
  if #ARGV[first + i] > 255 then
    return redis.error_reply('ERR evict: a hash of ' .. #ARGV[first + i] .. ' bytes: give at most 255')
  end
end

local head = read('HMGET', KEYS[1], 'l')
local rec = record_of(replicas, id)
local size = read('HLEN', spaces)
read('HLEN', serving)
read('XLEN', log)
if fault then return fault end
local now = clock()

local indexes = {}
for i = 1, known, CHUNK do
  local got = call('HMGET', spaces, unpack(ARGV, 5 + i, 5 + math.min(i + CHUNK - 1, known)))
  for j = 1, #got do indexes[i + j - 1] = got[j] end
end
if others >= 0 then
  local current = size == known
  for i = 1, known do current = current and indexes[i] end
  if not current then return {now + EPOCH, -1, call('HGETALL', spaces)} end
end
if not rec then return {now + EPOCH, 0, 0, 0, 0} end

local own = sub(rec, 1, 3)
local counts, found = {}, {}
for s = 1, m do
  local index = index_of(indexes[s])
  local field = index and u16(index) .. own
  local held = field and (counts[field] or tonumber(call('HGET', serving, field) or nil))
  if held then
    counts[field] = held
    local values = {}
    for i = 1, n, CHUNK do
      local got = read('HMGET', KEYS[5 + s], unpack(ARGV, first + i, first + math.min(i + CHUNK - 1, n)))
      if fault then return fault end
      for j = 1, #got do values[i + j - 1] = got[j] end
    end
    found[#found + 1] = {key = KEYS[5 + s], field = field, values = values}
  end
end

-- From here on everything is written.
work_when_full(KEYS[1])
local at = occurred(ARGV[2], now)
local removed, suffixes = 0, {}
local changed = {}
for _, space in ipairs(found) do
  local before, done = removed, {}
  for i = 1, n do
    local v, hash = space.values[i], ARGV[first + i]
    if v and not done[hash] and #v % 12 == 0 then
      for p = 1, #v, 12 do
        if sub(v, p, p + 2) == own then
          if #v == 12 then
            call('HDEL', space.key, hash)
          else
            call('HSET', space.key, hash, sub(v, 1, p - 1) .. sub(v, p + 12))
          end
          removed, done[hash] = removed + 1, true
          break
        end
      end
    end
  end
  if removed > before then
    counts[space.field] = counts[space.field] - (removed - before)
    changed[space.field] = counts[space.field]
    suffixes[#suffixes + 1] = sub(space.key, -16)
  end
end
local went = put_counts(serving, changed)

rec = touched(rec, at)
call('HSET', replicas, id, rec)
if removed > 0 then
  local hashes = {}
  for i = 1, n do hashes[i] = char(#ARGV[first + i]) .. ARGV[first + i] end
  local entry = append(log, ARGV[4], head[1], 'E', went and 1 or 0,
    own .. u16(#suffixes) .. table.concat(suffixes) .. table.concat(hashes))
  call('HSET', KEYS[1], 'l', entry)
  if went then call('HSET', KEYS[1], 'v', entry) end
end
prolong(keyttl, KEYS[1], replicas, serving, spaces, log)
return {now + EPOCH, number_at(rec, 1), u40_at(rec, 4), removed, call('HLEN', serving) == 0 and 1 or 0}

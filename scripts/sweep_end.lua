-- sweep_end: finish a pass: drop what holds nothing any more, keep the rest alive.
--
-- KEYS 1 head, 2 replicas, 3 serving, 4 spaces, 5 log, 6 lock,
--      7… blocks of the spaces that the pass went through
-- ARGV 1 token of the sweeper, 2 1 = the lock must be held, and is given back; 0 = go ahead without it,
--      3 age at which a replica without holds is forgotten, ms,
--      4 hold TTL ms, 5 log length, 6 age at which log entries are forgotten, ms,
--      7 when the pass began, Unix ms: noted if the lock is held, for a pass without it
--        may have gone by another age than the partition's sweepers,
--      8… the fields in KEYS[4] of KEYS[7…], in the same order
-- Returns {1 done or -1 the lock was lost, what is left: 0 nothing, 1 no hold, 2 holds,
--      replicas forgotten, counts put right, blocks left in KEYS[7…], spaces forgotten}
--
-- Forgotten is a replica that no record names, whose last sign of life is too old and
-- whose lease, if it has one, has run out; and a space without blocks. The index of a
-- scheme is free for another once no space and no count has it. A count without a scheme or
-- without a replica of that number is left over from a key that Redis lost, and goes.
-- The dirty mark goes if it is still this pass's own.
-- Atomic, so that a report that brings the space or the replica back comes wholly
-- before or wholly after.
local replicas, serving, spaces, log = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, locked = ARGV[1], ARGV[2] == '1'

local head = read('HMGET', KEYS[1], 'l', 'd')
local rows = read('HGETALL', replicas)
local counts = read('HKEYS', serving)
read('HLEN', spaces)
read('XLEN', log)
local holder = locked and read('GET', KEYS[6])
local blocks, sizes = 0, {}
for i = 7, #KEYS do
  sizes[i] = read('HLEN', KEYS[i])
  if fault then return fault end
  blocks = blocks + sizes[i]
end
if fault then return fault end
if locked and holder ~= token then return {-1, 0, 0, 0, 0, 0} end
local now = clock()

-- From here on everything is written.
work_when_full(KEYS[1])
local forgotten = 0
for i = 7, #KEYS do
  if sizes[i] == 0 then forgotten = forgotten + call('HDEL', spaces, ARGV[i + 1]) end
end
local schemes, next_index = {}, 0
for _, index in ipairs(call('HVALS', spaces)) do
  index = tonumber(index)
  if index then
    schemes[u16(index)] = true
    next_index = math.max(next_index, index + 1)
  end
end

-- Names first, for a count needs one.
local numbers = {}
for i = 2, #rows, 2 do
  if #rows[i] >= 23 then numbers[sub(rows[i], 1, 3)] = true end
end
local repaired, orphans, held = 0, false, {}
for _, field in ipairs(counts) do
  local number = sub(field, 3, 5)
  if #field == 5 and schemes[sub(field, 1, 2)] and numbers[number] then
    held[number] = true
  else
    repaired = repaired + call('HDEL', serving, field)
    orphans = true
  end
end
local dropped = 0
for i = 1, #rows, 2 do
  local rec = rows[i + 1]
  local readable = #rec >= 23 and number_at(rec, 1) > 0
  if not readable or (not held[sub(rec, 1, 3)]
      and u40_at(rec, 9) <= now - tonumber(ARGV[3]) and u40_at(rec, 19) <= now) then
    dropped = dropped + call('HDEL', replicas, rows[i])
  end
end

-- Counts that went leave records of retired numbers: the next pass drops those.
if orphans then
  call('HSET', KEYS[1], 'd', '1')
elseif head[2] == token then
  call('HDEL', KEYS[1], 'd')
end
if repaired + dropped > 0 then
  local entry = append(log, ARGV[5], head[1], 'W', 1, '')
  call('HSET', KEYS[1], 'l', entry, 'v', entry)
end
if forgotten > 0 then call('HSET', KEYS[1], 'k', next_index) end
if call('EXISTS', log) == 1 then
  call('XTRIM', log, 'MINID', string.format('%d', math.max(now + EPOCH - tonumber(ARGV[6]), 0)))
end

local left = 0
if call('EXISTS', serving) == 1 then
  left = 2
elseif call('EXISTS', replicas) + call('EXISTS', spaces) > 0 then
  left = 1
end
if locked and call('EXISTS', KEYS[1]) == 1 then call('HSET', KEYS[1], 's', ARGV[7]) end
if left > 0 then
  -- What is left lives as long as the policy of the tenant says, and its keys must outlive it.
  local life = math.max(tonumber(ARGV[3]), tonumber(ARGV[4]))
  for i = 1, #KEYS do
    if i ~= 6 then prolong(life, KEYS[i]) end
  end
end
if locked then call('DEL', KEYS[6]) end
return {1, left, dropped, repaired, blocks, forgotten}

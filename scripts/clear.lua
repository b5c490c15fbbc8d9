-- clear: a replica holds nothing any more and has no stats: its number is retired.
--
-- KEYS 1 head, 2 replicas, 3 serving, 4 spaces, 5 log
-- ARGV 1 replica id, 2 hold TTL ms, 3 log length
-- Returns {now Unix ms, number (0: no such replica), is the partition empty 0|1}
--
-- Costs one step per hash scheme, whatever the replica held: records of a number
-- without a count are dead for every reader from this moment, and dropped later.
-- Atomic because name, counts, head and log must agree.
local replicas, serving, log = KEYS[2], KEYS[3], KEYS[5]
local id, keyttl = ARGV[1], tonumber(ARGV[2])

local head = read('HMGET', KEYS[1], 'l', 'k')
local rec, unreadable = record_of(replicas, id)
read('HLEN', serving)
local spaces = read('HVALS', KEYS[4])
read('XLEN', log)
if fault then return fault end
local now = clock()
if not rec then
  if unreadable then call('HDEL', replicas, id) end
  return {now + EPOCH, 0, call('HLEN', serving) == 0 and 1 or 0}
end

-- From here on everything is written.
work_when_full(KEYS[1])
local own = sub(rec, 1, 3)
local schemes = index_of(head[2]) or 0
for i = 1, #spaces do schemes = math.max(schemes, (index_of(spaces[i]) or -1) + 1) end
local dead = 0
for i = 0, schemes - 1 do dead = dead + call('HDEL', serving, u16(i) .. own) end
call('HDEL', replicas, id)
local entry = append(log, ARGV[3], head[1], 'C', 3, own .. id)
call('HSET', KEYS[1], 'l', entry, 'v', entry)
if dead > 0 then call('HSET', KEYS[1], 'd', '1') end
prolong(keyttl, KEYS[1], replicas, serving, KEYS[4], log)
return {now + EPOCH, number_at(rec, 1), call('HLEN', serving) == 0 and 1 or 0}

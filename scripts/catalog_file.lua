-- catalog_file: enter one partition in the catalog, or strike it out.
--
-- KEYS[1]  ic1:{catalog}:tenants      ZSET  tenant -> expiry, Unix ms
-- KEYS[2]  ic1:{catalog}:t:<tenant>   ZSET  model and shard -> expiry, Unix ms
-- KEYS[3]  ic1:{catalog}:partitions   ZSET  tenant, model and shard -> expiry, Unix ms
-- ARGV[1]  tenant
-- ARGV[2]  the partition's member in KEYS[2]
-- ARGV[3]  the partition's member in KEYS[3]
-- ARGV[4]  what the partition has: 0 nothing, 1 bookkeeping but no hold, 2 holds
-- ARGV[5]  how long an entry counts without being renewed, ms
--
-- Returns 1.
--
-- Atomic, so that a tenant stands in KEYS[1] exactly while one of its partitions
-- stands in KEYS[2]: a writer that empties one model and a writer that fills
-- another cannot leave the tenant out between them. Whether the entry is true of
-- the partition is not decided here: the caller verifies that afterwards.

-- A foreign key fails here, before anything is written.
for i = 1, 3 do
  redis.call('ZCARD', KEYS[i])
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local has = tonumber(ARGV[4])
local ttl = tonumber(ARGV[5])
local expiry = string.format('%d', now + ttl)

-- A Redis without memory refuses a first write that could take some, and asks no more
-- after one that could not: emptied partitions must go from a full Redis too.
redis.call('ZREMRANGEBYRANK', KEYS[1], 1, 0)

if has == 2 then
  redis.call('ZADD', KEYS[2], expiry, ARGV[2])
  redis.call('ZADD', KEYS[1], expiry, ARGV[1])
else
  redis.call('ZREM', KEYS[2], ARGV[2])
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%d', now))
  if redis.call('EXISTS', KEYS[2]) == 0 then
    redis.call('ZREM', KEYS[1], ARGV[1])
  end
end
if has == 0 then
  redis.call('ZREM', KEYS[3], ARGV[3])
else
  redis.call('ZADD', KEYS[3], expiry, ARGV[3])
end

for i = 1, 3 do
  -- -2 is no such key, -1 a key without TTL.
  local left = redis.call('PTTL', KEYS[i])
  if left ~= -2 and left < ttl then
    redis.call('PEXPIRE', KEYS[i], ARGV[5])
  end
end
return 1

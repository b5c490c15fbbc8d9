-- catalog_census: where the index stops knowing a tenant and its model.
--
-- KEYS[1]  ic1:{catalog}:tenants      ZSET  tenant -> expiry, Unix ms
-- KEYS[2]  ic1:{catalog}:t:<tenant>   ZSET  model and shard -> expiry, Unix ms
-- ARGV     the members in KEYS[2] of all shards of the model
--
-- Returns 0 if no tenant holds anything, 1 if this tenant holds nothing, 2 if the
-- tenant holds something but not for the model, 3 if the model holds something.
-- Entries whose expiry is not after now do not count.
--
-- Atomic, so that the levels agree: a tenant that arrives between two reads must
-- not be called unknown in an index that was empty.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local after = string.format('(%d', now)

if redis.call('ZCOUNT', KEYS[1], after, '+inf') == 0 then
  return 0
end
if redis.call('ZCOUNT', KEYS[2], after, '+inf') == 0 then
  return 1
end
for i = 1, #ARGV do
  local expiry = redis.call('ZSCORE', KEYS[2], ARGV[i])
  if expiry and tonumber(expiry) > now then
    return 3
  end
end
return 2

-- layout: write how the index is laid out, unless that is written already.
--
-- KEYS[1]  ic1:layout  HASH  version, shards
-- ARGV[1]  layout version of the caller
-- ARGV[2]  shards of the caller
-- ARGV[3]  TTL to extend the key to, ms
--
-- Returns {version, shards} as they stand after the call; a field that a foreign
-- key lacks is "". The TTL is extended only if both are the caller's.
--
-- Atomic, so that of two components that start on an empty Redis one decides and
-- the other learns of it.

if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'version', ARGV[1], 'shards', ARGV[2])
end
local found = redis.call('HMGET', KEYS[1], 'version', 'shards')
local version, shards = found[1] or '', found[2] or ''
if version == ARGV[1] and shards == ARGV[2] then
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
  end
end
return { version, shards }

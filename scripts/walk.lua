-- walk: the records of the leading blocks of a chain, and the head to read them with.
--
-- KEYS 1 head, 2 replicas, 3 serving, 4 spaces, 5 blocks of the space
-- ARGV 1 id of the head that the caller has, '' = none; 2… the hashes, none = the head only
-- Returns {now Unix ms, head id, id of the last log entry ('' = none yet),
--      the head or nil if the caller's is current: {replicas, serving, spaces (each fields
--      and values in turn), 'd' of the head},
--      records in pieces of 16, 64, 256, 512, 512… blocks}; the first block that nobody holds
--      is nil, and no piece follows the one that it stands in.
--
-- Writes nothing. Atomic because records mean something only beside the head and
-- the log position of the same moment. Records are moved whole: Lua looks at none.
local function read(command, key, ...)
  local v = redis.pcall(command, key, ...)
  if type(v) == 'table' and v.err then
    return nil, redis.error_reply((string.gsub(v.err, '^(%S+) ', '%1 key ' .. string.gsub(key, '%%', '%%%%') .. ': ', 1)))
  end
  return v
end

local head, err = read('HMGET', KEYS[1], 'v', 'l', 'd')
if err then return err end
local version = head[1] or ''
local full = false
if version == '' or version ~= ARGV[1] then
  local parts = {}
  for i = 2, 4 do
    parts[i - 1], err = read('HGETALL', KEYS[i])
    if err then return err end
  end
  full = {parts[1], parts[2], parts[3], head[3] or ''}
end

local t = redis.call('TIME')
local reply = {t[1] * 1000 + math.floor(t[2] / 1000), version, head[2] or '', full}
local n, at, size, piece = #ARGV, 2, 16, 5
while at <= n do
  local got
  got, err = read('HMGET', KEYS[5], unpack(ARGV, at, math.min(at + size - 1, n)))
  if err then return err end
  reply[piece] = got
  for i = 1, #got do
    if not got[i] then return reply end
  end
  at, piece = at + size, piece + 1
  if size < 512 then size = size == 16 and 64 or size == 64 and 256 or 512 end
end
return reply

-- head: the clock, the head and the log position of a partition.
--
-- KEYS 1 head, 2 replicas, 3 serving, 4 spaces
-- ARGV 1 id of the head that the caller has, '' = none
-- Returns {now Unix ms, head id, id of the last log entry ('' = none yet),
--      the head, or nil if the caller's is current: {replicas, serving, spaces (each fields
--      and values in turn), 'd' of the head}}
--
-- Writes nothing. A walk runs it in one MULTI with the HMGET of the blocks, because
-- records mean something only beside the head and the log position of the same moment.
-- The records do not pass through Lua: that would cost Redis five times as much.
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
return {t[1] * 1000 + math.floor(t[2] / 1000), version, head[2] or '', full}

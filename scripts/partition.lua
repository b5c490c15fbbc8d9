-- How every write script reads and changes a partition. The loader puts this file
-- in front of report, evict, clear and stats: one script is this text followed by theirs.
--
-- Times are milliseconds since 2020-01-01T00:00Z. Nothing is written before all that
-- is read was found readable, since Redis rolls nothing back.
local call, byte, char, sub, floor = redis.call, string.byte, string.char, string.sub, math.floor
local EPOCH = 1577836800000
local MAXNUMBER = 16777215
local CHUNK = 400 -- pairs to one unpack: miniredis takes no more than 1,000 arguments with ease

local function clock()
  local t = call('TIME')
  return t[1] * 1000 + floor(t[2] / 1000) - EPOCH
end

-- The producer's time, capped at now; -1 stands for now.
local function occurred(at, now)
  at = tonumber(at)
  if at < 0 or at > now then return now end
  return at
end

local function u16(n) return char(floor(n / 256), n % 256) end
local function u24(n) return char(floor(n / 65536), floor(n / 256) % 256, n % 256) end
local function u40(n)
  return char(floor(n / 4294967296) % 256, floor(n / 16777216) % 256, floor(n / 65536) % 256, floor(n / 256) % 256, n % 256)
end
local function number_at(s, i)
  local a, b, c = byte(s, i, i + 2)
  return a * 65536 + b * 256 + c
end
local function u40_at(s, i)
  local a, b, c, d, e = byte(s, i, i + 4)
  return (((a * 256 + b) * 256 + c) * 256 + d) * 256 + e
end

-- read is redis.call for the reads before the first write: a fault names its key and
-- is kept in `fault`, which the script returns as soon as it looks.
local fault
local function read(command, key, ...)
  local v = redis.pcall(command, key, ...)
  if type(v) == 'table' and v.err then
    fault = fault or redis.error_reply((string.gsub(v.err, '^(%S+) ', '%1 key ' .. string.gsub(key, '%%', '%%%%') .. ': ', 1)))
    return {}
  end
  return v
end

-- The replica's record; nil if unknown or unreadable, so that the replica gets a new number.
local function record_of(key, id)
  local rec = read('HGET', key, id)
  if fault or not rec or #rec < 23 or number_at(rec, 1) == 0 then return nil, rec and not fault end
  return rec
end

-- A record with one more write and a sign of life at `at`.
local function touched(rec, at)
  return sub(rec, 1, 3) .. u40(u40_at(rec, 4) + 1) .. u40(math.max(u40_at(rec, 9), at)) .. sub(rec, 14)
end

-- The first record of a number.
local function newborn(number, at)
  return u24(number) .. u40(1) .. u40(at) .. string.rep('\0', 10)
end

-- A scheme index as Redis keeps it; nil if it is none.
local function index_of(v)
  local index = v and tonumber(v)
  if index and index >= 0 and index <= 65535 and index % 1 == 0 then return index end
end

-- The number after `last` that nothing carries: not a name, not a count. Zero is none.
local function free_number(last, replicas, serving)
  local used = {}
  for _, rec in ipairs(call('HVALS', replicas)) do
    if #rec >= 3 then used[sub(rec, 1, 3)] = true end
  end
  for _, field in ipairs(call('HKEYS', serving)) do
    if #field == 5 then used[sub(field, 3)] = true end
  end
  local n = tonumber(last) or 0
  repeat n = n % MAXNUMBER + 1 until not used[u24(n)]
  return n
end

-- Appends what was changed; returns the entry's id. flags: 1 the head changed, 2 the entry tells how.
local function append(log, length, prev, op, flags, body)
  if not prev or #prev > 255 then prev = '' end -- a foreign value is no id
  return call('XADD', log, 'MAXLEN', '~', length, '*', 'e', op .. char(flags) .. char(#prev) .. prev .. body)
end

-- Keys live twice as long as the holds in them, so that the sweeper empties a key before
-- it expires. A life is only ever prolonged, and only if that is worth a write.
local function prolong(keyttl, ...)
  local life = keyttl * 2
  for _, key in ipairs({...}) do
    if call('PTTL', key) < life - floor(life / 8) then call('PEXPIRE', key, life) end
  end
end

-- What frees memory, or takes none, must work when Redis has none left. Redis then refuses a script's
-- first write if it could take memory, and asks no more after one that could not.
local function work_when_full(hash) call('HDEL', hash, '') end

-- Writes the counts of a scheme that changed: field → new count; what is not above 0 goes.
-- Returns whether a number went.
local function put_counts(serving, counts)
  local went = false
  for field, n in pairs(counts) do
    if n > 0 then
      call('HSET', serving, field, n)
    else
      call('HDEL', serving, field)
      went = true
    end
  end
  return went
end

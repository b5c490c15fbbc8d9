-- sweep_begin: start a pass over one partition.
--
-- KEYS 1 head, 2 replicas, 3 serving, 4 spaces, 5 log, 6 lock
-- ARGV 1 token of the sweeper, 2 how long the lock lasts, ms; 0 = go ahead without it,
--      3 least age of the last full pass, ms: a younger one makes this one needless,
--      4 for how long a lease must have run out to retire its replica, ms, 5 log length
-- Returns {1 go, 0 another pass is recent enough, or -1 another sweeper is at it,
--      now Unix ms, when the last full pass began, Unix ms, 0 = never,
--      replicas retired, the fields of KEYS[4], none unless go}
--
-- A dirty mark ('d' of the head, put there by a clear) becomes the token: only if it
-- still is when the pass ends did no clear come between, and the partition is clean.
-- Atomic, so that of two sweepers one gets the lock, that no clear falls between
-- reading the mark and replacing it, and that a lease is not renewed while it is judged.
local replicas, serving, log = KEYS[2], KEYS[3], KEYS[5]
local token, lockms = ARGV[1], tonumber(ARGV[2])
local head = read('HMGET', KEYS[1], 's', 'd', 'l')
local holder = lockms > 0 and read('GET', KEYS[6])
if fault then return fault end

local now = clock()
local last = tonumber(head[1] or nil) or 0
if lockms > 0 then
  -- A last pass in the future was written under another clock: it does not count.
  local age = now + EPOCH - last
  if age >= 0 and age < tonumber(ARGV[3]) then return {0, now + EPOCH, last, 0, {}} end
  if holder and holder ~= token then return {-1, now + EPOCH, last, 0, {}} end
end
local rows = read('HGETALL', replicas)
local spaces = read('HGETALL', KEYS[4])
read('HLEN', serving)
read('XLEN', log)
if fault then return fault end

-- From here on everything is written.
work_when_full(KEYS[1])
if lockms > 0 then call('SET', KEYS[6], token, 'PX', lockms) end
local fields, schemes = {}, {}
for i = 1, #spaces, 2 do
  fields[#fields + 1] = spaces[i]
  local index = tonumber(spaces[i + 1])
  if index then schemes[u16(index)] = true end
end
local retired, entry = 0, head[3]
for i = 1, #rows, 2 do
  local rec = rows[i + 1]
  if #rec >= 23 and u40_at(rec, 19) > 0 and u40_at(rec, 19) + tonumber(ARGV[4]) <= now then
    for scheme in pairs(schemes) do call('HDEL', serving, scheme .. sub(rec, 1, 3)) end
    call('HDEL', replicas, rows[i])
    entry = append(log, ARGV[5], entry, 'C', 3, sub(rec, 1, 3) .. rows[i])
    retired = retired + 1
  end
end
if retired > 0 then call('HSET', KEYS[1], 'l', entry, 'v', entry) end
if head[2] or retired > 0 then call('HSET', KEYS[1], 'd', token) end
return {1, now + EPOCH, last, retired, fields}

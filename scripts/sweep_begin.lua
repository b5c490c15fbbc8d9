-- sweep_begin: start a pass over one partition.
--
-- KEYS 1 head, 2 spaces, 3 lock
-- ARGV 1 token of the sweeper, 2 how long the lock lasts, ms; 0 = go ahead without it,
--      3 least age of the last full pass, ms: a younger one makes this one needless
-- Returns {1 go, 0 another pass is recent enough, or -1 another sweeper is at it,
--      now Unix ms, when the last full pass began, Unix ms, 0 = never,
--      the fields of KEYS[2], none unless go}
--
-- A dirty mark ('d' of the head, put there by a clear) becomes the token: only if it
-- still is when the pass ends did no clear come between, and the partition is clean.
-- Atomic, so that of two sweepers one gets the lock, and so that no clear falls
-- between reading the mark and replacing it.
local token, lockms = ARGV[1], tonumber(ARGV[2])
local head = read('HMGET', KEYS[1], 's', 'd')
local spaces = read('HKEYS', KEYS[2])
local holder = lockms > 0 and read('GET', KEYS[3])
if fault then return fault end

local now = clock() + EPOCH
local last = tonumber(head[1] or nil) or 0
if lockms > 0 then
  -- A last pass in the future was written under another clock: it does not count.
  if last <= now and now - last < tonumber(ARGV[3]) then return {0, now, last, {}} end
  if holder and holder ~= token then return {-1, now, last, {}} end
  call('SET', KEYS[3], token, 'PX', lockms)
end
if head[2] then call('HSET', KEYS[1], 'd', token) end
return {1, now, last, spaces}

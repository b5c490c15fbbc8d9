-- stats: what a replica says of itself rather than of its holds.
--
-- KEYS 1 head, 2 replicas, 3 serving, 4 log
-- ARGV 1 replica id, 2 tenant, 3 model, 4 when: ms since 2020, -1 = now, later than now = now,
--      5 hold TTL ms, 6 log length,
--      7 S: ARGV[8] (≥ 32 bytes) becomes its stats, reported at `when`
--        A: it is alive; nothing changes unless its stats are known
--        L: its lease runs out ARGV[8] ms from now; a replica that had none has one from here on
-- Returns {now Unix ms, number (0: no such replica), writes, unreadable values replaced}
--
-- S and L give an unknown replica a number. Atomic because the record, the number and the log must agree.
local replicas, serving, log = KEYS[2], KEYS[3], KEYS[4]
local id, keyttl, what, payload = ARGV[1], tonumber(ARGV[5]), ARGV[7], ARGV[8]
if what == 'S' and #payload < 32 then
  return redis.error_reply('ERR stats: ' .. #payload .. ' bytes: give at least 32')
elseif what ~= 'S' and what ~= 'A' and what ~= 'L' then
  return redis.error_reply('ERR stats: unknown change ' .. what .. ': give S, A or L')
end
if #id > 65535 then
  return redis.error_reply('ERR stats: a replica id of ' .. #id .. ' bytes: give at most 65,535')
end

local head = read('HMGET', KEYS[1], 'l', 'n', 't')
local rec, unreadable = record_of(replicas, id)
read('HLEN', serving)
read('XLEN', log)
if fault then return fault end
local now = clock()
local at = occurred(ARGV[4], now)
if what == 'A' and not (rec and u40_at(rec, 14) > 0) then
  return {now + EPOCH, rec and number_at(rec, 1) or 0, rec and u40_at(rec, 4) or 0, 0}
end

-- From here on everything is written. A known replica's record is only written over,
-- so a full Redis takes it: replicas must not lapse because others fill it.
if rec then work_when_full(KEYS[1]) end
local number = rec and number_at(rec, 1) or free_number(head[2], replicas, serving)
local newnumber = not rec
-- For alive and stats 0 means never, so the dawn of time is 1.
rec = rec and touched(rec, math.max(at, 1)) or newborn(number, math.max(at, 1))
if what == 'S' then
  rec = sub(rec, 1, 13) .. u40(math.max(at, 1)) .. sub(rec, 19, 23) .. payload
elseif what == 'L' then
  rec = sub(rec, 1, 18) .. u40(now + tonumber(payload)) .. sub(rec, 24)
end
call('HSET', replicas, id, rec)
local entry = append(log, ARGV[6], head[1], 'S', what == 'A' and 0 or 3, u16(#id) .. id .. rec)
call('HSET', KEYS[1], 'l', entry)
if what ~= 'A' then call('HSET', KEYS[1], 'v', entry) end
if newnumber then call('HSET', KEYS[1], 'n', number) end
if not head[3] then call('HSET', KEYS[1], 't', ARGV[2], 'm', ARGV[3]) end
prolong(keyttl, KEYS[1], replicas, log)
return {now + EPOCH, number, u40_at(rec, 4), unreadable and 1 or 0}

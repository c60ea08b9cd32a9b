-- Records that a connection was closed.
-- KEYS: the count, the members, and the timer if it is in the same slot.
-- ARGV: the connection, the idle timeout in milliseconds, and whether the timer is set.
-- Returns 0 if it is unknown (or has already expired), 1 if it is closed, and 2 if it is the
-- last one and the timer, which is in another slot, has to be set first: nothing was changed.
local key, members, timer = KEYS[1], KEYS[2], KEYS[3]
local now, idle = present(), tonumber(ARGV[2])
if tonumber(redis.call('ZSCORE', members, ARGV[1]) or 0) <= now then
  return 0
end
local count = tonumber(redis.call('GET', key) or 0)
if not count then
  return redis.error_reply('ERR ' .. key .. ' holds no number')
end
count = math.max(count, redis.call('ZCARD', members))
count = count - redis.call('ZCOUNT', members, '-inf', now) - 1
if count == 0 and not timer and ARGV[3] ~= '1' then
  return 2
end
redis.call('ZREMRANGEBYSCORE', members, '-inf', now)
redis.call('ZREM', members, ARGV[1])
if count > 0 then
  keep(key, members, count, idle, now)
else
  redis.call('DEL', key, members)
  if timer then
    redis.call('SET', timer, '1', 'PX', idle)
  end
end
return 1

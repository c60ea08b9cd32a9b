-- Records that a connection is open: it was opened, or sent a heartbeat.
-- KEYS: the count, the members, and the timer if it is in the same slot.
-- ARGV: the connection, the heartbeat timeout and the idle timeout in milliseconds.
-- Returns 1 if it was unknown, 0 otherwise.
local key, members, timer = KEYS[1], KEYS[2], KEYS[3]
local now = present()
local count = tonumber(redis.call('GET', key) or 0)
if not count then
  return redis.error_reply('ERR ' .. key .. ' holds no number')
end
count = math.max(count, redis.call('ZCARD', members))
count = count - redis.call('ZREMRANGEBYSCORE', members, '-inf', now)
local new = redis.call('ZADD', members, now + ARGV[2], ARGV[1])
keep(key, members, count + new, tonumber(ARGV[3]), now)
if timer then
  redis.call('DEL', timer)
end
return new

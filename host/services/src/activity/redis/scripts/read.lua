-- Reads the state of one key.
-- KEYS: the count, the members, and the timer if it is in the same slot.
-- ARGV: the idle timeout in milliseconds.
-- Returns 0 for nothing, 1 for a connection, 2 for a running timer, 3 for an invalid count.
local key, members, timer = KEYS[1], KEYS[2], KEYS[3]
local raw = redis.pcall('GET', key)
local count = type(raw) ~= 'table' and tonumber(raw or 0)
if not count then
  return 3
end
local ours = redis.call('ZCARD', members)
if ours > 0 then
  local now = present()
  local ends = last_end(members)
  if count > ours and redis.call('PTTL', key) >= 0 then
    -- Another proxy has counted into a key that was to expire with Besom's connections.
    redis.call('PERSIST', key)
    redis.call('PERSIST', members)
  end
  if count > ours or now < ends then
    return 1
  end
  if now < ends + tonumber(ARGV[1]) then
    return 2
  end
  redis.call('DEL', key, members)
  count = 0
end
if count > 0 then
  return 1
end
if timer and redis.call('EXISTS', timer) == 1 then
  return 2
end
return 0

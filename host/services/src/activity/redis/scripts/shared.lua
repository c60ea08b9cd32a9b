-- Prepended to every script. The count is the key that every proxy writes: `ws_conn:ID`. The
-- members are Besom's own connections, each with the time at which it expires without a
-- heartbeat, in milliseconds.

local function present()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function last_end(members)
  return tonumber(redis.call('ZREVRANGE', members, 0, 0, 'WITHSCORES')[2])
end

-- Writes the count. If it consists of Besom's connections only, it expires when the last of them
-- would be idle, and the members a little later; the expiry of another proxy's share is unknown.
local function keep(key, members, count, idle, now)
  local ours = redis.call('ZCARD', members)
  redis.call('SET', key, count)
  if ours == 0 then
    return
  end
  if count == ours then
    local lasts = last_end(members) - now + idle
    redis.call('PEXPIRE', key, lasts)
    redis.call('PEXPIRE', members, lasts + 1000)
  else
    redis.call('PERSIST', members)
  end
end

-- Before every script. The count is what every proxy writes: `ws_conn:ID`. The members are
-- our own connections of it, each with the millisecond at which it ends unless it is heard of.

local function present()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function last_end(members)
  return tonumber(redis.call('ZREVRANGE', members, 0, 0, 'WITHSCORES')[2])
end

-- Writes the count. Where all of it is ours, it ends by itself when the last of ours would be
-- idle, and the members a little later; another proxy's share has no end that we know of.
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

-- Checks whether this server has kept everything that was written to it, and since when.
-- KEYS: the marker.
-- ARGV: how many milliseconds may pass unobserved, and whether a host listens.
-- Returns for how many milliseconds (-1: not at all), and what interrupted the observation.
local function said(section, name)
  return string.match(redis.call('INFO', section), name .. ':([^\r\n]+)') or ''
end

local now, gap, listening = present(), tonumber(ARGV[1]), ARGV[2] == '1'
if said('replication', 'role') ~= 'master' then
  return { -1, 'replica' }
end
-- A restart has a new run id, and a failover a new replication id.
local server = said('server', 'run_id') .. ' ' .. said('replication', 'master_replid')
local evicted = said('stats', 'evicted_keys')
local marker = redis.call('HMGET', KEYS[1], 'server', 'evicted', 'since', 'heard')
local since, heard = tonumber(marker[3] or ''), tonumber(marker[4] or '')
local broken = ''
if not since or not heard then
  broken = 'new'
elseif marker[1] ~= server then
  broken = 'restarted'
elseif marker[2] ~= evicted then
  broken = 'evicted'
elseif now < heard or now - heard > gap then
  broken = 'unobserved'
end
if not listening then
  return { broken == '' and now - since or -1, broken }
end
if broken ~= '' then
  since = now
end
redis.call('HSET', KEYS[1], 'server', server, 'evicted', evicted, 'since', since, 'heard', now)
return { now - since, broken }

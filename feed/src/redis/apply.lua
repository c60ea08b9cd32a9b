-- Applies the messages of a key: see redis.rs. Nothing here is rolled back, so the position is written before
-- the output: if Redis lacks memory or replicas, it refuses this first write.
local kept, at = KEYS[1], 0
local function take()
    at = at + 1
    return ARGV[at]
end

local before = take()
local last, offset, recent, time = take(), take(), take(), take()
local found = redis.call('HGET', kept, 'last') or '0'
if before ~= '' and tonumber(found) < tonumber(before) then
    return {'behind', found, redis.call('HGET', kept, 'offset') or '-1'}
end

for item = 1, tonumber(take()) do
    local kind, number, partition, place = take(), take(), take(), take()
    local commands = {}
    for one = 1, tonumber(take()) do
        commands[one] = {}
        for word = 1, tonumber(take()) do
            commands[one][word] = take()
        end
        commands[one][2] = KEYS[tonumber(commands[one][2])]
    end
    -- How far the key was taken: by numbers, by the offsets of a partition, or not at all by this message.
    local field, value, former = 'last', number, nil
    if number == '0' then
        field, value = 'read:' .. partition, place
    end
    if number ~= '' then
        former = redis.call('HGET', kept, field) or '-1'
    end
    if not former or tonumber(former) < tonumber(value) then
        local name = partition .. ':' .. place
        if kind == 'message' and redis.call('HGET', kept, 'refused') == name then
            return {'refused', tostring(item), redis.call('HGET', kept, 'why')}
        end
        if former then
            redis.call('HSET', kept, field, value)
        end
        for one, words in ipairs(commands) do
            if kind == 'letter' then
                redis.call(unpack(words))
            else
                local answer = redis.pcall(unpack(words))
                if type(answer) == 'table' and answer.err then
                    if former == '-1' then
                        redis.call('HDEL', kept, field)
                    else
                        redis.call('HSET', kept, field, former)
                    end
                    local why = 'Redis refuses ' .. words[1] .. ', its command ' .. one .. ' of ' .. #commands
                        .. ': ' .. answer.err
                    -- A permission can be granted.
                    local again = string.find(answer.err, 'NOPERM')
                        or string.find(answer.err, 'user executing the script')
                    if one == 1 and again then
                        return {'again', '', why}
                    end
                    redis.call('HSET', kept, 'refused', name, 'why', why)
                    return {'refused', tostring(item), why}
                end
            end
        end
        if kind == 'letter' and redis.call('HGET', kept, 'refused') == name then
            redis.call('HDEL', kept, 'refused', 'why')
        end
    else
        -- It was applied by a former connection, whose writes the replicas may not have. WAIT covers only what
        -- its own connection has written, so this one writes the same again.
        redis.call('HSET', kept, field, former)
    end
end
if last ~= '' and redis.call('HGET', kept, 'last') == last then
    redis.call('HSET', kept, 'offset', offset, 'recent', recent, 'of', last, 'time', time)
end
return {'done', '', ''}

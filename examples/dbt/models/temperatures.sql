SELECT split_part(topic, '/', 2) AS floor, split_part(topic, '/', 3) AS room, changed_at,
    try_cast(try(decode(payload)) AS double) AS degrees
FROM {{ source('lake', 'changes') }}
WHERE op = 'set' AND topic LIKE 'hq/%/climate/temperature'

SELECT floor, room, max(changed_at) AS newest
FROM {{ ref('temperatures') }}
GROUP BY ALL
HAVING newest < (SELECT max(changed_at) FROM {{ source('lake', 'changes') }}) - INTERVAL 6 HOUR

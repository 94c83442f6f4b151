SELECT floor, date_trunc('hour', changed_at AT TIME ZONE 'UTC') AS hour, count(*) AS measurements,
    round(avg(degrees), 1) AS degrees
FROM {{ ref('temperatures') }}
GROUP BY ALL

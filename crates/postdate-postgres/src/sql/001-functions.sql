CREATE OR REPLACE FUNCTION {schedule}(
    endpoint text,
    destination text,
    body bytea,
    due timestamptz DEFAULT NULL,
    headers jsonb DEFAULT NULL,
    id text DEFAULT gen_random_uuid()::text,
    delay interval DEFAULT NULL
) RETURNS text LANGUAGE plpgsql AS {quotes}
DECLARE
    -- Parameters have the names of columns, which the statements below mean without these.
    its_endpoint int4;
    its_headers bytea := coalesce(convert_to(nullif($5, jsonb_build_object())::text, 'UTF8'), ''::bytea);
    -- A delay counts from now; what was asked for is kept only where it is an instant, and compared only then.
    its_due timestamptz := coalesce($4, statement_timestamp() + coalesce($7, interval '0'));
BEGIN
    SELECT e.id INTO its_endpoint FROM {endpoint} e WHERE e.name = $1;
    IF its_endpoint IS NULL THEN
        RAISE EXCEPTION 'endpoint "%" has not been set up', $1 USING HINT = 'Run "postdate setup --endpoint NAME".';
    END IF;
    IF $6 IS NULL OR char_length($6) NOT BETWEEN 1 AND 250 OR $6 ~ '[\x01-\x1f\x7f\u0080-\u009f]' THEN
        RAISE EXCEPTION 'the id has 1 to 250 characters, none of them a control character';
    END IF;
    IF $2 IS NULL OR char_length($2) NOT BETWEEN 1 AND 200 OR $2 ~ '[\x01-\x1f\x7f\u0080-\u009f]' THEN
        RAISE EXCEPTION 'the destination has 1 to 200 characters, none of them a control character';
    END IF;
    IF $5 IS NOT NULL AND (jsonb_typeof($5) <> 'object'
        OR EXISTS (SELECT 1 FROM jsonb_each($5) h WHERE jsonb_typeof(h.value) <> 'string'))
    THEN
        RAISE EXCEPTION 'headers are one JSON object of strings';
    END IF;
    IF $4 IS NOT NULL AND $7 IS NOT NULL THEN
        RAISE EXCEPTION 'a message has a due time or a delay, not both';
    END IF;
    IF octet_length(its_headers) + octet_length(coalesce($3, ''::bytea)) > 33554432 THEN
        RAISE EXCEPTION 'the message is larger than 32 MiB; store its content elsewhere';
    END IF;
    IF NOT its_due BETWEEN '4713-01-01 BC' AND '9999-12-30T22:00:00Z' THEN
        RAISE EXCEPTION 'the due time is beyond the end of time, the year 9999';
    END IF;
    INSERT INTO {message} AS m (endpoint, attempt_at, due, asked, id, destination, headers, body)
    VALUES (its_endpoint, its_due, its_due, $4, $6, $2, its_headers, coalesce($3, ''::bytea))
    ON CONFLICT DO NOTHING;
    IF NOT FOUND AND NOT EXISTS (
        SELECT 1 FROM {message} m WHERE m.endpoint = its_endpoint AND m.id = $6 AND m.destination = $2
            AND m.headers = its_headers AND m.body = coalesce($3, ''::bytea)
            AND (m.asked IS NULL OR $4 IS NULL OR m.asked = $4))
    THEN
        RAISE EXCEPTION 'message "%" is there already with different content', $6 USING ERRCODE = 'unique_violation';
    END IF;
    -- Sent when the transaction commits. Dispatchers look at least once a minute without being told.
    IF its_due < statement_timestamp() + interval '60 seconds' THEN
        PERFORM pg_notify({channel}, '0 e' || its_endpoint || ' '
            || (extract(epoch FROM its_due) * 1000000)::int8 - 946684800000000);
    END IF;
    RETURN $6;
END
{quotes};

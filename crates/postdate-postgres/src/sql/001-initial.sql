CREATE TABLE IF NOT EXISTS {version} (version int4 NOT NULL);

CREATE TABLE IF NOT EXISTS {endpoint} (
    id int4 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE
);

-- `attempt_at` is the due time, or the retry time after a failure, or 'infinity' for a row that cannot be read.
-- `asked` is the absolute due time that the sender gave, kept to tell a repeated call from a conflict.
CREATE TABLE IF NOT EXISTS {message} (
    seq int8 GENERATED ALWAYS AS IDENTITY,
    attempt_at timestamptz NOT NULL,
    due timestamptz NOT NULL,
    asked timestamptz,
    endpoint int4 NOT NULL,
    failures int4 NOT NULL DEFAULT 0,
    id text COLLATE "C" NOT NULL,
    destination text COLLATE "C" NOT NULL,
    headers bytea NOT NULL,
    body bytea NOT NULL,
    last_error text,
    PRIMARY KEY (endpoint, id)
){storage};

-- What is due is found from the front of this index, and what is due later is never read.
CREATE INDEX IF NOT EXISTS {-message_order} ON {message} (endpoint, attempt_at, seq);

CREATE TABLE IF NOT EXISTS {queue} (
    id int4 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE
);

-- `lock` is the token of the receiver that holds the message until `locked_until`. Neither is in an index, so that
-- receiving changes none.
CREATE TABLE IF NOT EXISTS {queue_message} (
    seq int8 GENERATED ALWAYS AS IDENTITY,
    enqueued timestamptz NOT NULL DEFAULT statement_timestamp(),
    locked_until timestamptz NOT NULL DEFAULT '-infinity',
    lock int8 NOT NULL DEFAULT 0,
    queue int4 NOT NULL,
    deliveries int4 NOT NULL DEFAULT 0,
    id text COLLATE "C" NOT NULL,
    headers bytea NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (queue, seq)
){storage};

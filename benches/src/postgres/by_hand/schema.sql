CREATE TABLE message (
    seq INT8 GENERATED ALWAYS AS IDENTITY,
    attempt_at TIMESTAMPTZ NOT NULL,
    due TIMESTAMPTZ NOT NULL,
    asked TIMESTAMPTZ,
    endpoint INT4 NOT NULL,
    failures INT4 NOT NULL DEFAULT 0,
    id TEXT COLLATE "C" NOT NULL,
    destination TEXT COLLATE "C" NOT NULL,
    headers BYTEA NOT NULL,
    body BYTEA NOT NULL,
    last_error TEXT,
    PRIMARY KEY (endpoint, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX message_order ON message (endpoint, attempt_at, seq);

CREATE TABLE queue_message (
    seq INT8 GENERATED ALWAYS AS IDENTITY,
    enqueued TIMESTAMPTZ NOT NULL DEFAULT statement_timestamp(),
    locked_until TIMESTAMPTZ NOT NULL DEFAULT '-infinity',
    lock INT8 NOT NULL DEFAULT 0,
    queue INT4 NOT NULL,
    deliveries INT4 NOT NULL DEFAULT 0,
    id TEXT COLLATE "C" NOT NULL,
    headers BYTEA NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (queue, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);

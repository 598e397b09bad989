CREATE TABLE message (
    endpoint INTEGER NOT NULL,
    attempt_at TIMESTAMPTZ NOT NULL,
    seq BIGINT GENERATED ALWAYS AS IDENTITY,
    due TIMESTAMPTZ NOT NULL,
    asked TIMESTAMPTZ NOT NULL,
    failures INTEGER NOT NULL DEFAULT 0,
    id TEXT COLLATE "C" NOT NULL,
    destination TEXT NOT NULL,
    headers BYTEA NOT NULL,
    body BYTEA NOT NULL,
    last_error TEXT,
    PRIMARY KEY (endpoint, id)
);
CREATE INDEX message_due ON message (endpoint, attempt_at, seq);

CREATE TABLE message (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    destination TEXT NOT NULL,
    due INTEGER NOT NULL,
    headers BLOB NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX message_due ON message (due, seq);

CREATE TABLE queued (
    seq INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    id TEXT NOT NULL,
    headers BLOB NOT NULL,
    body BLOB NOT NULL
);
-- Without it a queue could not be received from beside others.
CREATE INDEX queued_order ON queued (queue, seq);

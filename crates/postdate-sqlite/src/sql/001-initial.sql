CREATE TABLE endpoint (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

-- Times are microseconds since 1970. `attempt_at` is the due time, or the retry time after a failure.
-- `asked` is the absolute due time that the sender gave, kept to tell a repeated call from a conflict.
CREATE TABLE message (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    endpoint INTEGER NOT NULL,
    attempt_at INTEGER NOT NULL,
    due INTEGER NOT NULL,
    asked INTEGER,
    failures INTEGER NOT NULL DEFAULT 0,
    last_error TEXT,
    id TEXT NOT NULL,
    destination TEXT NOT NULL,
    headers BLOB NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (endpoint, id)
) STRICT;

-- The search for due messages reads this index alone, past whatever is held or excepted.
CREATE INDEX message_attempt ON message (endpoint, attempt_at, seq, destination);

CREATE TABLE queue (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE
) STRICT;

-- `lock` is the token of the receiver that holds the message until `locked_until`. What is read to skip a
-- held message stands before the blobs, so that skipping does not read them.
CREATE TABLE queue_message (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    queue INTEGER NOT NULL,
    locked_until INTEGER NOT NULL DEFAULT 0,
    lock INTEGER NOT NULL DEFAULT 0,
    deliveries INTEGER NOT NULL DEFAULT 0,
    enqueued INTEGER NOT NULL,
    id TEXT NOT NULL,
    headers BLOB NOT NULL,
    body BLOB NOT NULL
) STRICT;

-- With the id in it, a search by id reads this index alone, and inserting appends to it in order: an index
-- that begins with the id would be written all over.
CREATE INDEX queue_message_order ON queue_message (queue, seq, id);

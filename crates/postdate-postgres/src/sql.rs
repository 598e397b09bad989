//! All statements, each named by what it does. Names of tables stand in braces; see [`Names::fill`].

#[cfg(test)]
mod early_plans;
#[cfg(test)]
mod plans;

use std::sync::Arc;

use sqlx::{AssertSqlSafe, Postgres, postgres::PgArguments, query::Query};

use crate::{names::Names, receive_claim::LEASE, server::Engine};

/// A statement for a query: its names were quoted when it was filled in, and values are bound.
pub(crate) fn query(statement: &Arc<str>) -> Query<'static, Postgres, PgArguments> {
    sqlx::query(AssertSqlSafe(Arc::clone(statement)))
}

/// Messages, bound as columns, as rows of their table.
const ROWS: &str = "
            SELECT i.endpoint, d.due, d.due, i.asked, i.id, i.destination, i.headers, i.body
            FROM unnest($1::int4[], $2::timestamptz[], $3::interval[], $4::text[], $5::text[], $6::bytea[],
                    $7::bytea[]) WITH ORDINALITY AS i (endpoint, asked, delay, id, destination, headers, body, n),
                LATERAL (SELECT coalesce(i.asked, statement_timestamp() + i.delay) AS due) d
            {in order}";

/// That the destination is none of some.
///
/// Of `destination <> ALL(..)` the planner expects that it leaves nothing where most messages go to one destination, and
/// then it would rather sort the whole table than follow the index. This it takes for true.
fn not_among(parameter: &str) -> String {
    format!("nullif(destination = ANY({parameter}), true) IS NOT NULL")
}

macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $template:expr;)*) => {
        /// The statements with the names of one place in them.
        #[derive(Debug)]
        pub(crate) struct Statements {
            $($(#[$doc])* pub(crate) $name: Arc<str>,)*
        }

        impl Statements {
            pub(crate) fn new(names: &Names, engine: Engine) -> Self {
                Self { $($name: names.fill(&for_engine($template, engine)).into(),)* }
            }
        }
    };
}

/// What engines do differently.
fn for_engine(template: &str, engine: Engine) -> String {
    let in_order = if engine.inserts_in_order() { "" } else { "ORDER BY i.n" };
    let (place, of_places, is_untouched) = if engine.has_places() {
        ("ctid", "ctid = ANY($1)", IS_UNTOUCHED)
    } else {
        ("NULL::tid", "endpoint = $2 AND id = ANY($1)", "$8::bool IS NOT NULL")
    };
    let mut statement = template
        .replace("{rows}", ROWS)
        .replace("{in order}", in_order)
        .replace("{place}", place)
        .replace("{of places}", of_places)
        .replace("{is untouched}", is_untouched)
        .replace("{is free}", IS_FREE)
        .replace("{lease}", &format!("interval '{} s'", LEASE.as_secs()));
    for parameter in ["$2", "$3", "$4"] {
        statement = statement.replace(&format!("{{not among {parameter}}}"), &not_among(parameter));
    }
    statement
}

/// Nobody has ever locked the row, unless `$8`. To skip a locked row otherwise is to try two locks on it: with several
/// dispatchers that costs more than all the rest. The planner thinks that hardly any row has no `xmax`, and would
/// sort the table; it knows nothing of a `coalesce`.
const IS_UNTOUCHED: &str = "coalesce($8 OR xmax = '0'::xid, false)";

/// Of a queued message: it has no lease, or one that ran out, or one that cannot be true, since the server's clock was
/// set back. What was put aside for ever is not free.
const IS_FREE: &str = "locked_until NOT BETWEEN statement_timestamp() AND statement_timestamp() + 2 * {lease}
                AND locked_until < 'infinity'";

statements! {
    /// The version of the tables.
    version = "SELECT version FROM {version}";
    /// The number of an endpoint.
    endpoint = "SELECT id FROM {endpoint} WHERE name = $1";
    /// A new endpoint.
    add_endpoint = "INSERT INTO {endpoint} (name) VALUES ($1) ON CONFLICT (name) DO NOTHING";

    /// Stores messages, none of which is there yet. Answers with the time that relative delays were counted from.
    store_new = "
        WITH stored AS (
            INSERT INTO {message} (endpoint, attempt_at, due, asked, id, destination, headers, body)
            {rows})
        SELECT statement_timestamp()";
    /// Stores those of some messages that are not there yet. Answers with the time that relative delays were counted
    /// from and, unless all of so many were new, with those that were.
    store = "
        WITH stored AS (
            INSERT INTO {message} (endpoint, attempt_at, due, asked, id, destination, headers, body)
            {rows}
            ON CONFLICT (endpoint, id) DO NOTHING
            RETURNING endpoint, id)
        SELECT statement_timestamp(),
            array_agg(endpoint::text || ' ' || id) FILTER (WHERE (SELECT count(*) FROM stored) < $8),
            (SELECT count(*) FROM stored) = $8
        FROM stored";
    /// Which of some messages are there, when they are due, and whether they are the same. Due times are compared as
    /// they were asked for, and only where both were absolute.
    compare = "
        SELECT i.n, m.due,
            m.destination = i.destination AND m.headers = i.headers AND m.body = i.body
                AND (m.asked IS NULL OR i.asked IS NULL OR m.asked = i.asked)
        FROM unnest($1::int4[], $2::timestamptz[], $3::interval[], $4::text[], $5::text[], $6::bytea[],
                $7::bytea[]) WITH ORDINALITY AS i (endpoint, asked, delay, id, destination, headers, body, n)
        JOIN {message} m ON m.endpoint = i.endpoint AND m.id = i.id";

    /// Takes back what was stored in this transaction.
    take_back = "
        DELETE FROM {message} m USING unnest($1::int4[], $2::text[]) AS i (endpoint, id)
        WHERE m.endpoint = i.endpoint AND m.id = i.id";

    /// Locks what is due and free, from a place on, in order, up to a number and a size. Answers with the time, if
    /// with nothing else. What others hold or have given back is left out unless it is asked for.
    fetch = "
        SELECT t.now, d.* FROM (SELECT statement_timestamp() AS now) t LEFT JOIN (
            SELECT * FROM (
                SELECT l.*, sum(size) OVER (ROWS UNBOUNDED PRECEDING) - size AS before FROM (
                    SELECT seq, {place} AS place, attempt_at, due, failures, destination, id, headers, body,
                        octet_length(headers)::int8 + octet_length(body) AS size
                    FROM {message}
                    WHERE endpoint = $1 AND attempt_at <= statement_timestamp() AND (attempt_at, seq) > ($2, $3)
                        AND {not among $4} AND seq <> ALL($5) AND {is untouched}
                    ORDER BY attempt_at, seq LIMIT $6 FOR UPDATE SKIP LOCKED) l) c
            WHERE before < $7) d ON true";
    /// Whether anything else was due at a time, free or not.
    more_due = "
        SELECT (SELECT seq FROM {message}
            WHERE endpoint = $1 AND attempt_at <= $2 AND {not among $3} AND seq <> ALL($4)
            ORDER BY attempt_at, seq LIMIT 1) IS NOT NULL";
    /// Puts rows aside that have no message in them. They stay in listings and can be cancelled.
    quarantine = "
        UPDATE {message} m SET attempt_at = 'infinity', last_error = q.reason
        FROM unnest($2::int8[], $3::text[]) AS q (seq, reason)
        WHERE m.endpoint = $1 AND m.attempt_at <= statement_timestamp() AND m.seq = q.seq";
    /// Removes what a claim holds.
    remove = "DELETE FROM {message} WHERE {of places}";
    /// Counts failed attempts of what a claim holds.
    count_failures = "
        UPDATE {message} m SET failures = least(m.failures, 2147483646) + 1,
            attempt_at = least(statement_timestamp() + f.delay, '9999-12-30T22:00:00Z'), last_error = f.error
        FROM unnest($2::text[], $3::interval[], $4::text[]) AS f (id, delay, error)
        WHERE m.endpoint = $1 AND m.id = f.id";

    /// The earliest attempt of what is due and free, or else of what is due later, and the time.
    ///
    /// Only what is due can be held. The lock is one that keeps nobody from cancelling.
    next_due = "
        SELECT statement_timestamp(), coalesce(
            (SELECT attempt_at FROM {message}
                WHERE endpoint = $1 AND attempt_at <= statement_timestamp() AND {not among $2}
                ORDER BY attempt_at, seq LIMIT 1 FOR KEY SHARE SKIP LOCKED),
            (SELECT nullif(attempt_at, 'infinity') FROM {message}
                WHERE endpoint = $1 AND attempt_at > statement_timestamp() AND {not among $2}
                ORDER BY attempt_at, seq LIMIT 1))";

    /// One message. It is held if it is due and its lock is not to be had.
    get = "
        SELECT m.attempt_at, m.due, m.failures, m.last_error, m.destination, m.id, m.headers, m.body,
            m.attempt_at <= statement_timestamp() AND NOT EXISTS (
                SELECT 1 FROM (SELECT 1 FROM {message} f WHERE f.endpoint = $1 AND f.id = $2
                    FOR KEY SHARE SKIP LOCKED) free)
        FROM {message} m WHERE m.endpoint = $1 AND m.id = $2";
    /// A page of messages. A prefix is compared by its letters: nothing in it has a meaning of its own.
    list = "
        WITH page AS MATERIALIZED (
            SELECT seq, attempt_at, due, failures, last_error, destination, id, octet_length(body) AS body_bytes
            FROM {message}
            WHERE endpoint = $1 AND (attempt_at, seq) > ($2, $3)
                AND ($4::text IS NULL OR destination = $4) AND ($5::text IS NULL OR starts_with(id, $5))
                AND due >= $6 AND ($7::timestamptz IS NULL OR due < $7) AND greatest(failures, 0) >= $8
            ORDER BY attempt_at, seq LIMIT $9),
        free AS MATERIALIZED (
            SELECT m.seq FROM {message} m JOIN page p ON m.endpoint = $1 AND m.id = p.id
            WHERE p.attempt_at <= statement_timestamp() FOR KEY SHARE OF m SKIP LOCKED)
        SELECT p.*, p.attempt_at <= statement_timestamp() AND f.seq IS NULL
        FROM page p LEFT JOIN free f ON f.seq = p.seq ORDER BY p.attempt_at, p.seq";
    /// Counts. What dispatchers hold is among the first that are due.
    stats = "
        WITH due AS MATERIALIZED (
            SELECT seq FROM {message} WHERE endpoint = $1 AND attempt_at <= statement_timestamp()
            ORDER BY attempt_at, seq LIMIT $2),
        free AS MATERIALIZED (
            SELECT seq FROM {message} WHERE endpoint = $1 AND attempt_at <= statement_timestamp()
            ORDER BY attempt_at, seq LIMIT $2 FOR KEY SHARE SKIP LOCKED)
        SELECT count(*), count(*) FILTER (WHERE attempt_at <= statement_timestamp()),
            (SELECT count(*) FROM due WHERE seq NOT IN (SELECT seq FROM free)),
            count(*) FILTER (WHERE failures > 0),
            min(due) FILTER (WHERE attempt_at <= statement_timestamp()),
            min(attempt_at) FILTER (WHERE attempt_at > statement_timestamp() AND attempt_at < 'infinity'),
            statement_timestamp()
        FROM {message} WHERE endpoint = $1";
    /// Deletes what no claim holds, and says of each whether it did and whether it was there.
    ///
    /// The lock is weaker than a claim's, so that looking at a message does not keep it from being cancelled.
    cancel = "
        WITH free AS MATERIALIZED (
            SELECT id FROM {message} WHERE endpoint = $1 AND id = ANY($2) FOR NO KEY UPDATE SKIP LOCKED),
        gone AS (
            DELETE FROM {message} m USING free f WHERE m.endpoint = $1 AND m.id = f.id RETURNING m.id)
        SELECT m.id, g.id IS NOT NULL
        FROM {message} m LEFT JOIN gone g ON g.id = m.id WHERE m.endpoint = $1 AND m.id = ANY($2)";
    /// Gives a message that no claim holds another time, and says when and whether it was there.
    reschedule = "
        WITH free AS MATERIALIZED (
            SELECT id FROM {message} WHERE endpoint = $1 AND id = $2 FOR NO KEY UPDATE SKIP LOCKED),
        moved AS (
            UPDATE {message} m SET due = d.due, attempt_at = d.due
            FROM free f, (SELECT coalesce($3, statement_timestamp() + $4) AS due) d
            WHERE m.endpoint = $1 AND m.id = f.id RETURNING m.due)
        SELECT (SELECT due FROM moved), EXISTS (SELECT 1 FROM {message} WHERE endpoint = $1 AND id = $2),
            statement_timestamp()";
    /// Tells other handles.
    notify = "SELECT pg_notify($1, p) FROM unnest($2::text[]) AS p";

    /// The number of a queue.
    queue = "SELECT id FROM {queue} WHERE name = $1";
    /// A new queue. Looks first, or every call would use up a number.
    add_queue = "
        INSERT INTO {queue} (name) SELECT $1 WHERE NOT EXISTS (SELECT 1 FROM {queue} WHERE name = $1)
        ON CONFLICT (name) DO NOTHING";
    /// All queues, how many messages are in them, and when the first of those arrived.
    list_queues = "
        SELECT q.name, (SELECT count(*) FROM {queue_message} m WHERE m.queue = q.id),
            (SELECT m.enqueued FROM {queue_message} m WHERE m.queue = q.id ORDER BY m.seq LIMIT 1)
        FROM {queue} q ORDER BY q.name";
    /// The last message of a queue.
    last_queued = "SELECT max(seq) FROM {queue_message} WHERE queue = $1";
    /// Removes so many that nobody holds and that stand after one place and not after another. Answers with how many
    /// those were and where the last of them stood.
    purge = "
        WITH gone AS (
            DELETE FROM {queue_message} WHERE queue = $1 AND seq = ANY(ARRAY(
                SELECT seq FROM {queue_message}
                WHERE queue = $1 AND seq > $2 AND seq <= $3 AND ({is free} OR locked_until = 'infinity')
                ORDER BY seq LIMIT $4 FOR UPDATE SKIP LOCKED))
            RETURNING seq)
        SELECT count(*), max(seq) FROM gone";
    /// The messages after a place.
    browse = "
        SELECT seq, enqueued, deliveries, id, headers, body FROM {queue_message}
        WHERE queue = $1 AND seq > $2 ORDER BY seq LIMIT $3";
    /// Puts messages at the ends of queues, which they name by their places in a list of names. Answers with the numbers
    /// of those queues: what names a queue that is not there is left out.
    send = "
        WITH known AS MATERIALIZED (
            SELECT array_agg(q.id ORDER BY n.n) AS ids
            FROM unnest($1::text[]) WITH ORDINALITY AS n (name, n) LEFT JOIN {queue} q ON q.name = n.name),
        sent AS (
            INSERT INTO {queue_message} (queue, id, headers, body)
            SELECT (SELECT ids FROM known)[i.name], i.id, i.headers, i.body
            FROM unnest($2::int4[], $3::text[], $4::bytea[], $5::bytea[]) WITH ORDINALITY
                AS i (name, id, headers, body, n)
            WHERE (SELECT ids FROM known)[i.name] IS NOT NULL
            {in order})
        SELECT ids FROM known";

    /// Takes what is free, or of that what has one of some ids, in order, up to a number and a size.
    ///
    /// The array is for the planner, which has no idea how many there will be: joined, it would read the whole table.
    /// No disk is waited for: a crash of the server may only free messages early, and the token fences who had them.
    receive = "
        WITH free AS MATERIALIZED (
            SELECT seq, octet_length(headers)::int8 + octet_length(body) AS size FROM {queue_message}
            WHERE queue = $1 AND {is free} AND ($3::text[] IS NULL OR id = ANY($3))
            ORDER BY seq LIMIT $4 FOR UPDATE SKIP LOCKED)
        UPDATE {queue_message} SET locked_until = statement_timestamp() + {lease}, lock = $2,
            deliveries = least(greatest(deliveries, 0), 2147483646) + 1
        WHERE queue = $1 AND seq = ANY(ARRAY(
            SELECT seq FROM (
                SELECT seq, sum(size) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING) - size AS before FROM free) f
            WHERE before < $5))
            AND (SELECT set_config('synchronous_commit', 'off', true)) = 'off'
        RETURNING seq, enqueued, deliveries - 1, id, headers, body, statement_timestamp()";
    /// For a receiver that got nothing: whether anything is free nevertheless, when the first lease ends, and the time.
    look = "
        SELECT coalesce(bool_or({is free} AND ($2::text[] IS NULL OR id = ANY($2))), false),
            min(locked_until) FILTER (WHERE NOT ({is free})), statement_timestamp()
        FROM {queue_message} WHERE queue = $1 AND locked_until < 'infinity'";
    /// Puts received rows aside that have no message in them. They count in the depth and can be purged.
    put_aside = "
        UPDATE {queue_message} SET locked_until = 'infinity', lock = 0
        WHERE queue = $1 AND seq = ANY($2) AND lock = $3 RETURNING seq";
    /// Removes what a receiver holds.
    complete = "DELETE FROM {queue_message} WHERE queue = $1 AND seq = ANY($2) AND lock = $3 RETURNING seq";
    /// Gives back what a receiver holds.
    abandon = "
        UPDATE {queue_message} SET locked_until = '-infinity', lock = 0
        WHERE queue = $1 AND seq = ANY($2) AND lock = $3 RETURNING seq";
    /// Gives it back as if it had never been received.
    undo_receive = "
        UPDATE {queue_message} SET locked_until = '-infinity', lock = 0, deliveries = deliveries - 1
        WHERE queue = $1 AND seq = ANY($2) AND lock = $3 RETURNING seq";
    /// Moves what a receiver holds to the end of a queue of this name, in the order of the positions. Answers with
    /// the queue's number, if it is there, and what was moved.
    move_to = "
        WITH target AS MATERIALIZED (SELECT id FROM {queue} WHERE name = $4),
        gone AS (
            DELETE FROM {queue_message}
            WHERE queue = $1 AND seq = ANY($2) AND lock = $3 AND EXISTS (SELECT 1 FROM target)
            RETURNING seq, id, headers, body),
        moved AS (
            INSERT INTO {queue_message} (queue, id, headers, body)
            SELECT (SELECT id FROM target), g.id, g.headers, g.body
            FROM unnest($2) WITH ORDINALITY AS p (seq, n) JOIN gone g ON g.seq = p.seq ORDER BY p.n)
        SELECT (SELECT id FROM target), ARRAY(SELECT seq FROM gone)";
    /// Holds on to all of so many, or to none of them.
    renew = "
        WITH held AS MATERIALIZED (
            SELECT seq FROM {queue_message} WHERE queue = $1 AND seq = ANY($2) AND lock = $3 FOR UPDATE)
        UPDATE {queue_message} SET locked_until = statement_timestamp() + {lease}
        WHERE queue = $1 AND seq = ANY($2) AND lock = $3 AND (SELECT count(*) FROM held) = cardinality($2)";

    /// Takes a lock that lasts as long as the transaction, and says whether it was to be had.
    lock_in_transaction = "SELECT pg_try_advisory_xact_lock($1)";
}

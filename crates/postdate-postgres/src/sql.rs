//! All statements, each named by what it does. Names of tables stand in braces; see [`Names::fill`].

use std::sync::Arc;

use sqlx::{AssertSqlSafe, Postgres, postgres::PgArguments, query::Query};

use crate::{names::Names, server::Engine};

/// A statement for a query: its names were quoted when it was filled in, and values are bound.
pub(crate) fn query(statement: &Arc<str>) -> Query<'static, Postgres, PgArguments> {
    sqlx::query(AssertSqlSafe(Arc::clone(statement)))
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
    let (place, of_places) = if engine.has_places() {
        ("ctid", "ctid = ANY($1)")
    } else {
        ("NULL::tid", "endpoint = $2 AND id = ANY($1)")
    };
    template.replace("{in order}", in_order).replace("{place}", place).replace("{of places}", of_places)
}

statements! {
    /// The version of the tables.
    version = "SELECT version FROM {version}";
    /// The number of an endpoint.
    endpoint = "SELECT id FROM {endpoint} WHERE name = $1";
    /// A new endpoint.
    add_endpoint = "INSERT INTO {endpoint} (name) VALUES ($1) ON CONFLICT (name) DO NOTHING";

    /// Stores what is not there yet. Answers with the time that relative delays were counted from and, unless all of so
    /// many were new, with those that were.
    store = "
        WITH stored AS (
            INSERT INTO {message} (endpoint, attempt_at, due, asked, id, destination, headers, body)
            SELECT i.endpoint, d.due, d.due, i.asked, i.id, i.destination, i.headers, i.body
            FROM unnest($1::int4[], $2::timestamptz[], $3::interval[], $4::text[], $5::text[], $6::bytea[],
                    $7::bytea[]) WITH ORDINALITY AS i (endpoint, asked, delay, id, destination, headers, body, n),
                LATERAL (SELECT coalesce(i.asked, statement_timestamp() + i.delay) AS due) d
            {in order}
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

    /// Locks what is due and free, from a place on, in order, up to a number and a size. Answers with the time, if
    /// with nothing else.
    fetch = "
        SELECT t.now, d.* FROM (SELECT statement_timestamp() AS now) t LEFT JOIN (
            SELECT * FROM (
                SELECT l.*, sum(size) OVER (ROWS UNBOUNDED PRECEDING) - size AS before FROM (
                    SELECT seq, {place} AS place, attempt_at, due, failures, destination, id, headers, body,
                        octet_length(headers)::int8 + octet_length(body) AS size
                    FROM {message}
                    WHERE endpoint = $1 AND attempt_at <= statement_timestamp() AND (attempt_at, seq) > ($2, $3)
                        AND destination <> ALL($4) AND seq <> ALL($5)
                    ORDER BY attempt_at, seq LIMIT $6 FOR UPDATE SKIP LOCKED) l) c
            WHERE before < $7) d ON true";
    /// Whether anything else was due at a time, free or not.
    more_due = "
        SELECT EXISTS (SELECT 1 FROM {message} WHERE endpoint = $1 AND attempt_at <= $2 AND destination <> ALL($3)
            AND seq <> ALL($4))";
    /// Puts rows aside that have no message in them. They stay in listings and can be cancelled.
    quarantine = "
        UPDATE {message} m SET attempt_at = 'infinity', last_error = q.reason
        FROM unnest($2::int8[], $3::text[]) AS q (seq, reason) WHERE m.endpoint = $1 AND m.seq = q.seq";
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
                WHERE endpoint = $1 AND attempt_at <= statement_timestamp() AND destination <> ALL($2)
                ORDER BY attempt_at, seq LIMIT 1 FOR KEY SHARE SKIP LOCKED),
            (SELECT attempt_at FROM {message}
                WHERE endpoint = $1 AND attempt_at > statement_timestamp() AND attempt_at < 'infinity'
                    AND destination <> ALL($2)
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
}

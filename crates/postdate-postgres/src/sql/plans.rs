//! What the server does for a statement when it plans it once for all values, as it may for any prepared one.

use std::str::FromStr;

use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection, Row, postgres::PgConnectOptions};

use super::Statements;
use crate::{Options, Postgres, schema, server::Engine};

const FETCH: &str = "int4, timestamptz, int8, text[], int8[], int8, int8, bool";

/// A schema with so many messages of two endpoints that are due next year, and a few that are due.
async fn place(future: usize) -> (Postgres, PgConnection) {
    let connect = PgConnectOptions::from_str(&test_postgres::url()).unwrap();
    let schema = format!("plans{}", std::process::id()) + &format!("x{future}");
    let backend = Postgres::with_options(Options::new(connect.clone()).schema(&schema)).await.unwrap();
    let mut connection = connect.connect().await.unwrap();
    for name in ["orders", "others"] {
        let name = postdate_core::EndpointName::new(name).unwrap();
        schema::set_up(&backend.place, &mut connection, Some(&name)).await.unwrap();
    }
    let seed = backend.place.names.fill(
        "INSERT INTO {message} (endpoint, attempt_at, due, id, destination, headers, body)
         SELECT 1 + n % 2, t, t, 'm' || n, 'billing', '', 'x' FROM generate_series(1, $1::int8) n,
             LATERAL (SELECT CASE WHEN n <= 20 THEN now() - interval '1 s' ELSE now() + interval '1 year' + n * interval '1 s' END t) d",
    );
    let count = i64::try_from(future).unwrap() + 20;
    sqlx::query(AssertSqlSafe(seed)).bind(count).execute(&mut connection).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(backend.place.names.fill("ANALYZE {message}")))
        .execute(&mut connection)
        .await
        .unwrap();
    sqlx::raw_sql("SET plan_cache_mode TO force_generic_plan").execute(&mut connection).await.unwrap();
    (backend, connection)
}

/// The plan as the server carried it out.
pub(super) async fn explain(
    connection: &mut PgConnection,
    statement: &str,
    types: &str,
    values: &str,
) -> String {
    let explain = format!(
        "DEALLOCATE ALL; BEGIN; PREPARE p ({types}) AS {statement};
         EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) EXECUTE p ({values}); ROLLBACK"
    );
    let rows = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_all(connection).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>(0) + "\n").collect()
}

/// How many pages a plan touched.
fn pages(plan: &str) -> u64 {
    let buffers =
        plan.lines().find_map(|line| line.trim().strip_prefix("Buffers: shared ")).unwrap_or_default();
    buffers
        .split(' ')
        .filter_map(|word| word.split_once('='))
        .filter(|(kind, _)| ["hit", "read"].contains(kind))
        .map(|(_, count)| count.parse::<u64>().unwrap())
        .sum()
}

#[tokio::test]
async fn no_plan_for_due_messages_walks_through_those_of_next_year() {
    let (backend, mut connection) = place(50_000).await;
    let sql = &backend.place.sql;
    for (name, statement, types, values) in [
        ("fetch", &sql.fetch, FETCH, "1, '-infinity', 0, '{}', '{}', 500, 16777216, true"),
        ("fetch what is untouched", &sql.fetch, FETCH, "1, '-infinity', 0, '{}', '{}', 500, 16777216, false"),
        ("more_due", &sql.more_due, "int4, timestamptz, text[], int8[]", "1, now(), '{}', '{}'"),
        ("next_due", &sql.next_due, "int4, text[]", "1, '{}'"),
        ("cancel", &sql.cancel, "int4, text[]", "1, '{m2,m30000}'"),
        ("reschedule", &sql.reschedule, "int4, text, timestamptz, interval", "1, 'm30000', now(), NULL"),
        ("get", &sql.get, "int4, text", "1, 'm30000'"),
        (
            "count_failures",
            &sql.count_failures,
            "int4, text[], interval[], text[]",
            "1, '{m2,m4}', '{1 s,1 s}', '{a,b}'",
        ),
    ] {
        let plan = explain(&mut connection, statement, types, values).await;
        assert!(plan.contains("message_"), "{name}: no index\n{plan}");
        assert!(!plan.contains("Seq Scan"), "{name}\n{plan}");
        assert!(pages(&plan) > 0 && pages(&plan) < 200, "{name}: {} pages\n{plan}", pages(&plan));
    }
}

#[tokio::test]
async fn a_drain_that_goes_on_begins_at_its_place() {
    let (backend, mut connection) = place(1_000).await;
    let values = "1, now() - interval '1 hour', 5, '{}', '{}', 500, 16777216, false";
    let plan = explain(&mut connection, &backend.place.sql.fetch, FETCH, values).await;
    let condition = plan.lines().find(|line| line.contains("Index Cond")).unwrap();
    assert!(condition.contains("ROW(attempt_at, seq) > ROW($2, $3)"), "{plan}");
    assert!(condition.contains("statement_timestamp()"), "{plan}");
}

/// To try the lock of a row that somebody holds is dearer than all else that is done with a row.
#[tokio::test]
async fn a_drain_that_goes_on_passes_by_what_others_hold_before_it_tries_a_lock() {
    let (backend, mut connection) = place(500).await;
    let connect = PgConnectOptions::from_str(&test_postgres::url()).unwrap();
    let mut other = connect.connect().await.unwrap();
    let hold = "BEGIN; SELECT 1 FROM {message} WHERE attempt_at <= now() AND endpoint = 1 LIMIT 7 FOR UPDATE";
    sqlx::raw_sql(AssertSqlSafe(backend.place.names.fill(hold))).execute(&mut other).await.unwrap();
    for (front, removed) in [("false", 1), ("true", 0)] {
        let values = format!("1, '-infinity', 0, '{{}}', '{{}}', 500, 16777216, {front}");
        let plan = explain(&mut connection, &backend.place.sql.fetch, FETCH, &values).await;
        assert_eq!(plan.matches("Rows Removed by Filter: 7").count(), removed, "{plan}");
    }
}

#[test]
fn statements_have_all_their_names_filled_in() {
    let names = crate::names::Names::new("s", "p_").unwrap();
    for engine in [Engine::PostgreSql, Engine::Citus, Engine::Yugabyte, Engine::Cockroach] {
        let statements = format!("{:?}", Statements::new(&names, engine)).replacen("Statements {", "", 1);
        assert!(statements.contains("\\\"s\\\".\\\"p_message\\\""));
        assert!(!statements.replace("'{}'", "").trim_end_matches('}').contains(['{', '}']), "{statements}");
        let is_plain = engine == Engine::PostgreSql;
        assert_eq!(statements.contains("ctid"), is_plain, "only there is it a place");
        assert_eq!(statements.contains("ORDER BY i.n"), !is_plain);
    }
}

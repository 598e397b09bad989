//! The same for tables that are empty when their statements are planned, and full a minute later.

use std::str::FromStr;

use postdate_core::{Address, Queues as _};
use sqlx::{AssertSqlSafe, postgres::PgConnectOptions};

use super::plans::explain;
use crate::{Options, Postgres};

#[tokio::test]
async fn statements_that_are_planned_for_empty_tables_walk_through_no_large_ones() {
    let connect = PgConnectOptions::from_str(&test_postgres::url()).unwrap();
    let schema = format!("plans{}early", std::process::id());
    let backend = Postgres::with_options(Options::new(connect).schema(&schema)).await.unwrap();
    for name in ["first", "second"] {
        backend.queues().create(&Address::new(name).unwrap()).await.unwrap();
    }
    let (place, sql) = (&backend.place, &backend.place.sql);
    // As calls have them.
    let mut connection = place.connections.lend().await.unwrap();
    sqlx::raw_sql("SET plan_cache_mode TO force_generic_plan").execute(&mut *connection).await.unwrap();
    let fill = place.names.fill(
        "INSERT INTO {queue_message} (queue, id, headers, body)
         SELECT 1 + n % 2, n, '', 'x' FROM generate_series(1, 20000) n;
         INSERT INTO {message} (endpoint, attempt_at, due, id, destination, headers, body)
         SELECT 1, now() - interval '1 s', now(), n, 'billing', '', 'x' FROM generate_series(1, 20000) n",
    );
    for is_full in [false, true] {
        if is_full {
            sqlx::raw_sql(AssertSqlSafe(fill.clone())).execute(&mut *connection).await.unwrap();
        }
        for (name, statement, types, values) in [
            (
                "fetch",
                &sql.fetch,
                "int4, timestamptz, int8, text[], int8[], int8, int8, bool",
                "1, '-infinity', 0, '{}', '{}', 100, 16777216, false",
            ),
            ("next_due", &sql.next_due, "int4, text[]", "1, '{}'"),
            ("receive", &sql.receive, "int4, int8, text[], int8, int8", "2, 7, NULL, 100, 16777216"),
            ("complete", &sql.complete, "int4, int8[], int8", "2, '{1,3,5}', 0"),
            ("abandon", &sql.abandon, "int4, int8[], int8", "2, '{1,3,5}', 0"),
            ("undo_receive", &sql.undo_receive, "int4, int8[], int8", "2, '{1,3,5}', 0"),
            ("renew", &sql.renew, "int4, int8[], int8", "2, '{1,3,5}', 0"),
            ("move_to", &sql.move_to, "int4, int8[], int8, text", "2, '{1,3,5}', 0, 'first'"),
            ("browse", &sql.browse, "int4, int8, int8", "2, 0, 100"),
            ("purge", &sql.purge, "int4, int8, int8, int8", "2, 0, 1000000, 100"),
            ("last_queued", &sql.last_queued, "int4", "2"),
            (
                "send",
                &sql.send,
                "text[], int4[], text[], bytea[], bytea[]",
                "'{first,nowhere}', '{1,2}', '{a,b}', '{a,b}', '{a,b}'",
            ),
        ] {
            let plan = explain(&mut connection, statement, types, values).await;
            assert!(plan.contains("Index"), "{name}\n{plan}");
            let reads_all = ["Seq Scan", "Bitmap", "Sort Key: queue_message", "Sort Key: message"];
            assert!(!reads_all.iter().any(|way| plan.contains(way)), "{name}, full: {is_full}\n{plan}");
            let passed = |line: &&str| line.contains("Rows Removed") && !line.ends_with(": 1");
            assert_eq!(plan.lines().find(passed), None, "{name}\n{plan}");
        }
    }
}

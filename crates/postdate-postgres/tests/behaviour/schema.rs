//! Setting up, by this program and by hand.

use postdate_core::{Backend, DelayedMessageStoreExt, Due, EndpointName, StoreErrorKind, TransactionMode};
use postdate_postgres::{Options, Postgres};

use crate::place::{Place, endpoint, message};

#[tokio::test]
async fn the_script_leaves_what_setting_up_leaves() {
    let (by_hand, by_program) = (Place::new(), Place::new());
    let hostile = EndpointName::new(r"it's a \ trap'; DROP TABLE x --").unwrap();
    let backend = by_hand.open().await;
    let script = backend.set_up_script(&hostile).unwrap();
    for _ in 0..2 {
        by_hand.run(&script).await;
    }
    by_program.open().await.set_up(&hostile).await.unwrap();
    let describe = "
        SELECT count(*) FROM (
            SELECT table_name, column_name, data_type, is_nullable, column_default, collation_name
            FROM information_schema.columns WHERE table_schema = '$schema'
            UNION ALL
            SELECT tablename, indexname, replace(indexdef, '$schema', ''), NULL, NULL, NULL
            FROM pg_indexes WHERE schemaname = '$schema'
            UNION ALL
            SELECT proname, replace(prosrc, '$schema', ''), NULL, NULL, NULL, NULL
            FROM pg_proc WHERE pronamespace = '$schema'::regnamespace) d";
    let count = by_hand.number(describe).await;
    assert!(count > 30);
    assert_eq!(by_program.number(describe).await, count);
    let store = backend.open(&hostile, TransactionMode::ReceiveOnly).await.unwrap();
    store.store_one(message("m", Due::NOW)).await.unwrap();
    backend.set_up(&hostile).await.unwrap();
    assert_eq!(store.stats().await.unwrap().pending, 1);
}

#[tokio::test]
async fn a_schema_of_another_application_is_left_alone() {
    let place = Place::new();
    place.run("CREATE SCHEMA $schema; CREATE TABLE $schema.message (theirs text)").await;
    let error = place.open().await.set_up(&endpoint()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration);
    assert!(error.to_string().contains("another application"), "{error}");
    let tables = "SELECT count(*) FROM information_schema.tables WHERE table_schema = '$schema'";
    assert_eq!(place.number(tables).await, 1);
}

#[tokio::test]
async fn hostile_names_of_schema_and_tables_are_just_names() {
    let schema = format!(r#"a "B"; $body$ {}"#, Place::new().schema);
    let options = || Options::new(Place::connect_options()).schema(&schema);
    let mut seen = Vec::new();
    for prefix in ["", "a'b\"c.", "ö_"] {
        let backend = Postgres::with_options(options().prefix(prefix)).await.unwrap();
        backend.set_up(&endpoint()).await.unwrap();
        let store = backend.open(&endpoint(), TransactionMode::ReceiveOnly).await.unwrap();
        store.store_one(message(&format!("m{prefix}"), Due::NOW)).await.unwrap();
        let batch = store.fetch(std::num::NonZeroUsize::new(10).unwrap()).await.unwrap();
        seen.push(batch.messages.iter().map(|due| due.message.id.to_string()).collect::<Vec<_>>());
    }
    assert_eq!(seen, [["m"], ["ma'b\"c."], ["mö_"]], "each has tables of its own");
    let error = Postgres::with_options(options().schema("x".repeat(64))).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration);
    assert!(error.to_string().contains("63 bytes"), "{error}");
}

#[tokio::test]
async fn a_server_that_does_not_keep_its_promises_is_warned_of() {
    let place = Place::new();
    let connect = Place::connect_options().options([("synchronous_commit", "off")]);
    let backend = Postgres::with_options(Options::new(connect).schema(&place.schema)).await.unwrap();
    let warnings = backend.warnings().await.unwrap();
    assert!(
        warnings.iter().any(|warning| warning.starts_with("synchronous_commit is off: ")),
        "{warnings:?}"
    );
}

#[tokio::test]
async fn a_database_in_another_encoding_is_refused() {
    let place = Place::new();
    let name = format!("d{}", place.schema);
    place.run(&format!("CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")).await;
    let connect = Place::connect_options().database(&name);
    let error = Postgres::with_options(Options::new(connect)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration);
    assert!(error.to_string().contains("ENCODING 'UTF8'"), "{error}");
    place.run(&format!("DROP DATABASE {name} WITH (FORCE)")).await;
}

#[tokio::test]
async fn what_cannot_be_connected_to_says_what_to_do_and_no_secret() {
    for (url, kind, words) in [
        ("postgres://me:s3cret@127.0.0.1:1/x", StoreErrorKind::Unavailable, "is the server running"),
        (
            "postgres://me:s3cret@localhost:1/x?nonsense=s3cret",
            StoreErrorKind::Configuration,
            "unknown option",
        ),
        ("postgres:///x?host=/no/where&password=s3cret", StoreErrorKind::Unavailable, "path of the socket"),
        ("nonsense-s3cret", StoreErrorKind::Configuration, "not a store URL"),
    ] {
        let error = Postgres::connect(url).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
    }
}

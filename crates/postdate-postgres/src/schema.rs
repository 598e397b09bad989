//! The tables: making them, and knowing which version of them is there.

use postdate_core::{EndpointName, StoreErrorKind};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use crate::{
    error::{Fault, Result},
    names::{Names, literal},
    place::Place,
    server::Engine,
    sql::query,
};

/// What brings a schema from the version of its place in this list to the next.
const MIGRATIONS: &[Migration] = &[Migration {
    tables: include_str!("sql/001-initial.sql"),
    functions: include_str!("sql/001-functions.sql"),
}];

#[derive(Debug)]
struct Migration {
    tables: &'static str,
    /// For engines that have them.
    functions: &'static str,
}

/// Dead rows of tables that live by inserting and deleting are to go soon, also while the tables are large.
const STORAGE: &str = " WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05)";

/// Those of our tables that a schema of somebody else might have, too.
const TABLES: [&str; 4] = ["{endpoint}", "{message}", "{queue}", "{queue_message}"];

/// Makes what is missing of the tables and the endpoint's row. Looks first: who has no right to make tables does not
/// need it where they are there.
pub(crate) async fn set_up(
    place: &Place,
    connection: &mut PgConnection,
    endpoint: Option<&EndpointName>,
) -> Result<()> {
    if version(place, connection).await? < MIGRATIONS.len() {
        migrate(place, connection).await?;
    }
    if let Some(name) = endpoint
        && query(&place.sql.endpoint).bind(name.as_str()).fetch_optional(&mut *connection).await?.is_none()
    {
        query(&place.sql.add_endpoint).bind(name.as_str()).execute(connection).await?;
    }
    Ok(())
}

/// The number under which an endpoint's messages are kept, in tables that this version knows.
pub(crate) async fn endpoint(
    place: &Place,
    connection: &mut PgConnection,
    name: &EndpointName,
) -> Result<i32> {
    if version(place, connection).await? == 0 {
        return Err(Fault::not_set_up());
    }
    match query(&place.sql.endpoint).bind(name.as_str()).fetch_optional(connection).await? {
        Some(row) => Ok(row.try_get(0)?),
        None => {
            let advice = "run `postdate setup` or call `set_up` for it";
            Err(Fault::new(
                StoreErrorKind::NotSetUp,
                format!("endpoint `{name}` has not been set up; {advice}"),
            ))
        }
    }
}

/// The statements that set a place up, for somebody to run by hand. Running them again changes nothing.
pub(crate) fn script(names: &Names, engine: Engine, endpoint: &EndpointName) -> String {
    let mut script = names.fill("BEGIN;\nCREATE SCHEMA IF NOT EXISTS {schema};\n\n");
    for number in 0..MIGRATIONS.len() {
        script += &statements(names, engine, number);
        script += "\n";
    }
    let endpoint = literal(endpoint.as_str());
    script += &names.fill("INSERT INTO {endpoint} (name) VALUES (");
    script += &format!("{endpoint}) ON CONFLICT (name) DO NOTHING;\n");
    script += &names.fill(
        "COMMIT;\n
-- What the user of the program needs, here as USER_OF_POSTDATE:
-- GRANT USAGE ON SCHEMA {schema} TO USER_OF_POSTDATE;
-- GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO USER_OF_POSTDATE;\n",
    );
    script
}

/// The version of the tables, 0 if there are none.
pub(crate) async fn version(place: &Place, connection: &mut PgConnection) -> Result<usize> {
    if !is_there(place, connection, "{version}").await? {
        return Ok(0);
    }
    let row = query(&place.sql.version).fetch_optional(connection).await?;
    let version: i32 = row.map_or(Ok(0), |row| row.try_get(0))?;
    let known = MIGRATIONS.len();
    usize::try_from(version).ok().filter(|version| *version <= known).ok_or_else(|| {
        let detail =
            format!("the schema has version {version}, this postdate knows {known}; update this postdate");
        Fault::new(StoreErrorKind::TooNew, detail)
    })
}

async fn is_there(place: &Place, connection: &mut PgConnection, table: &str) -> Result<bool> {
    let found = sqlx::query("SELECT to_regclass($1) IS NOT NULL").bind(place.names.fill(table));
    Ok(found.fetch_one(connection).await?.try_get(0)?)
}

/// One at a time does this; the others wait, and find it done.
async fn migrate(place: &Place, connection: &mut PgConnection) -> Result<()> {
    let mut transaction = connection.begin().await?;
    // Others may be at it, and take their time.
    sqlx::raw_sql("SET LOCAL lock_timeout TO 30000").execute(&mut *transaction).await?;
    if place.engine.has_advisory_locks() {
        sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .bind(place.names.lock())
            .execute(&mut *transaction)
            .await?;
    }
    let version = version(place, &mut transaction).await?;
    if version == 0 {
        for table in TABLES {
            if is_there(place, &mut transaction, table).await? {
                return Err(foreign(place, table));
            }
        }
        make_schema(place, &mut transaction).await?;
    }
    for number in version..MIGRATIONS.len() {
        let statements = statements(&place.names, place.engine, number);
        sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut *transaction).await?;
    }
    Ok(transaction.commit().await?)
}

/// `IF NOT EXISTS` alone would ask for a right that is not needed where the schema exists.
async fn make_schema(place: &Place, connection: &mut PgConnection) -> Result<()> {
    let exists =
        sqlx::query("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1").bind(place.names.schema());
    if exists.fetch_optional(&mut *connection).await?.is_none() {
        let make = place.names.fill("CREATE SCHEMA IF NOT EXISTS {schema}");
        sqlx::raw_sql(AssertSqlSafe(make)).execute(connection).await?;
    }
    Ok(())
}

/// The statements of one migration with the names filled in.
fn statements(names: &Names, engine: Engine, number: usize) -> String {
    let migration = &MIGRATIONS[number];
    let storage = if engine == Engine::PostgreSql { STORAGE } else { "" };
    let mut statements = names.fill(&migration.tables.replace("{storage}", storage));
    if engine.has_functions() {
        let channel = literal(&names.channel());
        statements += "\n";
        statements += &names.fill(
            &migration.functions.replace("{channel}", &channel).replace("{quotes}", &names.dollar_quotes()),
        );
    }
    let note = if number == 0 {
        "\nINSERT INTO {version} SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM {version});\n".to_owned()
    } else {
        format!("\nUPDATE {{version}} SET version = {};\n", number + 1)
    };
    statements + &names.fill(&note)
}

fn foreign(place: &Place, table: &str) -> Fault {
    let table = place.names.fill(table);
    let detail = format!(
        "there is a table {table} of another application; nothing was changed, choose another schema or prefix"
    );
    Fault::new(StoreErrorKind::Configuration, detail)
}

//! What kind of server this is, and what follows from it.

use postdate_core::StoreErrorKind;
use sqlx::{PgConnection, Row};

use crate::error::{Fault, Result};

/// Works on every server that speaks PostgreSQL's protocol.
const LOOK: &str = "
    SELECT version(), pg_is_in_recovery(), current_setting('server_encoding'),
        current_setting('server_version_num')::int4,
        EXISTS (SELECT 1 FROM pg_catalog.pg_extension WHERE extname = 'citus')";

/// All that the statements use is there from 13 on.
const OLDEST: i32 = 130_000;

/// What the statements may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    PostgreSql,
    /// The distributed ones: rows move, there are no places (`ctid`) and no notifications to rely on.
    Citus,
    Yugabyte,
    Cockroach,
}

impl Engine {
    /// Looks at a server, and refuses one that cannot hold a store.
    pub(crate) async fn of(connection: &mut PgConnection) -> Result<Self> {
        let row = sqlx::query(LOOK).fetch_one(connection).await?;
        let (version, in_recovery): (String, bool) = (row.try_get(0)?, row.try_get(1)?);
        let (encoding, number): (String, i32) = (row.try_get(2)?, row.try_get(3)?);
        let refuse = |detail: String| Err(Fault::new(StoreErrorKind::Configuration, detail));
        if in_recovery {
            return refuse("this server is a read replica; connect to the primary".to_owned());
        }
        if !encoding.eq_ignore_ascii_case("UTF8") {
            return refuse(format!("the database is encoded in {encoding}; create one with ENCODING 'UTF8'"));
        }
        if number < OLDEST {
            return refuse(format!("PostgreSQL {} is too old; 13 is the oldest that works", number / 10_000));
        }
        Ok(Self::named(&version, row.try_get(4)?))
    }

    fn named(version: &str, has_citus: bool) -> Self {
        if version.starts_with("CockroachDB") {
            Self::Cockroach
        } else if version.contains("-YB-") {
            Self::Yugabyte
        } else if has_citus {
            Self::Citus
        } else {
            Self::PostgreSql
        }
    }

    /// Whether a locked row can be found again by its place, which is cheaper than by its key.
    pub(crate) fn has_places(self) -> bool {
        self == Self::PostgreSql
    }

    /// Whether who sets up can keep others out meanwhile.
    pub(crate) fn has_advisory_locks(self) -> bool {
        matches!(self, Self::PostgreSql | Self::Citus)
    }

    /// Whether commits can be told of.
    pub(crate) fn notifies(self) -> bool {
        matches!(self, Self::PostgreSql | Self::Citus)
    }

    /// Whether functions in PL/pgSQL can be made.
    pub(crate) fn has_functions(self) -> bool {
        self != Self::Cockroach
    }

    /// Whether rows of a function keep their order on the way into a table.
    pub(crate) fn inserts_in_order(self) -> bool {
        self == Self::PostgreSql
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_known_by_what_they_say() {
        for (version, citus, engine) in [
            ("PostgreSQL 15.18 (Debian 15.18-0) on x86_64-pc-linux-gnu", false, Engine::PostgreSql),
            ("PostgreSQL 16.4 on x86_64-pc-linux-gnu", true, Engine::Citus),
            ("PostgreSQL 15.2-YB-2.25.0.0-b0 on x86_64-pc-linux-gnu", false, Engine::Yugabyte),
            ("CockroachDB CCL v24.3.1 (x86_64-pc-linux-gnu)", false, Engine::Cockroach),
        ] {
            assert_eq!(Engine::named(version, citus), engine, "{version}");
        }
    }
}

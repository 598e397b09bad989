//! Instants as PostgreSQL keeps them: microseconds since 2000, in binary, whatever the session's time zone.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::{
    Decode, Encode, Postgres, Type,
    encode::IsNull,
    error::BoxDynError,
    postgres::{
        PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueRef,
        types::{Oid, PgInterval},
    },
};

/// 2000-01-01 in microseconds since 1970.
const EPOCH: i64 = 946_684_800_000_000;

/// A `timestamptz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PgInstant(i64);

impl PgInstant {
    /// Before every instant, and after it: the attempt time of a row that must never be fetched.
    pub(crate) const BEFORE_ALL: Self = Self(i64::MIN);
    pub(crate) const NEVER: Self = Self(i64::MAX);

    /// The earliest that PostgreSQL knows: 4714 before Christ.
    const MIN: Self = Self(-211_813_488_000_000_000);

    /// An instant rounded up, so that nothing is due early.
    pub(crate) fn ceil(instant: Timestamp) -> Self {
        let micros = instant.as_nanosecond().div_euclid(1_000);
        let micros = micros + i128::from(instant.as_nanosecond().rem_euclid(1_000) != 0);
        let micros =
            i64::try_from(micros).expect("a timestamp is within 10,000 years: 58 bits of microseconds");
        Self(micros - EPOCH).max(Self::MIN)
    }

    /// As near as a timestamp comes to it: rounding up at the end of time leads beyond it.
    pub(crate) fn timestamp(self) -> Timestamp {
        let micros = self.0.saturating_add(EPOCH);
        let end = if micros < 0 { Timestamp::MIN } else { Timestamp::MAX };
        Timestamp::from_microsecond(micros).unwrap_or(end)
    }

    pub(crate) fn plus_micros(self, micros: i64) -> Self {
        Self(self.0.saturating_add(micros))
    }

    /// Counts microseconds, from wherever.
    pub(crate) fn micros(self) -> i64 {
        self.0
    }

    pub(crate) fn from_micros(micros: i64) -> Self {
        Self(micros)
    }
}

/// A length of time, rounded up, as long as there is time.
pub(crate) fn interval(length: Duration) -> PgInterval {
    /// As long as all of time: adding it to now stays within what PostgreSQL can count.
    const LONGEST: Duration = Duration::from_secs(10_000 * 366 * 86_400);
    let micros = length.min(LONGEST).as_nanos().div_ceil(1_000);
    let microseconds = i64::try_from(micros).expect("10,000 years are 59 bits of microseconds");
    // Days and months would follow the session's time zone.
    PgInterval { months: 0, days: 0, microseconds }
}

// What follows goes by the numbers of the types, which are fixed (`pg_type.dat`): by their names the driver would ask
// the server for them on every connection.

impl Type<Postgres> for PgInstant {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(1184))
    }
}

impl PgHasArrayType for PgInstant {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(1185))
    }
}

impl Encode<'_, Postgres> for PgInstant {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        self.0.encode(buffer)
    }
}

impl Decode<'_, Postgres> for PgInstant {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        Ok(Self(i64::from_be_bytes(value.as_bytes()?.try_into()?)))
    }
}

/// Where a row is on the disk, as long as a lock keeps it there: a `tid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tid([u8; 6]);

impl Type<Postgres> for Tid {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(27))
    }
}

impl PgHasArrayType for Tid {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(1010))
    }
}

impl Encode<'_, Postgres> for Tid {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }
}

impl Decode<'_, Postgres> for Tid {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        Ok(Self(value.as_bytes()?.try_into()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: i128) -> Timestamp {
        Timestamp::from_nanosecond(nanos).unwrap()
    }

    #[test]
    fn instants_are_kept_to_the_microsecond_and_never_early() {
        for (nanos, kept) in [(1_000, 1), (1_001, 2), (0, 0), (-1, 0), (-1_000, -1), (-1_001, -1)] {
            assert_eq!(PgInstant::ceil(at(nanos)).0 + EPOCH, kept, "{nanos}");
        }
        assert_eq!(PgInstant::ceil(at(5_000)).timestamp(), at(5_000));
        let epoch: Timestamp = "2000-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(PgInstant::ceil(epoch), PgInstant(0));
    }

    #[test]
    fn the_ends_of_time_come_back() {
        assert_eq!(PgInstant::ceil(Timestamp::MAX).timestamp(), Timestamp::MAX);
        let earliest = PgInstant::ceil(Timestamp::MIN);
        assert_eq!(earliest, PgInstant::MIN);
        assert_eq!(PgInstant::NEVER.timestamp(), Timestamp::MAX);
    }

    #[test]
    fn a_length_is_rounded_up_and_has_an_end() {
        assert_eq!(interval(Duration::from_nanos(1_001)).microseconds, 2);
        assert_eq!(interval(Duration::MAX).microseconds, 316_224_000_000 * 1_000_000);
    }
}

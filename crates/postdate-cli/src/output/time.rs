//! Times and delays as people write and read them.

use std::time::Duration;

use jiff::{SignedDuration, Span, Timestamp, ZonedDateTime, civil::DateTime, tz::TimeZone};

/// Reads a delay: `30m`, `2h15m`, `1 day`, `PT30M`. Days, weeks, months and years are counted from now on the
/// calendar of the system's zone.
///
/// # Errors
/// With a message that shows how to write it.
pub(crate) fn parse_delay(text: &str) -> Result<Duration, String> {
    delay_from(text, &ZonedDateTime::now())
}

/// Reads a point in time: with an offset, with a zone, or without either for the system's zone.
///
/// # Errors
/// With a message that shows how to write it.
pub(crate) fn parse_time(text: &str) -> Result<Timestamp, String> {
    time_in(text, &TimeZone::system())
}

/// `2026-12-25 08:00:00 +01:00 (in 2h 14m)`, in the system's zone.
pub(crate) fn with_relative(time: Timestamp, now: Timestamp) -> String {
    format!("{} ({})", local(time), relative(time, now))
}

/// `2026-12-25 08:00:00 +01:00`, in the system's zone.
pub(crate) fn local(time: Timestamp) -> String {
    time.to_zoned_datetime(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S %:z").to_string()
}

/// `in 2h 14m`, `3s ago` or `now`.
pub(crate) fn relative(time: Timestamp, now: Timestamp) -> String {
    let difference = time.duration_since(now);
    match difference.as_secs() {
        0 => "now".to_owned(),
        1.. => format!("in {}", rough(difference)),
        _ => format!("{} ago", rough(difference)),
    }
}

/// A duration in its two greatest units, without its sign: `2h 14m`.
pub(crate) fn rough(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().unsigned_abs();
    let units = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let first = units.iter().position(|(unit, _)| seconds >= *unit).unwrap_or(units.len() - 1);
    let (unit, name) = units[first];
    match units.get(first + 1).map(|(next, name)| (seconds % unit / next, name)) {
        Some((rest, next)) if rest > 0 => format!("{}{name} {rest}{next}", seconds / unit),
        _ => format!("{}{name}", seconds / unit),
    }
}

fn delay_from(text: &str, now: &ZonedDateTime) -> Result<Duration, String> {
    let span: Span = text
        .parse()
        .map_err(|_| "not a duration; write it like 90s, 30m, 2h15m, 1d, 1mo or PT30M".to_owned())?;
    let beyond = |_| "reaches beyond the year 9999; write a shorter one such as 30d".to_owned();
    let delay = span.to_duration(now).map_err(beyond)?;
    now.checked_add(delay).map_err(beyond)?;
    Duration::try_from(delay).map_err(|_| "a delay cannot be negative; leave it out for now".to_owned())
}

fn time_in(text: &str, zone: &TimeZone) -> Result<Timestamp, String> {
    // The order matters: a time stamp would ignore the zone in brackets, a civil time the offset.
    if text.contains('[') {
        return text
            .parse::<ZonedDateTime>()
            .map(|time| time.timestamp())
            .map_err(|error| explain(&error.to_string()));
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    let civil: DateTime = text.parse().map_err(|_| explain("not a time"))?;
    civil
        .to_zoned_datetime(zone.clone())
        .map(|time| time.timestamp())
        .map_err(|error| explain(&error.to_string()))
}

fn explain(problem: &str) -> String {
    format!(
        "{problem}; write it like 2026-12-25T08:00:00Z, 2026-12-25T08:00+01:00[Europe/Berlin] or 2026-12-25T08:00"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn delays_are_read_as_people_write_them() {
        let now: ZonedDateTime = "2026-01-31T12:00[Europe/Berlin]".parse().unwrap();
        for (text, seconds) in [
            ("90s", 90),
            ("30m", 1_800),
            ("2h15m", 8_100),
            ("2h 15m", 8_100),
            ("1 hour 30 minutes", 5_400),
            ("1d", 86_400),
            ("PT30M", 1_800),
            ("P1DT1H", 90_000),
            ("1w", 604_800),
            ("1mo", 28 * 86_400),
            ("0s", 0),
        ] {
            assert_eq!(delay_from(text, &now).map(|delay| delay.as_secs()), Ok(seconds), "{text}");
        }
        assert_eq!(delay_from("250ms", &now), Ok(Duration::from_millis(250)));
    }

    #[test]
    fn a_day_is_a_day_of_the_calendar() {
        let night_of_the_change: ZonedDateTime = "2026-03-28T12:00[Europe/Berlin]".parse().unwrap();
        assert_eq!(delay_from("1d", &night_of_the_change), Ok(Duration::from_secs(23 * 3_600)));
    }

    #[test]
    fn a_delay_that_is_none_is_answered_with_an_example() {
        let now: ZonedDateTime = "2026-01-31T12:00[UTC]".parse().unwrap();
        for (text, hint) in [
            ("", "30m"),
            ("30", "30m"),
            ("soon", "30m"),
            ("-5m", "negative"),
            ("5m ago", "negative"),
            ("9000y", "beyond the year 9999"),
            ("99999999999y", "30m"),
        ] {
            let error = delay_from(text, &now).unwrap_err();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    #[test]
    fn times_are_read_with_offset_with_zone_and_without() {
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        for (text, utc) in [
            ("2026-12-25T08:00:00Z", "2026-12-25T08:00:00Z"),
            ("2026-12-25T08:00:00.5+01:00", "2026-12-25T07:00:00.5Z"),
            ("2026-12-25T08:00+01:00[Europe/Berlin]", "2026-12-25T07:00:00Z"),
            ("2026-07-25T08:00[America/New_York]", "2026-07-25T12:00:00Z"),
            ("2026-07-25T08:00", "2026-07-25T06:00:00Z"),
            ("2026-12-25 08:00", "2026-12-25T07:00:00Z"),
            ("2026-12-25", "2026-12-24T23:00:00Z"),
        ] {
            assert_eq!(time_in(text, &berlin), Ok(at(utc)), "{text}");
        }
    }

    #[test]
    fn a_time_that_is_none_is_answered_with_an_example() {
        for text in
            ["", "noon", "2026-13-01", "2026-12-25T08:00+02:00[Europe/Berlin]", "2026-12-25T08:00[Nowhere]"]
        {
            let error = time_in(text, &TimeZone::UTC).unwrap_err();
            assert!(error.contains("2026-12-25T08:00:00Z"), "{text}: {error}");
        }
    }

    #[test]
    fn distances_are_shown_in_two_units() {
        let now = at("2026-01-01T00:00:00Z");
        for (time, shown) in [
            ("2026-01-01T00:00:00.9Z", "now"),
            ("2026-01-01T00:00:09Z", "in 9s"),
            ("2026-01-01T02:14:30Z", "in 2h 14m"),
            ("2026-01-01T02:00:30Z", "in 2h"),
            ("2026-01-03T00:00:00Z", "in 2d"),
            ("2025-12-31T23:58:57Z", "1m 3s ago"),
        ] {
            assert_eq!(relative(at(time), now), shown);
        }
    }
}

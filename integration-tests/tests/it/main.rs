//! Delivery on SQLite from end to end.

#![expect(clippy::unwrap_used, reason = "a test may panic where the world is not as it should be")]

mod children;
mod exactly_once;
mod fuzz;
mod idle;
mod missing_destination;
mod outage;
#[cfg(unix)]
mod paused;
mod scene;
mod stop;
mod wake;

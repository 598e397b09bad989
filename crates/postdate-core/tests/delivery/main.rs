//! Delayed delivery as an application sees it, on the memory backend and under paused time.

mod errors;
mod outages;
mod scenario;
mod starting;
mod stopping;
mod timing;

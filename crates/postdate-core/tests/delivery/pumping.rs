//! From a queue into the store, on the memory backend and under paused time.

mod arriving;
mod locks;
mod outages;
mod poison;
mod queue;
mod scene;
mod stopping;
mod threads;

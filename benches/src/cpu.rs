//! Time and processor time of a piece of work.

use std::time::{Duration, Instant};

use jiff::SignedDuration;

/// What one contestant did in one round.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) messages: usize,
    pub(crate) elapsed: Duration,
    /// Of all threads of this process; unknown where the system does not say.
    pub(crate) cpu: Option<Duration>,
    /// How late each message was, where that was the question. Other people's queues may be early.
    pub(crate) lateness: Vec<SignedDuration>,
    /// What a server did meanwhile, where there is one.
    pub(crate) server: Option<ServerWork>,
    /// How many queries a second were seen while there was nothing to do, where that was the question.
    pub(crate) idle_queries: Option<f64>,
}

/// What a server did, whoever asked for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerWork {
    /// Of all its processes; unknown if it runs elsewhere.
    pub(crate) cpu: Option<Duration>,
    /// What it wrote to its log.
    pub(crate) wal_bytes: u64,
}

impl Measured {
    pub(crate) fn new(messages: usize, elapsed: Duration, cpu: Option<Duration>) -> Self {
        Self { messages, elapsed, cpu, lateness: Vec::new(), server: None, idle_queries: None }
    }

    /// Messages per second.
    pub(crate) fn rate(&self) -> f64 {
        self.messages as f64 / self.elapsed.as_secs_f64()
    }

    /// Microseconds of processor time per message, here and in the server.
    pub(crate) fn cpu_micros(&self) -> Option<f64> {
        let here = self.per_message(self.cpu?);
        match self.server {
            Some(_) => Some(here + self.server_cpu_micros()?),
            None => Some(here),
        }
    }

    /// The server's part of it.
    pub(crate) fn server_cpu_micros(&self) -> Option<f64> {
        self.server?.cpu.map(|cpu| self.per_message(cpu))
    }

    pub(crate) fn wal_bytes(&self) -> Option<f64> {
        self.server.map(|server| server.wal_bytes as f64 / self.messages as f64)
    }

    fn per_message(&self, cpu: Duration) -> f64 {
        cpu.as_secs_f64() * 1e6 / self.messages as f64
    }
}

/// A measurement that goes on.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    start: Instant,
    cpu: Option<Duration>,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self { start: Instant::now(), cpu: process_cpu() }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    pub(crate) fn stop(&self, messages: usize) -> Measured {
        let elapsed = self.start.elapsed();
        let cpu = process_cpu().zip(self.cpu).map(|(now, then)| now.saturating_sub(then));
        Measured::new(messages, elapsed, cpu)
    }
}

#[cfg(unix)]
fn process_cpu() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.try_into().ok()
}

#[cfg(not(unix))]
fn process_cpu() -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn work_takes_processor_time() {
        let stopwatch = Stopwatch::start();
        while process_cpu().unwrap() < stopwatch.cpu.unwrap() + Duration::from_millis(5) {
            std::hint::black_box(0);
        }
        let measured = stopwatch.stop(1_000);
        assert!(measured.cpu_micros().unwrap() >= 5.0, "{measured:?}");
        assert!(measured.rate() > 0.0);
    }
}

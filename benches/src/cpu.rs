//! Time and processor time of a piece of work.

use std::time::{Duration, Instant};

/// What one contestant did in one round.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) messages: usize,
    pub(crate) elapsed: Duration,
    /// Of all threads of this process; unknown where the system does not say.
    pub(crate) cpu: Option<Duration>,
    /// How late each message was, where that was the question.
    pub(crate) lateness: Vec<Duration>,
}

impl Measured {
    /// Messages per second.
    pub(crate) fn rate(&self) -> f64 {
        self.messages as f64 / self.elapsed.as_secs_f64()
    }

    /// Microseconds of processor time per message.
    pub(crate) fn cpu_micros(&self) -> Option<f64> {
        self.cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / self.messages as f64)
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
        Measured { messages, elapsed, cpu, lateness: Vec::new() }
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

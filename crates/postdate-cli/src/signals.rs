//! The wish of an operator or a supervisor that the program end.

use crate::exit::{Exit, Failure};

/// Ctrl-C and, where there are such things, SIGTERM and a terminal that goes away. From the moment this exists none
/// ends the program by itself.
#[derive(Debug)]
pub(crate) struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    /// Heard once at most, and first: the shell and the terminal may both send it, and that is one wish.
    #[cfg(unix)]
    hangup: Option<tokio::signal::unix::Signal>,
}

impl Signals {
    #[cfg(unix)]
    pub(crate) fn listen() -> Result<Self, Failure> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind| {
            signal(kind).map_err(|error| {
                Failure::new(Exit::Failure, format!("cannot listen for signals: {error}; try again"))
            })
        };
        // To listen would undo what nohup has asked for.
        let hangup = may_hang_up().then(|| listen(SignalKind::hangup())).transpose()?;
        let (interrupt, terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate, hangup })
    }

    #[cfg(unix)]
    pub(crate) async fn next(&mut self) {
        let Self { interrupt, terminate, hangup } = self;
        let hung_up = async {
            match hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hung_up => {}
        }
        self.hangup = None;
    }

    #[cfg(not(unix))]
    pub(crate) fn listen() -> Result<Self, Failure> {
        Ok(Self {})
    }

    #[cfg(not(unix))]
    pub(crate) async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            // Without the signal only a kill is left; nothing ever comes.
            std::future::pending::<()>().await;
        }
    }
}

/// Whether SIGHUP is known not to be ignored. Only Linux tells without unsafe code.
#[cfg(unix)]
fn may_hang_up() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| !ignores_hangup(&status))
}

/// Signal 1 is the lowest bit of a mask in hexadecimal digits.
#[cfg(unix)]
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_none_or(|mask| mask & 1 == 1)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn only_a_hangup_that_nobody_has_had_ignored_is_listened_to() {
        let status =
            |mask| format!("SigBlk:\t0000000000000001\nSigIgn:\t{mask}\nSigCgt:\t0000000000000001\n");
        assert!(ignores_hangup(&status("0000000000001001")));
        assert!(!ignores_hangup(&status("0000000000001000")));
        assert!(ignores_hangup("Name:\tpostdate\n"), "what is not known is left alone");
    }
}

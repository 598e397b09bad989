//! A server, from its first start to the end of its folder.

use std::{
    fs::{self, File},
    io::Read as _,
    net::{Ipv4Addr, TcpListener},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;

use crate::{Settings, guardian::Guardian, install, processes, settings::Syncs, user::User};

const USER: &str = "postdate";

/// Ports are taken from here: below those that the system gives to outgoing connections, one of which could take the
/// port of a server that is down, or even be connected to itself.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// How long a start, with the recovery after a crash, or a stop may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often is looked whether a start or a stop is through.
const GLANCE: Duration = Duration::from_millis(5);

/// So much of the log is shown.
const TAIL: usize = 4_000;

/// A PostgreSQL server of its own: on 127.0.0.1 and on a socket in its folder, with data checksums, UTF-8 and the
/// locale C, for one superuser with a password.
///
/// Dropping it stops it at once and removes its folder.
#[derive(Debug)]
pub struct Server {
    settings: Settings,
    programs: PathBuf,
    user: Option<User>,
    folder: PathBuf,
    password: String,
    port: u16,
    running: Option<Child>,
    guardian: Guardian,
}

impl Server {
    /// Makes a folder with an empty cluster, and starts a server on it.
    ///
    /// # Errors
    /// When PostgreSQL is not installed, or does not start: the end of its log is part of the error.
    pub fn start(settings: &Settings) -> Result<Self> {
        let programs = install::programs()?;
        let user = User::for_server()?;
        let folder = tempfile::Builder::new().prefix("postdate-pg-").tempdir_in(&settings.place)?;
        let guardian = Guardian::of(folder.path())?;
        // From here on the guardian removes it.
        let folder = folder.keep();
        if let Some(user) = user {
            user.own(&folder)?;
        }
        let password = password()?;
        let settings = settings.clone();
        let mut server =
            Self { settings, programs, user, folder, password, port: 0, running: None, guardian };
        server.make_cluster()?;
        // Another process may take a port before the server does.
        for port in free_ports()?.take(20) {
            server.port = port;
            match server.start_again() {
                Err(_) if server.log().contains("could not create any TCP/IP sockets") => {
                    fs::remove_file(server.log_file())?;
                }
                started => return started.map(|()| server),
            }
        }
        bail!("other processes take every port first")
    }

    /// The superuser's URL of the database `postgres`.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// The same for another database, which it does not create.
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://{USER}:{}@127.0.0.1:{}/{database}", self.password, self.port)
    }

    /// The port, which stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder of the cluster's files.
    pub fn data_dir(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// The server's first process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(Child::id)
    }

    /// Ends it as a crash of the machine's processes does: all of them at once, by SIGKILL.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill(&mut self) -> Result<()> {
        processes::kill_all(self.pid().context("the server does not run")?)?;
        self.ended()
    }

    /// Shuts it down: transactions that are open are rolled back, connections closed (`fast`).
    ///
    /// # Errors
    /// When it does not run, or is not through within a minute.
    pub fn stop(&mut self) -> Result<()> {
        let running = self.running.as_mut().context("the server does not run")?;
        processes::signal(running.id(), Signal::INT)?;
        let deadline = Instant::now() + PATIENCE;
        while running.try_wait()?.is_none() {
            ensure!(Instant::now() < deadline, "the server does not stop:\n{}", self.log());
            thread::sleep(GLANCE);
        }
        self.ended()
    }

    /// Starts it after [`kill`](Self::kill) or [`stop`](Self::stop), on the same data and port.
    ///
    /// # Errors
    /// When it runs already, or does not start: the end of its log is part of the error.
    pub fn start_again(&mut self) -> Result<()> {
        ensure!(self.running.is_none(), "the server runs already");
        let log = File::options().create(true).append(true).open(self.log_file())?;
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data_dir()).arg("-k").arg(&self.folder);
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]);
        for (name, value) in &self.settings.options {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        command.envs(self.settings.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let running = command.spawn().context("postgres does not start")?;
        self.guardian.watch(Some(running.id()))?;
        self.running = Some(running);
        self.until_ready()
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// When it does not run.
    pub fn wait(&mut self) -> Result<()> {
        self.running.as_mut().context("the server does not run")?.wait()?;
        self.ended()
    }

    /// Stops all its processes where they are (SIGSTOP), until [`thaw`](Self::thaw): connections stay open, nobody
    /// answers.
    ///
    /// # Errors
    /// When it does not run.
    pub fn freeze(&self) -> Result<()> {
        let postmaster = self.pid().context("the server does not run")?;
        processes::signal(postmaster, Signal::STOP)?;
        self.signal_children(postmaster, Signal::STOP)
    }

    /// Lets them go on.
    ///
    /// # Errors
    /// When it does not run.
    pub fn thaw(&self) -> Result<()> {
        let postmaster = self.pid().context("the server does not run")?;
        self.signal_children(postmaster, Signal::CONT)?;
        processes::signal(postmaster, Signal::CONT)
    }

    /// The end of what it has logged.
    pub fn log(&self) -> String {
        let log = fs::read(self.log_file()).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(TAIL)..]).into_owned()
    }

    fn make_cluster(&self) -> Result<()> {
        let mut initdb = self.command("initdb");
        initdb.arg("-D").arg(self.data_dir()).args(["-U", USER, "-A", "scram-sha-256"]);
        initdb.args(["-E", "UTF8", "--locale=C", "--data-checksums"]);
        if self.settings.syncs == Syncs::Never {
            initdb.arg("--no-sync");
        }
        // Nobody else looks into the folder.
        let passwords = self.folder.join("password");
        fs::write(&passwords, &self.password)?;
        let output = initdb.arg("--pwfile").arg(&passwords).output().context("initdb does not start")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "initdb ends with {}: {}", output.status, said.trim());
        Ok(())
    }

    /// One of PostgreSQL's programs, as its user, and deaf to what interrupts this process from a terminal.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        // Messages that are looked for are those of the locale C. Its own variables set nothing by accident.
        command.current_dir(&self.folder).process_group(0).env("LC_ALL", "C");
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")) {
            command.env_remove(name);
        }
        if let Some(user) = self.user {
            user.run(&mut command);
        }
        command
    }

    fn until_ready(&mut self) -> Result<()> {
        let (data, deadline) = (self.data_dir(), Instant::now() + PATIENCE);
        loop {
            let running = self.running.as_mut().context("the server was started")?;
            if let Some(status) = running.try_wait()? {
                self.ended()?;
                bail!("the server ends with {status}:\n{}", self.log());
            }
            if is_ready(&data, running.id()) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "the server does not start:\n{}", self.log());
            thread::sleep(GLANCE);
        }
    }

    fn ended(&mut self) -> Result<()> {
        if let Some(mut running) = self.running.take() {
            running.wait()?;
        }
        self.guardian.watch(None)
    }

    fn signal_children(&self, postmaster: u32, signal: Signal) -> Result<()> {
        for child in processes::children(postmaster)? {
            // It may have ended by itself.
            drop(processes::signal(child, signal));
        }
        Ok(())
    }

    fn log_file(&self) -> PathBuf {
        self.folder.join("log")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.guardian.finish();
        if let Some(mut running) = self.running.take() {
            // The guardian has seen to it that it ends.
            drop(running.wait());
        }
    }
}

/// Whether the lock file of this server, not that of one before, says that connections are accepted.
fn is_ready(data: &Path, pid: u32) -> bool {
    let lock = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    let lines: Vec<&str> = lock.lines().map(str::trim).collect();
    lines.first() == Some(&pid.to_string().as_str()) && lines.get(7) == Some(&"ready")
}

/// Those that are free now, beginning somewhere.
fn free_ports() -> Result<impl Iterator<Item = u16>> {
    let first = PORTS.start + u16::from_be_bytes(random()?) % (PORTS.end - PORTS.start);
    let ports = (first..PORTS.end).chain(PORTS.start..first);
    Ok(ports.filter(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()))
}

/// 32 random digits.
fn password() -> Result<String> {
    Ok(random::<16>()?.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

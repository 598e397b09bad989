//! Servers that start, crash, start again, and leave nothing behind.
#![cfg(unix)]

use std::{
    env,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use test_postgres::{Server, Settings};

/// Names the variable with which this binary is started as a process that is killed.
const CHILD: &str = "TEST_POSTGRES_CHILD";

#[test]
fn a_server_starts_and_answers_and_its_folder_goes_with_it() {
    let server = Server::start(&Settings::fast()).unwrap();
    assert!(answers(server.port()));
    assert!(server.url().starts_with("postgres://postdate:"), "{}", server.url());
    assert!(server.url_of("other").ends_with(&format!("@127.0.0.1:{}/other", server.port())));
    let (folder, port) = (server.data_dir(), server.port());
    assert!(folder.is_dir());
    drop(server);
    assert!(!folder.parent().unwrap().exists() && !answers(port));
}

#[test]
fn a_server_that_was_killed_or_stopped_starts_again_on_its_data() {
    let mut server = Server::start(&Settings::durable()).unwrap();
    let (url, first) = (server.url(), server.pid());
    server.kill().unwrap();
    assert!(server.pid().is_none() && !answers(server.port()));
    assert!(server.data_dir().join("postmaster.pid").exists(), "it had time to clean up");
    server.start_again().unwrap();
    assert!(answers(server.port()));
    assert!(server.log().contains("was not properly shut down"), "{}", server.log());
    server.stop().unwrap();
    assert!(!answers(server.port()));
    server.start_again().unwrap();
    assert!(answers(server.port()) && server.url() == url && server.pid() != first);
}

#[test]
fn settings_reach_the_server_and_its_errors_reach_the_caller() {
    let error = Server::start(&Settings::fast().option("max_connections", "none")).unwrap_err();
    assert!(
        format!("{error:#}").contains("invalid value for parameter \"max_connections\": \"none\""),
        "{error:#}"
    );
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no such folder");
    assert!(Server::start(&Settings::fast().placed_in(&folder)).is_err());
}

#[test]
fn a_frozen_server_says_nothing_until_it_is_thawed() {
    let server = Server::start(&Settings::fast()).unwrap();
    server.freeze().unwrap();
    let mut stream = ask(server.port()).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(stream.read(&mut [0]).is_err());
    server.thaw().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 1);
}

#[test]
fn nothing_is_left_of_a_process_that_was_killed() {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "plays_the_process_that_is_killed", "--nocapture"])
        .env(CHILD, "yes")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let port: u16 = lines.by_ref().find_map(|line| line.strip_prefix("port ")?.parse().ok()).unwrap();
    let folder = lines.find_map(|line| line.strip_prefix("data ").map(PathBuf::from)).unwrap();
    assert!(answers(port) && folder.is_dir());
    child.kill().unwrap();
    child.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while folder.parent().unwrap().exists() || answers(port) {
        assert!(Instant::now() < deadline, "{} is left", folder.display());
        thread::sleep(Duration::from_millis(10));
    }
    let processes = Command::new("ps").args(["-A", "-o", "args="]).output().unwrap();
    let folder = folder.to_str().unwrap();
    assert!(!String::from_utf8_lossy(&processes.stdout).contains(folder), "a process of {folder} is left");
}

/// Nothing but the child of the test above.
#[test]
fn plays_the_process_that_is_killed() {
    if env::var_os(CHILD).is_none() {
        return;
    }
    let server = Server::start(&Settings::fast()).unwrap();
    let mut out = std::io::stdout().lock();
    writeln!(out, "port {}\ndata {}", server.port(), server.data_dir().display()).unwrap();
    out.flush().unwrap();
    // Until it is killed; by itself after a while.
    thread::sleep(Duration::from_secs(60));
}

#[test]
fn tests_share_a_server() {
    // Where the variable is set, it is that; its server need not be ours.
    let url = test_postgres::url();
    assert_eq!(url, test_postgres::url());
    assert!(env::var(test_postgres::VARIABLE).is_ok_and(|set| set == url) || url.contains("@127.0.0.1:"));
}

/// Asks for encryption, the one question that needs no words.
fn ask(port: u16) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    // Length and code of an SSLRequest.
    stream.write_all(&[8_u32.to_be_bytes(), 80_877_103_u32.to_be_bytes()].concat())?;
    Ok(stream)
}

/// Whether a server of PostgreSQL says yes or no.
fn answers(port: u16) -> bool {
    let mut answer = [0];
    ask(port).and_then(|mut stream| stream.read_exact(&mut answer)).is_ok() && matches!(answer, [b'N' | b'S'])
}

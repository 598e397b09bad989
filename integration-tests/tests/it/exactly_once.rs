//! Kills a process that stores and delivers, again and again, and looks at what arrived.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader},
    process::{Child, ChildStdout, Command, Stdio},
};

use postdate::{Backend, EndpointName, QueuedMessage, TransactionMode};

use crate::scene::{Scene, ids};

/// Messages and kills: `POSTDATE_FULL=1` for the size that a release is judged by.
fn size() -> (usize, usize) {
    if std::env::var_os("POSTDATE_FULL").is_some() { (100_000, 20) } else { (10_000, 8) }
}

#[tokio::test]
async fn every_acknowledged_message_arrives_exactly_once_over_kills() {
    let scene = Scene::new();
    let (messages, kills) = size();
    let acknowledged = produce_over_kills(&scene, TransactionMode::TransactionScope, messages, kills);
    let arrived = scene.queued("billing").await;
    assert_nothing_lost_or_invented(&acknowledged, &arrived);
    let distinct: BTreeSet<_> = ids(&arrived).into_iter().collect();
    assert_eq!(distinct.len(), arrived.len(), "some arrived twice");
    assert_nothing_left(&scene).await;
}

#[tokio::test]
async fn at_least_once_delivers_twice_only_what_a_kill_interrupted() {
    let scene = Scene::new();
    let (messages, kills) = (size().0 / 4, size().1 / 2);
    let acknowledged = produce_over_kills(&scene, TransactionMode::ReceiveOnly, messages, kills);
    let arrived = scene.queued("billing").await;
    assert_nothing_lost_or_invented(&acknowledged, &arrived);
    let distinct: BTreeSet<_> = ids(&arrived).into_iter().collect();
    // By default two batches of 500 are on their way.
    assert!(arrived.len() - distinct.len() <= kills * 2 * 500, "more arrived twice than were on their way");
    assert_nothing_left(&scene).await;
}

/// Lets children send until enough was acknowledged in all; each but the last is killed while it works.
fn produce_over_kills(
    scene: &Scene,
    mode: TransactionMode,
    messages: usize,
    kills: usize,
) -> BTreeSet<String> {
    let mut acknowledged = BTreeSet::new();
    for run in 0..=kills {
        let mut child = start(scene, run, mode);
        let enough = messages * (run + 1) / (kills + 1);
        let output = BufReader::new(child.stdout.take().unwrap());
        read(output, &mut acknowledged, enough, || {
            if run < kills { child.kill().unwrap() } else { drop(child.stdin.take()) }
        });
        let status = child.wait().unwrap();
        assert_eq!(status.success(), run == kills, "run {run} ended with {status}");
    }
    acknowledged
}

fn start(scene: &Scene, run: usize, mode: TransactionMode) -> Child {
    Command::new(env!("CARGO_BIN_EXE_dispatcher-child"))
        .arg(scene.path())
        .args([run.to_string(), mode.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Reads until the child's end; ends it by `end` at the moment at which `enough` are acknowledged.
fn read(
    mut output: BufReader<ChildStdout>,
    acknowledged: &mut BTreeSet<String>,
    enough: usize,
    mut end: impl FnMut(),
) {
    let mut line = String::new();
    let mut ended = false;
    while output.read_line(&mut line).unwrap() > 0 {
        // A line without an end was cut off by the kill.
        if let Some(id) = line.strip_suffix('\n') {
            assert!(acknowledged.insert(id.to_owned()), "{id} was acknowledged twice");
        }
        line.clear();
        if !ended && acknowledged.len() >= enough {
            ended = true;
            end();
        }
    }
    assert!(ended, "the child ended by itself");
}

fn assert_nothing_lost_or_invented(acknowledged: &BTreeSet<String>, arrived: &[QueuedMessage]) {
    let ids: BTreeSet<_> = ids(arrived).into_iter().map(str::to_owned).collect();
    let lost: Vec<_> = acknowledged.difference(&ids).collect();
    assert!(
        lost.is_empty(),
        "{} of {} are lost: {:?}",
        lost.len(),
        acknowledged.len(),
        &lost[..lost.len().min(5)]
    );
    for queued in arrived {
        let id = queued.message.id.as_str();
        assert_eq!(queued.message.body, id.as_bytes(), "the body of {id}");
        assert_eq!(queued.message.headers.decode().unwrap().get("id"), Some(id), "the headers of {id}");
    }
}

async fn assert_nothing_left(scene: &Scene) {
    let endpoint = EndpointName::new("kill").unwrap();
    let store = scene.open().await.open(&endpoint, TransactionMode::None).await.unwrap();
    assert_eq!(store.stats().await.unwrap().pending, 0);
    assert_eq!(scene.queued("error").await, []);
}

//! Kills processes that store and deliver, again and again, and judges what happened.

use postdate::TransactionMode;

use crate::children::{Child, Role, Run};

/// Messages and kills: `POSTDATE_FULL=1` for the size that a release is judged by.
fn size() -> (usize, usize) {
    if std::env::var_os("POSTDATE_FULL").is_some() { (100_000, 20) } else { (10_000, 8) }
}

#[tokio::test]
async fn every_acknowledged_message_arrives_exactly_once_over_kills() {
    let mut run = Run::new("exactly-once", TransactionMode::TransactionScope);
    let (messages, kills) = size();
    produce_over_kills(&mut run, 1, messages, kills);
    let counts = run.judge().await.counts;
    assert!(counts.acknowledged >= messages as u64);
    assert_eq!((counts.lost, counts.duplicated, counts.moved, counts.unexpected), (0, 0, 0, 0));
}

#[tokio::test]
async fn at_least_once_delivers_twice_only_what_a_kill_interrupted() {
    let mut run = Run::new("at-least-once", TransactionMode::ReceiveOnly);
    let (messages, kills) = (size().0 / 4, size().1 / 2);
    produce_over_kills(&mut run, 1, messages, kills);
    let counts = run.judge().await.counts;
    assert_eq!((counts.lost, counts.moved, counts.unexpected), (0, 0, 0));
    // By default two batches of 500 are on their way.
    assert!(counts.duplicated <= kills as u64 * 2 * 500, "more arrived twice than were on their way");
}

#[tokio::test]
async fn what_a_killed_dispatcher_leaves_another_process_takes_over() {
    let mut run = Run::new("take-over", TransactionMode::TransactionScope);
    let (messages, kills) = (size().0 / 4, size().1 / 2);
    produce_over_kills(&mut run, 3, messages, kills);
    let dispatchers = run.dispatchers();
    assert!(dispatchers.len() > kills / 2, "only {dispatchers:?} ever dispatched");
    let counts = run.judge().await.counts;
    assert_eq!((counts.lost, counts.duplicated, counts.moved), (0, 0, 0));
}

/// Lets so many children at a time send until enough was acknowledged in all. Again and again one that dispatches
/// is killed while it works, and another is started.
fn produce_over_kills(run: &mut Run, at_a_time: usize, messages: usize, kills: usize) {
    let mut children: Vec<_> = (0..at_a_time).map(|_| run.start(Role::Busy)).collect();
    let mut acknowledged = 0;
    for kill in 1..=kills {
        let enough = messages * kill / (kills + 1);
        while acknowledged < enough {
            for child in &children {
                child.line().expect("a child ended by itself");
                acknowledged += 1;
            }
        }
        let dispatchers = run.dispatchers();
        let victim = children.iter().rposition(|child| dispatchers.contains(&child.number)).unwrap_or(0);
        acknowledged += run.kill(children.remove(victim));
        children.push(run.start(Role::Busy));
    }
    while acknowledged < messages {
        for child in &children {
            child.line().expect("a child ended by itself");
            acknowledged += 1;
        }
    }
    // All of them: as long as one goes on there is something to deliver.
    children.iter_mut().for_each(Child::end_input);
    for child in children {
        let (number, status) = (child.number, child.finish());
        assert!(status.success(), "process {number} ended with {status}");
    }
}

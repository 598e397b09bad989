//! A process that dispatches is paused in the midst of it, and goes on later.

use std::{process::Command, sync::Arc};

use postdate::{Backend, Cancellation, Due, EndpointName, Message, MessageId, TransactionMode};
use postdate_history::{RecordedBackend, What, file::Recorder};

use crate::{
    children::{Child, Role, Run},
    scene::{address, eventually, id},
};

const MESSAGES: usize = 50;
/// Of the other process, meanwhile.
const MORE: usize = 200;

#[tokio::test]
async fn what_a_paused_dispatcher_holds_nobody_else_sends_and_it_goes_on_when_it_wakes() {
    let mut run = Run::new("paused", TransactionMode::ReceiveOnly);
    let outside = Arc::new(Recorder::open(&run.archive.file_of(0), None).unwrap());
    let sqlite = run.scene.open_with(&["billing", "error"]).await;
    let (recorded, endpoint) = (RecordedBackend::new(sqlite, outside), EndpointName::new("kill").unwrap());
    recorded.set_up(&endpoint).await.unwrap();
    let store = recorded.open(&endpoint, TransactionMode::None).await.unwrap();
    let message = |number: usize| {
        let id = MessageId::new(format!("early-{number}")).unwrap();
        Message::new("early").id(id).to(address("billing"), Due::NOW)
    };
    store.store(&(0..MESSAGES).map(message).collect::<Vec<_>>()).await.unwrap();

    let mut holder = run.start(Role::Held);
    let is_sending = async || {
        let history = run.archive.history_of(holder.number).unwrap();
        history.iter().any(|event| matches!(event.what, What::Sending { .. }))
    };
    eventually("sending", is_sending).await;
    signal(&holder, "STOP");
    holder.let_send();

    let other = run.start(Role::Busy);
    for _ in 0..MORE {
        other.line().expect("a process may store while another dispatches");
    }
    let held = id("early-0");
    assert_eq!(store.cancel(std::slice::from_ref(&held)).await.unwrap(), [Cancellation::InFlight]);
    assert_eq!(run.scene.queued("billing").await.len(), 0, "who cannot dispatch sends nothing");
    assert!(
        !run.dispatchers().contains(&other.number),
        "the right to dispatch stays with the paused process"
    );

    signal(&holder, "CONT");
    eventually("delivery", async || run.scene.queued("billing").await.len() >= MESSAGES + MORE).await;
    for child in [other, holder] {
        let status = child.finish();
        assert!(status.success(), "{status}");
    }
    let counts = run.judge().await.counts;
    assert_eq!((counts.lost, counts.duplicated, counts.moved), (0, 0, 0));
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([format!("-{name}"), child.id().to_string()]).status().unwrap();
    assert!(status.success(), "kill -{name} ended with {status}");
}

//! The messages: as large as those of the benches, and due at the same times.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

/// 1 KiB of body, 200 bytes of headers, for one queue; text, because all peers keep JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Message {
    destination: String,
    headers: String,
    body: String,
    /// Milliseconds since 1970.
    due: i64,
}

impl Message {
    /// Due some time within the last minute.
    pub(crate) fn overdue() -> Self {
        Self::due_at(Utc::now() - TimeDelta::milliseconds((random() % 60_000) as i64))
    }

    pub(crate) fn due_at(due: DateTime<Utc>) -> Self {
        let due = due.timestamp_millis();
        Self { destination: "billing".into(), headers: text(200), body: text(1_024), due }
    }

    pub(crate) fn due(&self) -> DateTime<Utc> {
        DateTime::from_timestamp_millis(self.due).unwrap_or_default()
    }
}

fn text(chars: usize) -> String {
    const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    let mut text = String::with_capacity(chars + 9);
    while text.len() < chars {
        let bits = random();
        text.extend((0..10).map(|letter| char::from(LETTERS[(bits >> (letter * 6) & 63) as usize])));
    }
    text.truncate(chars);
    text
}

/// The generator splitmix64.
fn random() -> u64 {
    static STATE: AtomicU64 = AtomicU64::new(0);
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut bits = STATE.fetch_add(STEP, Relaxed).wrapping_add(STEP);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

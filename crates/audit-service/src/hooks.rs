//! Sends checkpoints elsewhere. A checkpoint out of this host's reach proves later that the log was not rewritten.
//!
//! A newer checkpoint covers all that an older one covers, so only the last one is ever sent. A slow or missing receiver delays
//! only itself: the writer never waits.

#![expect(clippy::disallowed_methods, reason = "the checkpoint file that the configuration names")]

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use audit::Checkpoint;
use serde_json::json;
use timestamp::{Timestamp, UnixMillis};
use tokio::sync::watch;
use webhook::{Endpoint, Failed, Sender, backoff};

use crate::thread::Signed;

/// First and longest pause between attempts to append one checkpoint.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

#[derive(Debug)]
pub struct Couriers {
    /// File to which each checkpoint is appended, with an empty line between.
    pub file: Option<PathBuf>,
    /// Webhook to which each checkpoint is posted, signed.
    pub webhook: Option<(Endpoint, Sender)>,
}

impl Couriers {
    /// Delivers until the log is closed and its last checkpoint is delivered. Ends without that delivery if it fails then.
    ///
    /// File and webhook do not wait for each other.
    pub async fn run(self, checkpoints: watch::Receiver<Option<Signed>>) {
        let Self { file, webhook } = self;
        let appended = follow(file, checkpoints.clone(), async |file, (checkpoint, _), newer| {
            deliver(file, checkpoint, newer).await;
            true
        });
        let posted = follow(webhook, checkpoints, async |(endpoint, sender), signed, newer| {
            post(endpoint, sender, &signed, newer).await
        });
        tokio::join!(appended, posted);
    }
}

/// Delivers each checkpoint to one destination, if there is any, until `deliver` returns false.
async fn follow<P>(
    destination: Option<P>,
    mut checkpoints: watch::Receiver<Option<Signed>>,
    deliver: impl AsyncFn(&P, Signed, &mut watch::Receiver<Option<Signed>>) -> bool,
) {
    let Some(destination) = destination else { return };
    loop {
        let signed = checkpoints.borrow_and_update().clone();
        if let Some(signed) = signed
            && !deliver(&destination, signed, &mut checkpoints).await
        {
            return;
        }
        if checkpoints.changed().await.is_err() {
            return;
        }
    }
}

/// Retries until it succeeds, a newer checkpoint exists, the log is closed, or all attempts are used up. Returns false if the
/// receiver accepts no further checkpoints.
async fn post(
    endpoint: &Endpoint,
    sender: &Sender,
    signed: &Signed,
    newer: &mut watch::Receiver<Option<Signed>>,
) -> bool {
    let size = signed.0.size;
    let id = format!("checkpoint-{}-{size}", signed.0.log);
    let body = message(signed);
    for attempt in 1..=endpoint.attempts {
        match sender.post(endpoint, &id, UnixMillis::now().seconds(), &body).await {
            Ok(()) => return true,
            Err(Failed { message, for_good: true }) => {
                tracing::error!(size, "checkpoints are no longer posted: {message}");
                return false;
            }
            Err(Failed { message, .. }) => {
                tracing::warn!(size, attempt, "a checkpoint could not be posted: {message}");
            }
        }
        let random = uuid::Uuid::new_v4().as_u128();
        if attempt < endpoint.attempts && !rest(backoff(endpoint.first_retry, attempt, random), newer).await {
            return true;
        }
    }
    tracing::error!(size, "a checkpoint was not posted; the next one covers it");
    true
}

fn message((checkpoint, key): &Signed) -> Vec<u8> {
    let Checkpoint { log, size, root, note } = checkpoint;
    let data = json!({
        "log": log.to_string(), "size": size, "root": root.to_string(), "note": note, "verifier_key": key,
    });
    let now = Timestamp::now().to_string();
    json!({ "type": "audit.checkpoint", "timestamp": now, "data": data }).to_string().into_bytes()
}

/// Waits before the next attempt. Returns false if a newer checkpoint exists, which the caller sees again, or if the log is closed.
async fn rest(pause: Duration, newer: &mut watch::Receiver<Option<Signed>>) -> bool {
    tokio::select! {
        () = tokio::time::sleep(pause) => true,
        changed = newer.changed() => {
            if changed.is_ok() {
                newer.mark_changed();
            }
            false
        }
    }
}

/// Retries until it succeeds, a newer checkpoint exists, or the log is closed.
async fn deliver(file: &Path, checkpoint: Checkpoint, newer: &mut watch::Receiver<Option<Signed>>) {
    let mut pause = PAUSES.0;
    loop {
        let (path, note) = (file.to_owned(), checkpoint.note.clone());
        let appended = tokio::task::spawn_blocking(move || append(&path, &note)).await;
        match appended.map_err(io::Error::other).and_then(|result| result) {
            Ok(()) => return,
            Err(error) => {
                tracing::warn!(size = checkpoint.size, error = %error, "a checkpoint could not be appended to its file");
            }
        }
        if !rest(pause, newer).await {
            return;
        }
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Appends with one write, so that a reader finds whole checkpoints.
fn append(path: &Path, note: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).mode(0o644).open(path)?;
    let text = if file.metadata()?.len() == 0 { note.to_owned() } else { format!("\n{note}") };
    file.write_all(text.as_bytes())?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::Value;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;
    use webhook::{Secret, Target};

    use super::*;

    fn checkpoint(size: u64) -> Checkpoint {
        let key = tempfile::tempdir().unwrap();
        let (mut writer, _) = audit::Writer::open(&key.path().join("log")).unwrap();
        let signer = writer.signer(&key.path().join("key")).unwrap();
        for _ in 1..size {
            writer.append(&audit::Event::new(audit::Kind::Alert)).unwrap();
        }
        writer.checkpoint(&signer).unwrap().unwrap()
    }

    #[tokio::test]
    async fn the_last_one_arrives_although_the_file_failed_and_the_log_was_closed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("gone/checkpoints");
        let (sender, receiver) = watch::channel(None);
        let run = tokio::spawn(Couriers { file: Some(file.clone()), webhook: None }.run(receiver));
        sender.send_replace(Some((checkpoint(1), String::new())));
        // The first cannot be delivered; the second replaces it.
        tokio::time::sleep(Duration::from_millis(50)).await;
        fs::create_dir(directory.path().join("gone")).unwrap();
        let last = [checkpoint(2), checkpoint(3)];
        for checkpoint in &last {
            sender.send_replace(Some((checkpoint.clone(), String::new())));
            while !fs::read_to_string(&file).is_ok_and(|text| text.ends_with(&checkpoint.note)) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        drop(sender);
        run.await.unwrap();
        let text = fs::read_to_string(file).unwrap();
        let expected = Checkpoint::parse_all(&text).unwrap();
        assert_eq!(expected[expected.len() - 2..], last);
    }

    /// A destination that gives each request the next answer, and returns the requests.
    async fn destination(mut answers: Vec<Option<&'static str>>) -> (u16, mpsc::UnboundedReceiver<Value>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sent, received) = mpsc::unbounded_channel();
        answers.reverse();
        tokio::spawn(async move {
            // Those that get no answer stay open.
            let mut hanging = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = Vec::new();
                while !request.ends_with(b"}") {
                    let mut piece = [0; 1024];
                    let count = stream.read(&mut piece).await.unwrap();
                    request.extend_from_slice(&piece[..count]);
                }
                let text = String::from_utf8(request).unwrap();
                let (head, body) = text.split_once("\r\n\r\n").unwrap();
                assert!(
                    head.contains("webhook-signature: v1,") && head.contains("webhook-id: checkpoint-"),
                    "{head}"
                );
                sent.send(serde_json::from_str(body).unwrap()).unwrap();
                match answers.pop().unwrap_or(Some("204 No Content")) {
                    Some(status) => {
                        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                    None => hanging.push(stream),
                }
            }
        });
        (port, received)
    }

    fn couriers(port: u16, timeout: Duration) -> Couriers {
        let endpoint = Endpoint {
            name: "test".to_owned(),
            target: Target::parse(&format!("http://127.0.0.1:{port}/"), false).unwrap(),
            secret: Some(Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap()),
            timeout,
            attempts: 3,
            first_retry: Duration::from_millis(20),
        };
        Couriers { file: None, webhook: Some((endpoint, Sender::new().unwrap())) }
    }

    fn signed(size: u64) -> Signed {
        (checkpoint(size), "a key".to_owned())
    }

    #[tokio::test]
    async fn a_failing_or_hanging_destination_is_retried_and_given_up_until_the_next_checkpoint() {
        let (port, mut sent) = destination(vec![
            Some("500 No"),
            None,
            Some("204 No Content"),
            Some("503 No"),
            Some("503 No"),
            Some("503 No"),
        ])
        .await;
        // Before a destination is awaited, because nothing else runs while they are made.
        let [first, second, third] = [2, 3, 4].map(signed);
        let (sender, receiver) = watch::channel(Some(first.clone()));
        let run = tokio::spawn(couriers(port, Duration::from_millis(200)).run(receiver));
        for _ in 0..3 {
            let message = sent.recv().await.unwrap();
            assert_eq!(
                (&message["type"], &message["data"]["size"]),
                (&json!("audit.checkpoint"), &json!(first.0.size))
            );
            assert_eq!(message["data"]["note"], first.0.note);
        }
        // Given up after three attempts: the fourth would be answered well.
        sender.send_replace(Some(second.clone()));
        for _ in 0..3 {
            assert_eq!(sent.recv().await.unwrap()["data"]["size"], second.0.size);
        }
        sender.send_replace(Some(third.clone()));
        assert_eq!(sent.recv().await.unwrap()["data"]["size"], third.0.size);
        drop(sender);
        run.await.unwrap();
        assert!(sent.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_gone_webhook_gets_nothing_further_and_a_newer_checkpoint_replaces_a_failed_one() {
        let (port, mut sent) = destination(vec![Some("500 No"), Some("410 Gone")]).await;
        let (sender, receiver) = watch::channel(Some(signed(2)));
        let mut couriers = couriers(port, Duration::from_secs(5));
        couriers.webhook.as_mut().unwrap().0.first_retry = Duration::from_secs(600);
        let run = tokio::spawn(couriers.run(receiver));
        assert_eq!(sent.recv().await.unwrap()["data"]["size"], signed(2).0.size);
        sender.send_replace(Some(signed(5)));
        assert_eq!(sent.recv().await.unwrap()["data"]["size"], signed(5).0.size);
        run.await.unwrap();
        sender.send_replace(Some(signed(6)));
        assert!(sent.try_recv().is_err());
    }
}

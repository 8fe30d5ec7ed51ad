//! Downloads a file or a tree. The guest's bytes go to the client at the client's pace, and none of them are stored.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use calls::Metadata;
use identity::Principal;
use operations::Reason;
use parking_lot::Mutex;
use refusal::Refusal;
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use wire::v1::call_response::Status as CallStatus;
use wire::v1::{self, call_request, operation::Kind};
use worker_protocol::client::{DOWNLOAD_HEADER, OutputSink, OutputStream};

use super::Service;

/// Maximum number of pieces between the guest and the client.
const WAITING: usize = 8;
/// Time that the client has to take the next message.
const PATIENCE: Duration = Duration::from_secs(60);

/// A message of a download.
pub(super) enum Sent {
    Begin(v1::DownloadBegun),
    Data(Bytes),
    End(Box<v1::DownloadEnded>),
}

/// Sink that passes the guest's bytes to the client.
struct Way<M> {
    client: mpsc::Sender<Result<M, Status>>,
    /// Bytes of the header that have arrived.
    header: Mutex<Vec<u8>>,
    /// Notified if the client takes no message.
    stalled: Notify,
}

impl Service {
    pub(super) fn download<M: From<Sent> + Send + 'static>(
        &self,
        principal: Arc<Principal>,
        run_id: String,
        read: v1::ReadRequest,
        wait_for_approval: bool,
        metadata: Metadata,
    ) -> ReceiverStream<Result<M, Status>> {
        let (client, stream) = mpsc::channel(WAITING);
        let way = Arc::new(Way { client: client.clone(), header: Mutex::default(), stalled: Notify::new() });
        let operation = v1::Operation { kind: Some(Kind::Read(read)) };
        let request = v1::CallRequest {
            run_id,
            wait_for_approval,
            cancel_on_disconnect: true,
            request: Some(call_request::Request::Operation(operation)),
            ..Default::default()
        };
        let calls = self.calls.clone();
        self.tasks.spawn(async move {
            // Dropping the future cancels the call.
            let made = tokio::select! {
                made = calls::download(&calls, &principal, request, way.clone(), metadata) => made.and_then(ended),
                () = client.closed() => return,
                () = way.stalled.notified() => {
                    let message = format!("the client read nothing for {} s", PATIENCE.as_secs());
                    Err(Refusal::new(Reason::TimedOut, message))
                }
            };
            let last = made.map(|ended| Sent::End(Box::new(ended)).into()).map_err(Status::from);
            let _ = timeout(PATIENCE, client.send(last)).await;
        });
        ReceiverStream::new(stream)
    }
}

/// Returns the last message of a download, or the reason why it failed.
fn ended(response: v1::CallResponse) -> Result<v1::DownloadEnded, Refusal> {
    let call_id = response.call_id.clone();
    match (response.status(), response.result.and_then(|result| result.kind)) {
        (CallStatus::Succeeded, Some(v1::result::Kind::Read(result))) => {
            Ok(v1::DownloadEnded { call_id, result: Some(result) })
        }
        (CallStatus::PendingApproval, _) => {
            let message = "the download needs an approval: wait for it with wait_for_approval";
            Err(Refusal::new(Reason::ApprovalDenied, message)
                .with("call_id", call_id)
                .with("approval", "pending")
                .with("approval_id", response.approval_id))
        }
        _ => Err(Refusal::from(response.error.unwrap_or_default()).with("call_id", call_id)),
    }
}

impl<M: From<Sent> + Send + 'static> Way<M> {
    async fn send(&self, sent: Sent) {
        match timeout(PATIENCE, self.client.send(Ok(sent.into()))).await {
            // If the client is gone, the call is cancelled.
            Ok(_) => {}
            Err(_) => self.stalled.notify_one(),
        }
    }

    /// Takes the header off. Returns the first message when the header is complete, and the bytes after the header.
    fn header(&self, data: Bytes) -> (Option<v1::DownloadBegun>, Bytes) {
        let mut header = self.header.lock();
        let missing = (DOWNLOAD_HEADER - header.len()).min(data.len());
        if missing == 0 {
            return (None, data);
        }
        header.extend_from_slice(&data[..missing]);
        let begun = header.split_first_chunk::<8>().and_then(|(size, mode)| {
            // The mode comes from a guest, so only the permission bits are kept.
            let mode = u32::from_be_bytes(<[u8; 4]>::try_from(mode).ok()?) & 0o777;
            Some(v1::DownloadBegun { size_bytes: u64::from_be_bytes(*size), mode })
        });
        (begun, data.slice(missing..))
    }
}

impl<M: From<Sent> + Send + 'static> OutputSink for Way<M> {
    fn take(&self, _: OutputStream, _: u64, data: Bytes) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let (begun, data) = self.header(data);
            if let Some(begun) = begun {
                self.send(Sent::Begin(begun)).await;
            }
            if !data.is_empty() {
                self.send(Sent::Data(data)).await;
            }
        })
    }
}

//! Exchanges the first frame of each direction.

use operations::Environment;
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use wire::worker::v1::{FromWorker, Hello, ToWorker, from_worker, to_worker};

use crate::PROTOCOL;
use crate::client::{ConnectError, Peer};
use crate::frame::{FrameBuffer, encode};

const NONCE: usize = 32;
/// Bytes that are read at once before the worker is verified. A hello is short.
const READ: usize = 1024;

/// Sends a hello and checks the answer. Bytes that came after it stay in the buffer.
///
/// Without an environment the worker waits for that of its run.
pub(super) async fn exchange(
    output: &mut (impl AsyncWrite + Unpin),
    input: &mut (impl AsyncRead + Unpin),
    environment: Option<&Environment>,
) -> Result<(Peer, FrameBuffer), ConnectError> {
    let mut nonce = [0; NONCE];
    getrandom(&mut nonce, GetRandomFlags::empty()).map_err(|errno| ConnectError::Random(errno.into()))?;
    let hello = Hello {
        protocol: PROTOCOL,
        nonce: nonce.to_vec(),
        environment: environment.map(|environment| environment.variables().clone()).unwrap_or_default(),
        variables_follow: environment.is_none(),
        ..Hello::default()
    };
    output.write_all(&encode(&ToWorker { id: 0, body: Some(to_worker::Body::Hello(hello)) })?).await?;
    output.flush().await?;

    let mut buffer = FrameBuffer::new();
    let mut bytes = [0; READ];
    let first = loop {
        if let Some(frame) = buffer.pop::<FromWorker>()? {
            break frame;
        }
        let count = input.read(&mut bytes).await?;
        if count == 0 {
            return Err(ConnectError::Closed);
        }
        buffer.extend(&bytes[..count]);
    };
    let FromWorker { id: 0, body: Some(from_worker::Body::Hello(hello)) } = first else {
        return Err(ConnectError::NotHello);
    };
    if hello.protocol != PROTOCOL {
        return Err(ConnectError::Version(hello.protocol));
    }
    if hello.nonce != nonce {
        return Err(ConnectError::Nonce);
    }
    Ok((Peer { pid: hello.pid, channel: hello.channel }, buffer))
}

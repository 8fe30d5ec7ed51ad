//! Serves one client on standard input and output.

use std::error::Error;

use rmcp::serve_server;
use rmcp::service::QuitReason;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::stdio_pipes;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::bridge::Bridge;

/// Longest line that is accepted, bytes: more than any call's arguments may have. A longer one is dropped.
const LONGEST_LINE: usize = 4 * 1024 * 1024;

/// Serves the client that started this process, until it closes standard input.
///
/// No other code may write to standard output.
pub async fn serve_stdio(bridge: Bridge) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (input, output) = stdio_pipes();
    Box::pin(serve(bridge, input, output)).await
}

/// Serves the client at the other end of two streams, until it closes its side.
pub async fn serve(
    bridge: Bridge,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let transport = AsyncRwTransport::new(input, output).with_max_line_length(LONGEST_LINE);
    let serving = serve_server(bridge, transport).await?;
    match serving.waiting().await? {
        QuitReason::JoinError(error) => Err(error.into()),
        _ => Ok(()),
    }
}

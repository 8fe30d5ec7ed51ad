//! Requests for companions: the program of an image, its start, and its output.

use std::io;

use bollard::container::LogOutput;
use bollard::query_parameters::{AttachContainerOptions, LogsOptions};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt as _};
use tokio::io::AsyncWriteExt as _;

use super::{ASKING, CHANGING, Engine, faults};
use crate::beside::ImageProgram;
use crate::engine::EngineError;
use crate::exec::ExecInput;
use crate::ids::{ContainerId, ImageId};

/// Standard input of a container.
pub struct ContainerInput {
    input: ExecInput,
    /// The other half of the connection, which the engine may end with it.
    _output: BoxStream<'static, Result<LogOutput, bollard::errors::Error>>,
}

impl ContainerInput {
    /// Writes everything that the container gets, and closes the input.
    pub async fn write(mut self, bytes: &[u8]) -> Result<(), EngineError> {
        let write = async {
            self.input.write_all(bytes).await?;
            self.input.flush().await?;
            self.input.shutdown().await
        };
        let written = tokio::time::timeout(CHANGING, write).await;
        let written = written.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        written.map_err(|error| faults::malformed("write to the container's input", &error))
    }
}

impl Engine {
    /// Returns the program that an image declares.
    pub async fn image_program(&self, image: &ImageId) -> Result<ImageProgram, EngineError> {
        let call = self.client.inspect_image(image.as_str());
        let config = self.within(ASKING, "look up the image", call).await?.config.unwrap_or_default();
        Ok(ImageProgram {
            entrypoint: config.entrypoint.unwrap_or_default(),
            command: config.cmd.unwrap_or_default(),
            env: config.env.unwrap_or_default(),
            directory: config.working_dir.unwrap_or_default(),
        })
    }

    /// Opens the standard input of a container that was not started yet, and whose specification has an open input.
    pub async fn attach_input(&self, id: &ContainerId) -> Result<ContainerInput, EngineError> {
        let options =
            AttachContainerOptions { stream: true, stdin: true, ..AttachContainerOptions::default() };
        let call = self.client.attach_container(id.as_str(), Some(options));
        let attached = self.within(CHANGING, "open the container's input", call).await?;
        Ok(ContainerInput { input: attached.input, _output: attached.output })
    }

    /// Returns what a container has written to its standard output and error. With `follow` goes on until the container ends.
    pub fn logs(
        &self,
        id: &ContainerId,
        follow: bool,
    ) -> impl Stream<Item = Result<Bytes, EngineError>> + Send + use<> {
        let options = LogsOptions {
            follow,
            stdout: true,
            stderr: true,
            tail: "all".to_owned(),
            ..LogsOptions::default()
        };
        let endpoint = self.endpoint.clone();
        let pieces = self.client.logs(id.as_str(), Some(options));
        pieces.map(move |piece| {
            let piece =
                piece.map_err(|error| faults::translate("read a container's log", &endpoint, error))?;
            Ok(piece.into_bytes())
        })
    }
}

//! Requests for companions: the program of an image, its start, and its output.

use std::io;

use bollard::query_parameters::{AttachContainerOptions, LogsOptions};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use tokio::io::AsyncWriteExt as _;

use super::{ASKING, CHANGING, Engine, faults};
use crate::beside::ImageProgram;
use crate::engine::EngineError;
use crate::ids::{ContainerId, ImageId};

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

    /// Starts a container whose specification has an open input, and gives it this input.
    pub async fn start_with_input(&self, id: &ContainerId, input: &[u8]) -> Result<(), EngineError> {
        let attempt = "give a program to the container";
        let options = AttachContainerOptions { stream: true, stdin: true, ..AttachContainerOptions::default() };
        let call = self.client.attach_container(id.as_str(), Some(options));
        let mut attached = self.within(CHANGING, attempt, call).await?;
        self.start(id).await?;
        let write = async {
            attached.input.write_all(input).await?;
            attached.input.flush().await?;
            attached.input.shutdown().await
        };
        let written = tokio::time::timeout(CHANGING, write).await;
        let written = written.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        written.map_err(|error| faults::malformed(attempt, &error))
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
            let piece = piece.map_err(|error| faults::translate("read a container's log", &endpoint, error))?;
            Ok(piece.into_bytes())
        })
    }
}

//! Processes that stay, as clients see them.

use std::time::Duration;

use tonic::{Status, Streaming};
use wire::v1::attach_process_response::Event;
use wire::v1::signal_process_request::Signal;
use wire::v1::{self, AttachProcessResponse, Process, ProcessRequest, ProcessStream};

use crate::run::RunHandle;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// A command, without more.
pub fn command(argv: &[&str]) -> ProcessRequest {
    let mut words = argv.iter().map(ToString::to_string);
    ProcessRequest { command: words.next().unwrap_or_default(), args: words.collect(), ..Default::default() }
}

/// A script, without more.
pub fn script(script: &str) -> ProcessRequest {
    ProcessRequest { script: script.to_owned(), ..Default::default() }
}

/// A script with 1.9 million bytes of arguments, near the most that a kernel takes.
pub fn long(script: &str) -> ProcessRequest {
    let argument = "x".repeat(100_000);
    let argv: Vec<&str> = ["sh", "-c", script].into_iter().chain([argument.as_str(); 19]).collect();
    command(&argv)
}

/// What was read of a process until now.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Read {
    /// Standard output, from the first byte that was asked for.
    pub stdout: Vec<u8>,
    /// Standard error, likewise.
    pub stderr: Vec<u8>,
    /// Bytes that were not there.
    pub missing: u64,
    /// The process, when the stream ended.
    pub process: Option<Process>,
}

impl Read {
    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    fn add(&mut self, response: AttachProcessResponse) {
        match response.event.unwrap() {
            Event::Output(output) if output.stream() == ProcessStream::Stderr => {
                self.stderr.extend(output.data);
            }
            Event::Output(output) => self.stdout.extend(output.data),
            Event::Gap(gap) => self.missing += gap.bytes,
            Event::Process(process) => self.process = Some(process),
        }
    }
}

impl RunHandle {
    /// Starts a process; a refusal is an error.
    pub async fn try_start(&mut self, process: ProcessRequest) -> Result<v1::StartProcessResponse, Status> {
        let request = v1::StartProcessRequest {
            run_id: self.id().to_owned(),
            process: Some(process),
            ..Default::default()
        };
        Ok(self.clients.processes.start_process(request).await?.into_inner())
    }

    /// Starts a process, which must succeed.
    pub async fn start(&mut self, process: ProcessRequest) -> Process {
        self.try_start(process).await.unwrap().process.unwrap()
    }

    /// A stream of what a process writes.
    pub async fn attach(
        &mut self,
        id: &str,
        offset: u64,
        follow: bool,
    ) -> Result<Streaming<AttachProcessResponse>, Status> {
        let request = v1::AttachProcessRequest {
            run_id: self.id().to_owned(),
            process_id: id.to_owned(),
            stdout_offset: offset,
            follow,
            ..Default::default()
        };
        Ok(self.clients.processes.attach_process(request).await?.into_inner())
    }

    /// What a process has written until now.
    pub async fn logs(&mut self, id: &str) -> Read {
        self.read(id, 0, false).await
    }

    /// What a process writes until it has ended.
    pub async fn all_of(&mut self, id: &str) -> Read {
        self.read(id, 0, true).await
    }

    async fn read(&mut self, id: &str, offset: u64, follow: bool) -> Read {
        let mut stream = self.attach(id, offset, follow).await.unwrap();
        let mut read = Read::default();
        let all = async {
            while let Some(response) = stream.message().await.unwrap() {
                read.add(response);
            }
        };
        tokio::time::timeout(PATIENCE, all).await.expect("the process does not end");
        read
    }

    /// Reads until this text has come.
    pub async fn until(&mut self, id: &str, text: &str) -> Read {
        let mut stream = self.attach(id, 0, true).await.unwrap();
        let mut read = Read::default();
        let seen = async {
            while !read.text().contains(text) {
                let next = stream.message().await.unwrap();
                read.add(next.unwrap_or_else(|| panic!("the process ended without `{text}`")));
                assert!(read.process.is_none() || read.text().contains(text), "no `{text}`: {}", read.text());
            }
        };
        tokio::time::timeout(PATIENCE, seen).await.unwrap_or_else(|_| panic!("`{text}` does not come"));
        read
    }

    /// Gives a process something to read.
    pub async fn feed(
        &mut self,
        id: &str,
        offset: u64,
        data: &[u8],
        close: bool,
    ) -> Result<v1::WriteStdinResponse, Status> {
        let (run_id, process_id) = (self.id().to_owned(), id.to_owned());
        let request = v1::WriteStdinRequest { run_id, process_id, offset, data: data.to_vec(), close };
        Ok(self.clients.processes.write_stdin(request).await?.into_inner())
    }

    /// Sends a process a signal.
    pub async fn send(&mut self, id: &str, signal: Signal) -> Result<(), Status> {
        let (run_id, process_id) = (self.id().to_owned(), id.to_owned());
        let request = v1::SignalProcessRequest { run_id, process_id, signal: signal.into() };
        self.clients.processes.signal_process(request).await.map(drop)
    }

    /// Waits until a process has ended, as long as it goes on writing.
    pub async fn waited(&mut self, id: &str) -> Process {
        let (run_id, process_id) = (self.id().to_owned(), id.to_owned());
        let request = v1::WaitProcessRequest { run_id, process_id, timeout: Some(wire::duration(PATIENCE)) };
        let mut written = 0;
        loop {
            let answer = self.clients.processes.wait_process(request.clone()).await.unwrap();
            let process = answer.into_inner().process.unwrap();
            if process.state() != v1::process::State::Running {
                return process;
            }
            assert!(process.stdout_bytes > written, "{process:?}");
            written = process.stdout_bytes;
        }
    }

    /// The processes of the run.
    pub async fn listed(&mut self) -> Vec<Process> {
        let request = v1::ListProcessesRequest { run_id: self.id().to_owned(), tag: String::new() };
        self.clients.processes.list_processes(request).await.unwrap().into_inner().processes
    }
}

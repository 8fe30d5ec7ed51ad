//! The requests of one operation, over streams of the caller's.
//!
//! A stream that the server keeps is used for the next request. Nothing follows a redirect, asks for compression or has a credential.

use std::rc::Rc;

use git_wire::Service;

use crate::advertisement::{self, Advertised};
use crate::body::Body;
use crate::error::RemoteError;
use crate::head::Head;
use crate::stream::{Budget, Stream};
use crate::url::RemoteUrl;
use crate::{Bounds, Dial};

/// Most bytes of a list of refs.
const LIST: usize = 64 * 1024 * 1024;
/// Most bytes of a body that are read for its words.
const WORDS: usize = 8 * 1024;
/// Bytes of a chunk.
const CHUNK: usize = 32 * 1024;
/// The program, in the form that servers expect of a client for smart HTTP.
const AGENT: &str = "git/2.0 (cofferdam)";

/// The server of one operation.
pub(crate) struct Server<'a> {
    url: &'a RemoteUrl,
    dial: &'a dyn Dial,
    pub(crate) budget: Rc<Budget>,
    kept: Option<Stream>,
}

/// A response whose body is being read.
#[derive(Debug)]
pub(crate) struct Response {
    stream: Stream,
    body: Body,
    is_kept: bool,
}

/// A request whose body is being sent in chunks.
#[derive(Debug)]
pub(crate) struct Sending {
    stream: Stream,
    chunk: Vec<u8>,
    /// True once the server takes no more. It may have answered.
    is_over: bool,
    service: Service,
}

impl<'a> Server<'a> {
    pub(crate) fn new(url: &'a RemoteUrl, dial: &'a dyn Dial, bounds: Bounds) -> Self {
        Self { url, dial, budget: Budget::new(bounds), kept: None }
    }

    /// Returns the refs that the server lists for a service.
    pub(crate) fn discover(&mut self, service: Service) -> Result<Advertised, RemoteError> {
        let head = format!(
            "GET {}/info/refs?service={} HTTP/1.1\r\nHost: {}\r\nUser-Agent: {AGENT}\r\nAccept: */*\r\n\r\n",
            self.url.path(),
            service.as_str(),
            self.url.authority(),
        );
        let mut stream = self.stream()?;
        // A refusal may come before the end of the request.
        stream.write(head.as_bytes())?;
        let mut response = Response::begin(stream, service.advertisement_type())?;
        let mut bytes = Vec::new();
        while response.read(&mut bytes)? {
            if bytes.len() > LIST {
                return Err(RemoteError::TooMuch(LIST as u64));
            }
        }
        self.keep(response);
        advertisement::parse(&bytes, service, self.budget.bounds.max_refs)
    }

    /// Sends a request with this body.
    pub(crate) fn post(&mut self, service: Service, body: &[u8]) -> Result<Response, RemoteError> {
        let mut stream = self.stream()?;
        let length = format!("Content-Length: {}", body.len());
        if stream.write(self.head(service, &length).as_bytes())? {
            stream.write(body)?;
        }
        Response::begin(stream, service.result_type())
    }

    /// Begins a request whose body is sent piece by piece.
    pub(crate) fn post_in_pieces(&mut self, service: Service) -> Result<Sending, RemoteError> {
        let mut stream = self.stream()?;
        let is_over = !stream.write(self.head(service, "Transfer-Encoding: chunked").as_bytes())?;
        Ok(Sending { stream, chunk: Vec::new(), is_over, service })
    }

    fn head(&self, service: Service, length: &str) -> String {
        format!(
            "POST {}/{} HTTP/1.1\r\nHost: {}\r\nUser-Agent: {AGENT}\r\nContent-Type: application/x-{}-request\r\n\
             Accept: {}\r\n{length}\r\n\r\n",
            self.url.path(),
            service.as_str(),
            self.url.authority(),
            service.as_str(),
            service.result_type(),
        )
    }

    fn stream(&mut self) -> Result<Stream, RemoteError> {
        if let Some(kept) = self.kept.take().filter(Stream::is_quiet) {
            return Ok(kept);
        }
        let socket = self.dial.dial(self.url.host(), self.url.port()).map_err(RemoteError::Dial)?;
        Stream::new(socket, Rc::clone(&self.budget))
    }

    /// Keeps the stream of a response that was read to its end.
    fn keep(&mut self, response: Response) {
        let Response { stream, body, is_kept } = response;
        self.kept = (is_kept && body.has_ended()).then_some(stream);
    }
}

impl Sending {
    /// Sends more of the body. Returns false if the server takes no more.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<bool, RemoteError> {
        self.chunk.extend_from_slice(bytes);
        if self.chunk.len() >= CHUNK {
            self.flush()?;
        }
        Ok(!self.is_over)
    }

    /// Ends the body, and returns the response.
    pub(crate) fn end(mut self) -> Result<Response, RemoteError> {
        self.flush()?;
        if !self.is_over {
            self.stream.write(b"0\r\n\r\n")?;
        }
        Response::begin(self.stream, self.service.result_type())
    }

    fn flush(&mut self) -> Result<(), RemoteError> {
        if self.chunk.is_empty() || self.is_over {
            return Ok(());
        }
        let mut framed = format!("{:x}\r\n", self.chunk.len()).into_bytes();
        framed.append(&mut self.chunk);
        framed.extend_from_slice(b"\r\n");
        self.is_over = !self.stream.write(&framed)?;
        Ok(())
    }
}

impl Response {
    /// Reads the head, which has to be of a success with this type.
    fn begin(mut stream: Stream, content_type: &str) -> Result<Self, RemoteError> {
        let head = Head::read(&mut stream)?;
        let (body, is_kept) = (Body::new(head.framing), head.is_kept);
        let mut response = Self { stream, body, is_kept };
        if head.status != 200 {
            return Err(RemoteError::of_status(head.status, &response.words(&head.content_type)));
        }
        if head.content_type != content_type {
            return Err(RemoteError::NotGit("it has another type"));
        }
        Ok(response)
    }

    /// Appends the next piece of the body. Returns false at its end.
    pub(crate) fn read(&mut self, out: &mut Vec<u8>) -> Result<bool, RemoteError> {
        self.body.read(&mut self.stream, out)
    }

    /// Returns the begin of a body in words.
    fn words(&mut self, content_type: &str) -> String {
        let mut bytes = Vec::new();
        if content_type.starts_with("text/plain") {
            // A body that breaks off has words as well.
            while bytes.len() < WORDS && matches!(self.read(&mut bytes), Ok(true)) {}
        }
        bytes.truncate(WORDS);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

//! Requests of git, on a connection whose rule is for git.
//!
//! A push is read up to its pack. The daemon decides about its commands, and no byte of it has left by then.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use git_wire::{
    Capabilities, CommandReader, Fault, Head, NotServed, Refusal, Request as GitRequest, Service, Step,
};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::PathAndQuery;
use hyper::{Request, StatusCode};
use tokio::time::timeout;
use wire::worker::v1::GitAsked;
use wire::worker::v1::connection_ended::Cause;
use wire::worker::v1::git_asked::Kind;

use super::rule::Refused;

/// Time for the commands of a push to arrive.
const LIST: Duration = Duration::from_secs(60);
/// Bytes of a refused request that are read, and the time for it. Git reads the answer only after it has sent its pack.
const DISCARDED: (usize, Duration) = (64 * 1024 * 1024, Duration::from_secs(30));

/// A request of git that the daemon has to be asked about.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) asked: GitAsked,
    /// Pieces of its body that have been read.
    pub(super) read: VecDeque<Bytes>,
    /// Response to a push whose server has closed the connection before it was decided about.
    pub(super) closed: Option<Refused>,
}

/// Reason of that response.
const CLOSED: &str = "the server closed the connection while the push was decided about; push again, a reviewer's consent to it holds";

/// Reads the head of a request, and the commands of a push.
pub(super) async fn begin<B>(request: &mut Request<B>) -> Result<Begun, Refused>
where
    B: Body<Data = Bytes> + Unpin,
{
    let parsed = parse(request).map_err(|kind| {
        let words = format!("Cofferdam refused this request: {kind}");
        refused(match kind {
            NotServed::Lfs => Refusal::of_lfs(&words),
            _ => Refusal::plain(&words),
        })
    })?;
    let kind = match &parsed {
        GitRequest::Discover { service: Service::UploadPack, .. } => Kind::DiscoverFetch,
        GitRequest::Discover { service: Service::ReceivePack, .. } => Kind::DiscoverPush,
        GitRequest::Fetch { .. } => Kind::Fetch,
        GitRequest::Push { .. } => Kind::Push,
    };
    let repository = parsed.repository().to_string();
    let mut asked = GitAsked { kind: kind.into(), repository, commands: Vec::new() };
    let (mut read, mut closed) = (VecDeque::new(), None);
    if kind == Kind::Push {
        let list = timeout(LIST, read_list(request.body_mut())).await;
        let (list, capabilities, rest) = list.unwrap_or_else(|_| {
            let words = format!("The commands of the push did not arrive within {} s.", LIST.as_secs());
            Err(Refused::new(StatusCode::REQUEST_TIMEOUT, Cause::Slow, &words))
        })?;
        asked.commands.clone_from(&list);
        closed =
            Some(Refused { cause: Cause::Closed, ..refused(Refusal::of_fault(Some(&capabilities), CLOSED)) });
        read.extend([Bytes::from(list), rest].into_iter().filter(|piece| !piece.is_empty()));
    }
    Ok(Begun { asked, read, closed })
}

fn parse<B>(request: &Request<B>) -> Result<GitRequest, NotServed> {
    let headers = request.headers();
    GitRequest::parse(&Head {
        method: request.method().as_str(),
        target: request.uri().path_and_query().map(PathAndQuery::as_str).unwrap_or_default(),
        content_type: one(headers, &CONTENT_TYPE, NotServed::ContentType)?,
        content_encoding: one(headers, &CONTENT_ENCODING, NotServed::Encoding)?,
        git_protocol: one(headers, &HeaderName::from_static("git-protocol"), NotServed::Version)?,
    })
}

/// Returns the value of a header that may be there once, as text.
fn one<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
    otherwise: NotServed,
) -> Result<Option<&'h str>, NotServed> {
    let mut values = headers.get_all(name).iter();
    match (values.next().map(HeaderValue::to_str), values.next()) {
        (None, _) => Ok(None),
        (Some(Ok(value)), None) => Ok(Some(value)),
        _ => Err(otherwise),
    }
}

/// Reads the commands of a push. Returns their bytes, the client's capabilities, and the bytes of the piece that come after them.
async fn read_list<B>(body: &mut B) -> Result<(Vec<u8>, Capabilities, Bytes), Refused>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut reader = CommandReader::default();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(mut piece) = frame.into_data() else { break };
        match reader.push(&piece) {
            Ok(Step::More) => {}
            Ok(Step::Complete(length)) => {
                let rest = piece.split_off(length.min(piece.len()));
                let (list, bytes) = reader.finish().map_err(|fault| of_fault(&fault))?;
                let may_go_on = list.has_pack() || rest.is_empty() && has_ended(body).await;
                if !may_go_on {
                    let words = "bytes come after commands that need no pack";
                    return Err(refused(Refusal::of_fault(Some(&list.capabilities), words)));
                }
                return Ok((bytes, list.capabilities, rest));
            }
            Err(fault) => {
                return Err(refused(Refusal::of_fault(reader.capabilities(), &fault.to_string())));
            }
        }
    }
    Err(of_fault(&Fault::Truncated))
}

fn of_fault(fault: &Fault) -> Refused {
    refused(Refusal::of_fault(None, &fault.to_string()))
}

/// Returns true if nothing more comes.
async fn has_ended<B>(body: &mut B) -> bool
where
    B: Body<Data = Bytes> + Unpin,
{
    loop {
        match body.frame().await {
            None => return true,
            Some(Ok(frame)) if frame.data_ref().is_some_and(Bytes::is_empty) => {}
            Some(_) => return false,
        }
    }
}

/// Reads the rest of the body of a refused request, within bounds.
pub(super) async fn discard<B>(body: &mut B)
where
    B: Body<Data = Bytes> + Unpin,
{
    let (most, time) = DISCARDED;
    let discarded = async {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, Bytes::len);
            if bytes > most {
                break;
            }
        }
    };
    let _ = timeout(time, discarded).await;
}

/// Returns true for the type of a response with a pack, which has a checksum: a changed byte would break it.
pub(super) fn is_pack(content_type: Option<&HeaderValue>) -> bool {
    content_type.is_some_and(|value| value.as_bytes() == Service::UploadPack.result_type().as_bytes())
}

fn refused(refusal: Refusal) -> Refused {
    let Refusal { status, content_type, body } = refusal;
    Refused {
        // Each refusal has a valid one.
        status: StatusCode::from_u16(status).unwrap_or(StatusCode::FORBIDDEN),
        cause: Cause::NotGit,
        content_type: HeaderValue::from_static(content_type),
        body: body.into(),
        retry_after: 0,
    }
}

#[cfg(test)]
mod tests;

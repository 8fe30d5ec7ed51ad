//! Reads the body of a request to a model before it goes out, to say how many tokens it may cost.
//!
//! Only a body of JSON is read, up to a bound, within a time, and while the process has memory for it. Otherwise it passes as it comes, and
//! the daemon assumes what it does not know, or refuses a body that could hide it. The question says which body lacked memory, because such
//! a body may be sent again. No request is refused here.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::Request;
use hyper::body::{Body, Frame};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE};
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use wire::worker::v1::ModelAsked;

/// Most bytes of a body that are read.
const MOST: usize = 1024 * 1024;
/// Bytes that a place is for.
const PLACE: usize = 1024;
/// Places for the bodies of all requests that are read at the same time.
const PLACES: usize = 16 * MOST / PLACE;
/// Time for a body to arrive, and for a place.
const TIME: Duration = Duration::from_secs(30);
/// Longest name of a model, bytes.
const NAME: usize = 128;

/// Parts of a body that have been read and are still to be sent, as they came.
pub(crate) struct Parts<E> {
    pub(crate) frames: VecDeque<Result<Frame<Bytes>, E>>,
    /// Given back when the parts are sent.
    _places: Option<OwnedSemaphorePermit>,
}

impl<E> Default for Parts<E> {
    fn default() -> Self {
        Self { frames: VecDeque::new(), _places: None }
    }
}

impl<E> Parts<E> {
    /// Makes parts of pieces that need no place.
    pub(crate) fn of(pieces: impl IntoIterator<Item = Bytes>) -> Self {
        let frames = pieces.into_iter().map(|piece| Ok(Frame::data(piece))).collect();
        Self { frames, _places: None }
    }

    /// Returns the number of bytes.
    pub(crate) fn length(&self) -> u64 {
        let pieces = self.frames.iter().flatten().filter_map(Frame::data_ref);
        pieces.map(|piece| u64::try_from(piece.len()).unwrap_or(u64::MAX)).sum()
    }
}

/// Fields of a request to a model, in the shapes that are common. A field that is there twice makes the body one that says nothing.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Said {
    model: Option<String>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    max_output_tokens: Option<u64>,
    /// Number of answers.
    n: Option<u64>,
    /// Number of answers that are made, of which the best are sent.
    best_of: Option<u64>,
}

/// Returns the places for bodies of a process.
pub(crate) fn places() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(PLACES))
}

/// Reads the body of a request. Returns what it says, if there is one, and the parts that were read of it.
pub(crate) async fn read<B>(
    request: &mut Request<B>,
    places: &Arc<Semaphore>,
) -> (Option<ModelAsked>, Parts<B::Error>)
where
    B: Body<Data = Bytes> + Unpin,
{
    if request.body().is_end_stream() {
        return (None, Parts::default());
    }
    let length = request.body().size_hint().exact();
    let mut asked = ModelAsked { body_bytes: length.unwrap_or_default(), ..ModelAsked::default() };
    let expected = length.map_or(Some(MOST), |length| usize::try_from(length).ok());
    let Some(expected) = expected.filter(|length| *length <= MOST) else {
        // Its length alone reserves more than answers have.
        return (Some(asked), Parts::default());
    };
    asked.is_unread = true;
    if !is_json(request) {
        return (Some(asked), Parts::default());
    }
    let wanted = u32::try_from(expected.div_ceil(PLACE)).unwrap_or(u32::MAX);
    let Ok(Ok(place)) = timeout(TIME, Arc::clone(places).acquire_many_owned(wanted)).await else {
        asked.lacked_memory = true;
        return (Some(asked), Parts::default());
    };
    let mut bytes = BytesMut::with_capacity(length.map_or(0, |_| expected));
    let end = timeout(TIME, collect(request.body_mut(), &mut bytes)).await.unwrap_or(End::Goes);
    asked.body_bytes = asked.body_bytes.max(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    asked.is_unread = bytes.len() <= MOST;
    if let End::Whole(_) = end
        && let Some(Said { model, max_tokens, .. }) = Said::parse(&bytes)
    {
        asked.is_unread = false;
        asked.max_tokens = max_tokens.unwrap_or_default();
        asked.model = model.unwrap_or_default();
    }
    let is_empty = bytes.is_empty() && matches!(end, End::Whole(_));
    let mut frames = VecDeque::from([Ok(Frame::data(bytes.freeze()))]);
    match end {
        End::Whole(trailers) => frames.extend(trailers.map(Ok)),
        End::Fails(error) => frames.push_back(Err(error)),
        End::Goes => {}
    }
    (Some(asked).filter(|_| !is_empty), Parts { frames, _places: Some(place) })
}

/// The end of the part of a body that was read.
enum End<E> {
    /// It is the whole body.
    Whole(Option<Frame<Bytes>>),
    /// More may come.
    Goes,
    Fails(E),
}

async fn collect<B>(body: &mut B, bytes: &mut BytesMut) -> End<B::Error>
where
    B: Body<Data = Bytes> + Unpin,
{
    while let Some(frame) = body.frame().await {
        match frame.map(Frame::into_data) {
            Ok(Ok(piece)) => bytes.extend_from_slice(&piece),
            Ok(Err(trailers)) => return End::Whole(Some(trailers)),
            Err(error) => return End::Fails(error),
        }
        if bytes.len() > MOST {
            return End::Goes;
        }
    }
    End::Whole(None)
}

impl Said {
    /// Reads a body. `max_tokens` is then the most of all fields, for all answers together.
    fn parse(json: &[u8]) -> Option<Self> {
        let said: Self = serde_json::from_slice(json).ok()?;
        let most = [said.max_tokens, said.max_completion_tokens, said.max_output_tokens].into_iter().max();
        let answers = said.n.max(said.best_of).unwrap_or(1).max(1);
        let max_tokens = most.flatten().map(|most| most.saturating_mul(answers));
        Some(Self { max_tokens, model: said.model.filter(|model| is_name(model)), ..Self::default() })
    }
}

fn is_name(model: &str) -> bool {
    model.len() <= NAME && model.bytes().all(|byte| byte.is_ascii_graphic())
}

fn is_json<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case("application/json") && !headers.contains_key(CONTENT_ENCODING)
}

#[cfg(test)]
mod tests;

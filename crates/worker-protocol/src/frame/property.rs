//! However a stream is cut into reads, the same messages come out of it, and the same end.

use bytes::Bytes;
use proptest::prelude::*;
use wire::v1;
use wire::worker::v1::from_worker::Body;
use wire::worker::v1::{self as w, FromWorker, ToWorker};

use super::{FrameBuffer, FrameError, MAX_FRAME, encode};

/// The messages read, and the end: true if no bytes of a frame are left, or the fault.
type Read<M> = (Vec<M>, Result<bool, FrameError>);

fn read<'s, M: prost::Message + Default>(reads: impl IntoIterator<Item = &'s [u8]>) -> Read<M> {
    let (mut buffer, mut messages) = (FrameBuffer::new(), Vec::new());
    for bytes in reads {
        buffer.extend(bytes);
        loop {
            match buffer.pop() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(fault) => return (messages, Err(fault)),
            }
        }
    }
    (messages, Ok(buffer.is_empty()))
}

/// Pieces of these lengths, one after the other and again, until the stream is over.
fn pieces<'s>(stream: &'s [u8], lengths: &[usize]) -> Vec<&'s [u8]> {
    let (mut pieces, mut rest) = (Vec::new(), stream);
    for length in lengths.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, left) = rest.split_at((*length).min(rest.len()));
        pieces.push(piece);
        rest = left;
    }
    pieces
}

fn body() -> impl Strategy<Value = Body> {
    let data = prop::collection::vec(any::<u8>(), 0..200);
    prop_oneof![
        any::<u32>().prop_map(|pid| Body::Spawned(w::Spawned { pid })),
        any::<(bool, u32)>().prop_map(|(forced, drain_pid)| Body::Ended(w::Ended { forced, drain_pid })),
        (0..4_i32, any::<u64>(), data).prop_map(|(stream, offset, data)| Body::Output(w::Output {
            stream,
            offset,
            data: Bytes::from(data)
        })),
        any::<u64>().prop_map(|bytes| Body::Taken(w::Taken { bytes })),
        Just(Body::Pong(w::Pong {})),
        "\\PC{0,40}".prop_map(|message| {
            let failure = v1::ToolFailure { reason: "NOT_FOUND".to_owned(), message, ..Default::default() };
            Body::Outcome(w::Outcome { kind: Some(w::outcome::Kind::Failure(failure)), ..Default::default() })
        }),
    ]
}

fn messages() -> impl Strategy<Value = Vec<FromWorker>> {
    let message = (any::<u64>(), prop::option::of(body())).prop_map(|(id, body)| FromWorker { id, body });
    prop::collection::vec(message, 0..6)
}

fn stream(messages: &[FromWorker]) -> Vec<u8> {
    messages.iter().flat_map(|message| encode(message).unwrap()).collect()
}

fn lengths() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1..64_usize, 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn x6_messages_survive_a_cut_at_every_byte(messages in messages()) {
        let stream = stream(&messages);
        for cut in 0..=stream.len() {
            let (before, after) = stream.split_at(cut);
            prop_assert_eq!(read([before, after]), (messages.clone(), Ok(true)), "cut at {}", cut);
        }
        prop_assert_eq!(read(stream.chunks(1)), (messages, Ok(true)));
    }

    #[test]
    fn x6_a_stream_that_ends_too_early_has_a_frame_cut(messages in messages(), lengths in lengths(), drop in 1..64_usize) {
        let whole = stream(&messages);
        let left = whole.len().saturating_sub(drop);
        let (got, end) = read::<FromWorker>(pieces(&whole[..left], &lengths));
        prop_assert_eq!(&got[..], &messages[..got.len()]);
        // Where the cut is between two frames, nothing can be seen of it.
        let seen: usize = got.iter().map(|message| encode(message).unwrap().len()).sum();
        prop_assert_eq!(end, Ok(seen == left));
    }

    #[test]
    fn x6_any_bytes_are_read_alike_however_they_are_split(
        messages in messages(),
        noise in prop::collection::vec(any::<u8>(), 0..40),
        at in any::<prop::sample::Index>(),
        lengths in lengths(),
    ) {
        let mut stream = stream(&messages);
        let at = at.index(stream.len() + 1);
        stream.splice(at..(at + noise.len()).min(stream.len()), noise);
        prop_assert_eq!(read::<FromWorker>(pieces(&stream, &lengths)), read([&stream[..]]));
        prop_assert_eq!(read::<ToWorker>(pieces(&stream, &lengths)), read([&stream[..]]));
    }

    #[test]
    fn x6_a_length_over_the_limit_ends_the_stream_at_its_fourth_byte(
        messages in messages(),
        length in prop_oneof![Just(MAX_FRAME + 1), MAX_FRAME + 1..=u32::MAX as usize],
        lengths in lengths(),
    ) {
        let mut stream = stream(&messages);
        stream.extend(u32::try_from(length).unwrap().to_be_bytes());
        prop_assert_eq!(read(pieces(&stream, &lengths)), (messages, Err(FrameError::TooLong(length))));
    }
}

#[test]
fn x6_a_frame_of_exactly_the_limit_is_read() {
    let empty = |length| {
        let data = Bytes::from(vec![b'x'; length]);
        FromWorker { id: 1, body: Some(Body::Output(w::Output { stream: 1, offset: 0, data })) }
    };
    let overhead = encode(&empty(1 << 21)).unwrap().len() - 4 - (1 << 21);
    let largest = empty(MAX_FRAME - overhead);
    let frame = encode(&largest).unwrap();
    assert_eq!(frame.len(), 4 + MAX_FRAME);
    assert_eq!(read(frame.chunks(65_536)), (vec![largest], Ok(true)));
    assert_eq!(encode(&empty(MAX_FRAME - overhead + 1)), Err(FrameError::TooLong(MAX_FRAME + 1)));
}

use std::convert::Infallible;

use futures_util::{StreamExt as _, stream};
use http_body_util::{Empty, Full, StreamBody};
use hyper::HeaderMap;

use super::*;

type Pieces = Vec<Result<Frame<Bytes>, &'static str>>;

fn request<B>(content_type: &str, body: B) -> Request<B> {
    Request::post("/v1/messages").header(CONTENT_TYPE, content_type).body(body).unwrap()
}

async fn said(json: &str) -> ModelAsked {
    let body = Full::new(Bytes::from(json.to_owned()));
    let (asked, parts) = read(&mut request("application/json; charset=utf-8", body), &places()).await;
    assert_eq!(parts.length(), u64::try_from(json.len()).unwrap());
    asked.unwrap()
}

#[tokio::test]
async fn the_bound_of_an_answer_is_read_in_both_shapes() {
    for (json, max_tokens, model, is_unread) in [
        (r#"{"model":"large-3","messages":[{"max_tokens":9}],"max_tokens":100}"#, 100, "large-3", false),
        (r#"{"max_completion_tokens":70,"model":"m","n":3}"#, 210, "m", false),
        (r#"{"max_output_tokens":70,"max_tokens":1,"best_of":4,"n":2}"#, 280, "", false),
        (r#"{"max\u005ftokens":5}"#, 5, "", false),
        (r#"{"max_tokens":null,"n":0,"model":"two words"}"#, 0, "", false),
        (r#"{"max_tokens":5,"max_tokens":9}"#, 0, "", true),
        (r#"{"max_tokens":-5}"#, 0, "", true),
        (r#"{"max_tokens":18446744073709551615,"n":9}"#, u64::MAX, "", false),
        ("not json", 0, "", true),
        ("[1]", 0, "", true),
    ] {
        let body_bytes = u64::try_from(json.len()).unwrap();
        let model = model.to_owned();
        let expected = ModelAsked { body_bytes, max_tokens, model, is_unread, lacked_memory: false };
        assert_eq!(said(json).await, expected, "{json}");
    }
    let deep = format!("{{\"a\":{}", "[".repeat(100_000));
    assert_eq!(said(&deep).await.max_tokens, 0);
    let long = "m".repeat(NAME + 1);
    assert_eq!(said(&format!("{{\"model\":\"{long}\"}}")).await.model, "");
}

#[tokio::test]
async fn a_body_that_is_no_json_or_too_long_is_not_read() {
    let nothing = read(&mut request("application/json", Empty::new()), &places()).await;
    assert_eq!((nothing.0, nothing.1.length()), (None, 0));
    let json = Bytes::from_static(b"{\"max_tokens\":5}");
    let long = Bytes::from(vec![b' '; MOST + 1]);
    for (content_type, body) in
        [("text/plain", json.clone()), ("", json.clone()), ("application/json", long.clone())]
    {
        let body_bytes = u64::try_from(body.len()).unwrap();
        // The length of a long one reserves enough.
        let is_unread = body.len() <= MOST;
        let (asked, parts) = read(&mut request(content_type, Full::new(body)), &places()).await;
        assert_eq!(asked, Some(ModelAsked { body_bytes, is_unread, ..ModelAsked::default() }));
        assert!(parts.frames.is_empty());
    }
    let mut compressed = request("application/json", Full::new(json));
    compressed.headers_mut().insert(CONTENT_ENCODING, "gzip".parse().unwrap());
    let (asked, parts) = read(&mut compressed, &places()).await;
    let asked = asked.unwrap();
    assert!(asked.is_unread && !asked.lacked_memory && parts.frames.is_empty());
    let empty = read(&mut request("application/json", pieces(vec![])), &places()).await;
    assert_eq!((empty.0, empty.1.length()), (None, 0));
}

fn pieces(pieces: Pieces) -> impl Body<Data = Bytes, Error = &'static str> + Unpin {
    StreamBody::new(stream::iter(pieces))
}

#[tokio::test]
async fn parts_go_on_as_they_came_with_trailers_and_errors() {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "7".parse().unwrap());
    let data = |text: &'static str| Ok(Frame::data(Bytes::from_static(text.as_bytes())));
    let all = vec![data("{\"max_to"), data("kens\":5}"), Ok(Frame::trailers(trailers))];
    let (asked, parts) = read(&mut request("application/json", pieces(all)), &places()).await;
    assert_eq!((asked.unwrap().max_tokens, parts.length(), parts.frames.len()), (5, 16, 2));
    assert!(parts.frames.back().unwrap().as_ref().unwrap().is_trailers());

    let broken = vec![data("{\"max_tokens\":5}"), Err("gone")];
    let (asked, parts) = read(&mut request("application/json", pieces(broken)), &places()).await;
    let asked = asked.unwrap();
    assert_eq!((asked.max_tokens, asked.is_unread), (0, true), "it is not whole");
    assert_eq!(parts.frames.back().unwrap().as_ref().err(), Some(&"gone"));
}

#[tokio::test(start_paused = true)]
async fn memory_is_bounded_and_a_body_that_waits_for_it_passes_unread_and_is_told_apart() {
    let endless = || {
        let first = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"{")))]);
        StreamBody::new(first.chain(stream::pending()))
    };
    let places = places();
    let mut held = Vec::new();
    for _ in 0..PLACES * PLACE / MOST {
        let (asked, parts) = read(&mut request("application/json", endless()), &places).await;
        let asked = asked.unwrap();
        assert_eq!((asked.body_bytes, parts.length()), (1, 1), "it goes on after its time");
        assert!(asked.is_unread && !asked.lacked_memory, "its program was slow");
        held.push(parts);
    }
    assert_eq!(places.available_permits(), 0);
    let (asked, parts) = read(&mut request("application/json", endless()), &places).await;
    let asked = asked.unwrap();
    assert!(asked.is_unread && asked.lacked_memory && parts.frames.is_empty());
    drop(held);
    assert_eq!(places.available_permits(), PLACES);
    let small = Full::new(Bytes::from_static(b"{}"));
    let kept = read(&mut request("application/json", small), &places).await;
    assert_eq!(places.available_permits(), PLACES - 1);
    drop(kept);
}

use std::convert::Infallible;

use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::Frame;

use super::*;

const TYPE: &str = "application/x-git-receive-pack-request";
const OLD: &str = "1111111111111111111111111111111111111111";
const NEW: &str = "2222222222222222222222222222222222222222";
const ZERO: &str = "0000000000000000000000000000000000000000";

/// Returns the commands of a push as packets.
fn commands(lines: &[String]) -> Vec<u8> {
    let packets = lines.iter().map(|line| format!("{:04x}{line}", line.len() + 4));
    (packets.collect::<String>() + "0000").into_bytes()
}

fn update() -> Vec<u8> {
    commands(&[format!("{OLD} {NEW} refs/heads/x\0 report-status side-band-64k")])
}

/// Returns a push whose body comes in these pieces.
fn push(pieces: &[&[u8]]) -> Request<impl Body<Data = Bytes, Error = Infallible> + Unpin> {
    let frames: Vec<_> =
        pieces.iter().map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::copy_from_slice(piece)))).collect();
    let body = StreamBody::new(stream::iter(frames));
    let request = Request::post("https://git.example.org/org/app.git/git-receive-pack");
    request.header(CONTENT_TYPE, TYPE).body(body).unwrap()
}

#[tokio::test]
async fn a_push_is_read_up_to_its_pack_in_pieces_of_any_size() {
    let whole = [&update()[..], b"PACK rest of the piece"].concat();
    for size in [1, 7, 60, whole.len()] {
        let pieces: Vec<_> = whole.chunks(size).collect();
        let mut request = push(&pieces);
        let Begun { asked, read, closed } = begin(&mut request).await.unwrap();
        assert_eq!((asked.kind(), asked.repository.as_str()), (Kind::Push, "org/app"));
        assert_eq!(asked.commands, update());
        let closed = String::from_utf8_lossy(&closed.unwrap().body).into_owned();
        assert!(closed.contains("unpack the server closed the connection"), "{closed}");
        let mut sent: Vec<u8> = read.into_iter().flatten().collect();
        while let Some(frame) = request.body_mut().frame().await {
            sent.extend_from_slice(frame.unwrap().data_ref().unwrap());
        }
        assert_eq!(sent, whole, "{size}");
    }
}

#[tokio::test]
async fn bytes_after_a_deletion_or_a_probe_are_refused() {
    let delete = commands(&[format!("{OLD} {ZERO} refs/heads/x\0 report-status")]);
    for list in [&delete[..], b"0000"] {
        assert_eq!(begin(&mut push(&[list])).await.unwrap().asked.commands, list);
        assert_eq!(begin(&mut push(&[list, b""])).await.unwrap().read.len(), 1);
        let joined = [list, b"PACK"].concat();
        for pieces in [vec![list, b"PACK"], vec![&joined[..]]] {
            let refused = begin(&mut push(&pieces)).await.unwrap_err();
            assert_eq!(refused.cause, Cause::NotGit);
        }
    }
}

#[tokio::test]
async fn a_fault_is_refused_in_the_form_that_the_client_reads() {
    let twice = [
        format!("{OLD} {NEW} refs/heads/x\0 report-status side-band-64k"),
        format!("{OLD} {NEW} refs/heads/x"),
    ];
    let refused = begin(&mut push(&[&commands(&twice)])).await.unwrap_err();
    assert_eq!((refused.status, refused.cause), (StatusCode::OK, Cause::NotGit));
    assert!(String::from_utf8_lossy(&refused.body).contains("a push has two commands for refs/heads/x"));
    let cut = begin(&mut push(&[&update()[..30]])).await.unwrap_err();
    assert_eq!(cut.status, StatusCode::FORBIDDEN);
    assert!(String::from_utf8_lossy(&cut.body).contains("ended before the list of commands"));
}

#[tokio::test(start_paused = true)]
async fn commands_that_do_not_arrive_are_not_waited_for() {
    let body = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
    let request = Request::post("https://git.example.org/org/app/git-receive-pack");
    let mut request = request.header(CONTENT_TYPE, TYPE).body(body).unwrap();
    assert_eq!(begin(&mut request).await.unwrap_err().cause, Cause::Slow);
    discard(request.body_mut()).await;
}

#[tokio::test]
async fn other_requests_are_refused_with_their_kind() {
    let get = |target: &str| Request::get(target).body(http_body_util::Empty::<Bytes>::new()).unwrap();
    let mut fetch = get("https://git.example.org/org/app/info/refs?service=git-upload-pack");
    assert_eq!(begin(&mut fetch).await.unwrap().asked.kind(), Kind::DiscoverFetch);
    for (target, words) in [
        ("https://git.example.org/org/app/HEAD", "dumb protocol"),
        ("https://git.example.org/api/v1/user", "allows git alone"),
        ("https://git.example.org/org/app.git/info/lfs/locks", "Git LFS"),
    ] {
        let refused = begin(&mut get(target)).await.unwrap_err();
        let body = String::from_utf8_lossy(&refused.body).into_owned();
        assert!(refused.status == StatusCode::FORBIDDEN && body.contains(words), "{body}");
    }
    let mut two = push(&[]);
    two.headers_mut().append(CONTENT_TYPE, HeaderValue::from_static(TYPE));
    let refused = begin(&mut two).await.unwrap_err();
    assert!(String::from_utf8_lossy(&refused.body).contains("another content type"));
}

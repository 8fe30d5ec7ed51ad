//! A run as a place to work in, under the profile `harness`: commands in a session that lasts, and large files in and out.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use harness::v1::file_service_client::FileServiceClient;
use harness::v1::session_service_client::SessionServiceClient;
use harness::v1::{
    BeginUpload, DownloadFileRequest, RunInSessionRequest, SessionRequest, UploadFileRequest,
    download_file_response, session_result, upload_file_request,
};
use harness::{calls, files};
use prost::bytes::Bytes;
use ring::rand::{SecureRandom as _, SystemRandom};
use tonic::transport::Channel;

use crate::args::Args;
use crate::contest::{self, Act, Contender, Parts, hold};
use crate::report::{Goal, Report};
use crate::stage::Stage;

/// Commands in each round.
const TURNS: usize = 10;
/// Bytes of the file that is carried.
const BYTES: usize = 256 << 20;
/// Bytes of one message: what the SDKs send.
const PIECE: usize = 1 << 20;
/// Bytes a second that a transfer should reach, where the disk does.
const RATE: f64 = 300.0 * 1024.0 * 1024.0;
/// As many bytes as a client of the SDKs lets come before it has read any.
const WINDOW: u32 = 2 << 20;

/// A command in a session, against an `exec` of the same.
pub(crate) async fn sessions(args: &Args, report: &mut Report) {
    let mut stage = Stage::workplace().await;
    let session = stage.run.open().await;
    let contenders = vec![
        Contender::new("in a session", TURNS, in_session(&stage, &session).await),
        Contender::new(
            "exec",
            TURNS,
            contest::call(&stage, calls::exec(&["true"]), &Parts::default(), |_| {}).await,
        ),
    ];
    let samples = hold(contenders, args.rounds).await;
    let [session, exec] = report.contest("true, as a command", samples, &Parts::default());
    let over = session.saturating_sub(exec);
    report.goal(Goal::millis_at_most("a command in a session, over exec", over, 3.0));
}

async fn in_session<'a>(stage: &'a Stage, session: &str) -> Act<'a> {
    let client = SessionServiceClient::new(stage.connect().await);
    let request = RunInSessionRequest {
        run_id: stage.run.id().to_owned(),
        session: Some(SessionRequest {
            session_id: session.to_owned(),
            command: "true".to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    };
    Box::new(move || {
        let (mut client, request) = (client.clone(), request.clone());
        Box::pin(async move {
            let began = Instant::now();
            let answer = client.run_in_session(request).await.unwrap();
            let took = began.elapsed();
            let result = answer.into_inner().result.unwrap();
            assert_eq!((result.state(), result.exit_code), (session_result::State::Done, Some(0)));
            took
        })
    })
}

/// A large file up and down, against writing as much to the disk.
pub(crate) async fn files(args: &Args, report: &mut Report) {
    let stage = Stage::workplace().await;
    // What no disk and no wire can make smaller.
    let mut content = vec![0; BYTES];
    SystemRandom::new().fill(&mut content).unwrap();
    let content = Bytes::from(content);
    let contenders = vec![
        Contender::new("upload", 1, upload(&stage, content.clone()).await),
        Contender::new("download", 1, download(&stage).await),
        Contender::new("written and synced", 1, written(stage.daemon.outside().join("written"), content)),
    ];
    let samples = hold(contenders, args.rounds.min(10)).await;
    let [up, down, disk] = report.contest("a file of 256 MiB", samples, &Parts::default());
    #[allow(clippy::cast_precision_loss)] // far below 2^52
    let wanted = Duration::from_secs_f64(BYTES as f64 / RATE);
    for (what, took) in [("upload", up), ("download", down)] {
        let what = format!("{what}, against 300 MiB/s or the disk");
        report.goal(Goal::ratio_at_most(what, took, wanted.max(disk), 1.0));
    }
}

async fn client(stage: &Stage) -> FileServiceClient<Channel> {
    FileServiceClient::new(stage.connect_with(WINDOW).await)
}

/// The sum is given, as every SDK does: what is timed is what the daemon makes of it.
async fn upload(stage: &Stage, content: Bytes) -> Act<'_> {
    let client = client(stage).await;
    let first = BeginUpload {
        run_id: stage.run.id().to_owned(),
        path: "large".to_owned(),
        size_bytes: Some(BYTES as u64),
        sha256: files::sha256(&content),
        ..Default::default()
    };
    Box::new(move || {
        let (mut client, first, content) = (client.clone(), first.clone(), content.clone());
        Box::pin(async move {
            let pieces = (0..BYTES).step_by(PIECE).map(move |at| content.slice(at..at + PIECE));
            let messages = std::iter::once(upload_file_request::Piece::Begin(first))
                .chain(pieces.map(upload_file_request::Piece::Data))
                .map(|piece| UploadFileRequest { piece: Some(piece) });
            let began = Instant::now();
            let answer = client.upload_file(tokio_stream::iter(messages)).await.unwrap();
            let took = began.elapsed();
            assert_eq!(answer.into_inner().result.unwrap().bytes_written, BYTES as u64);
            took
        })
    })
}

async fn download(stage: &Stage) -> Act<'_> {
    let client = client(stage).await;
    let request = DownloadFileRequest {
        run_id: stage.run.id().to_owned(),
        path: "large".to_owned(),
        ..Default::default()
    };
    Box::new(move || {
        let (mut client, request) = (client.clone(), request.clone());
        Box::pin(async move {
            let began = Instant::now();
            let mut stream = client.download_file(request).await.unwrap().into_inner();
            let mut length = 0;
            while let Some(message) = stream.message().await.unwrap() {
                if let Some(download_file_response::Piece::Data(data)) = message.piece {
                    length += data.len();
                }
            }
            let took = began.elapsed();
            assert_eq!(length, BYTES);
            took
        })
    })
}

fn written<'a>(path: PathBuf, content: Bytes) -> Act<'a> {
    Box::new(move || {
        let began = Instant::now();
        let mut file = File::create(&path).unwrap();
        file.write_all(&content).unwrap();
        file.sync_all().unwrap();
        let took = began.elapsed();
        Box::pin(async move { took })
    })
}

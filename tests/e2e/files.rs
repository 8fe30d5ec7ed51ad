//! Files and trees of any size, into a run and out of it.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::files::{archive, contents, sha256};
use harness::v1::upload_file_request::Piece;
use harness::v1::{self, BeginUpload, UploadFileRequest};
use harness::{Daemon, RunHandle, binary, calls, debian, reason, record, requests};
use tokio_stream::wrappers::ReceiverStream;

const MIB: usize = 1 << 20;
const ID: &str = "0192a7c0-0000-7000-8000-000000000001";

/// Bytes that do not repeat soon.
fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at ^ (at >> 8) ^ (at >> 16).wrapping_mul(31)).to_le_bytes()[0]).collect()
}

/// Files that uploads have left.
fn left(daemon: &Daemon, run: &RunHandle) -> usize {
    let uploads = daemon.state_dir().join("host-worker").join(run.id()).join("uploads");
    std::fs::read_dir(uploads).map_or(0, Iterator::count)
}

async fn nothing_is_left(daemon: &Daemon, run: &RunHandle) {
    let gone = async {
        while left(daemon, run) > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.expect("the upload's file stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_larger_than_any_message_goes_in_and_out_under_one_pair_of_records_each() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let content = bytes(40 * MIB + 17);
    let hash = sha256(&content);
    for path in ["data/large.bin", "@state/large.bin"] {
        let begin = BeginUpload {
            size_bytes: Some(content.len() as u64),
            sha256: hash.clone(),
            mode: Some(0o751),
            ..run.begin(path)
        };
        let answer = run.upload_with(begin, &content).await.unwrap();
        let result = answer.result.unwrap();
        assert_eq!((result.sha256_after.as_str(), result.created), (hash.as_str(), true));

        let all = run.download(path, 0).await.unwrap();
        assert!(all.data == content, "{path}");
        let first = all.begun.unwrap();
        assert_eq!((first.size_bytes, first.mode), (content.len() as u64, 0o751));
        assert_eq!(all.ended.unwrap().result.unwrap().sha256, hash);
        let offset = 33 * MIB + 5;
        let rest = run.download(path, offset as u64).await.unwrap();
        assert!(rest.data == content[offset..]);
        let ended = rest.ended.unwrap().result.unwrap();
        assert_eq!((ended.sha256.as_str(), ended.sent_bytes), (hash.as_str(), rest.data.len() as u64));

        let told = |events: Vec<v1::AuditEvent>| {
            events.iter().map(record).find(|record| record["call_id"] == answer.call_id).unwrap()
        };
        let id = run.id().to_owned();
        let intent = told(run.clients.events(&id, "call_intent").await);
        assert_eq!(intent["operation"], "write");
        assert_eq!(intent["input"]["content"]["sha256"], hash.as_str());
        let receipt = told(run.clients.events(&id, "call_receipt").await);
        assert_eq!(receipt["outcome"]["facts"]["bytes_written"], content.len());
    }
    let seen = run.ran(calls::exec(&["sha256sum", "data/large.bin", "/state/large.bin"])).await.stdout;
    assert_eq!(seen.matches(&hash).count(), 2, "{seen}");
    nothing_is_left(&daemon, &run).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transfers_refuse_like_write_and_read_and_are_recorded() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    for (path, expected) in [
        (".git/hooks/pre-commit", "SANDBOX_VIOLATION"),
        ("../x", "SANDBOX_VIOLATION"),
        ("@pkg/x", "SANDBOX_VIOLATION"),
        ("/proc/self/environ", "SANDBOX_VIOLATION"),
    ] {
        let begin = run.begin(path);
        let refused = run.upload_with(begin, b"x").await.unwrap_err();
        assert_eq!(reason(&refused), expected, "{path}: {refused}");
        let refused = run.download(path, 0).await.unwrap_err();
        assert!(["SANDBOX_VIOLATION", "NOT_FOUND"].contains(&&*reason(&refused)), "{path}: {refused}");
    }
    // A link is not written through, and what is no file is not read.
    run.ran(calls::shell("ln -s /tmp/x link; mkfifo pipe; mkdir directory")).await;
    let begin = run.begin("link");
    assert_eq!(reason(&run.upload_with(begin, b"x").await.unwrap_err()), "SANDBOX_VIOLATION");
    assert_eq!(reason(&run.download("pipe", 0).await.unwrap_err()), "SANDBOX_VIOLATION");
    assert_eq!(reason(&run.download("directory", 0).await.unwrap_err()), "INVALID_ARGUMENT");
    assert_eq!(reason(&run.download("absent", 0).await.unwrap_err()), "NOT_FOUND");
    let id = run.id().to_owned();
    let refused: Vec<_> = run.clients.events(&id, "call_receipt").await.iter().map(record).collect();
    let refused = refused.iter().filter(|record| record["outcome"]["reason"] == "SANDBOX_VIOLATION").count();
    assert!(refused >= 6, "{refused}");
    nothing_is_left(&daemon, &run).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_false_stream_leaves_nothing_and_changes_nothing() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    run.upload("f", b"old").await;
    for (begin, expected) in [
        (BeginUpload { sha256: sha256(b"other"), ..run.begin("f") }, "PRECONDITION_FAILED"),
        (BeginUpload { size_bytes: Some(4), ..run.begin("f") }, "PRECONDITION_FAILED"),
        (BeginUpload { size_bytes: Some(2), ..run.begin("f") }, "WRITE_LIMIT"),
        (BeginUpload { size_bytes: Some(5 << 30), ..run.begin("f") }, "WRITE_LIMIT"),
        (BeginUpload { offset: 1, ..run.begin("f") }, "NOT_FOUND"),
        (BeginUpload { upload_id: "../../x".to_owned(), ..run.begin("f") }, "INVALID_ARGUMENT"),
        (BeginUpload { mode: Some(0o4755), ..run.begin("f") }, "INVALID_ARGUMENT"),
        (BeginUpload { create_only: true, ..run.begin("f") }, "PRECONDITION_FAILED"),
        (BeginUpload { if_match_sha256: sha256(b"x"), ..run.begin("f") }, "PRECONDITION_FAILED"),
    ] {
        let told = format!("{begin:?}");
        let refused = run.upload_with(begin, b"new").await.unwrap_err();
        assert_eq!(reason(&refused), expected, "{told}: {refused}");
        assert_eq!(run.download("f", 0).await.unwrap().data, b"old", "{told}");
    }
    // Without a size or a hash nothing tells its end from that of a client which is killed.
    let bare = UploadFileRequest { piece: Some(Piece::Begin(run.begin("f"))) };
    let refused = run.clients.files.upload_file(tokio_stream::iter([bare])).await.unwrap_err();
    assert_eq!(reason(&refused), "INVALID_ARGUMENT", "{refused}");
    // Nobody takes an upload by its name that is not there, and no download without a client.
    let uploaded = v1::UploadedContent {
        upload_id: ID.to_owned(),
        size_bytes: 3,
        sha256: sha256(b"old"),
        archive: false,
    };
    let by_name = v1::WriteRequest { path: "f".to_owned(), uploaded: Some(uploaded), ..Default::default() };
    let failure = run.fails(v1::operation::Kind::Write(by_name)).await;
    assert_eq!(failure.reason, "NOT_FOUND");
    let unheard =
        v1::ReadRequest { path: "f".to_owned(), transfer: v1::Transfer::File.into(), ..Default::default() };
    assert_eq!(run.fails(v1::operation::Kind::Read(unheard)).await.reason, "INVALID_ARGUMENT");
    nothing_is_left(&daemon, &run).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_ends_early_is_not_accepted_as_whole() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let content = bytes(3 * MIB);
    let whole = Some(content.len() as u64);
    let begin = BeginUpload { upload_id: ID.to_owned(), size_bytes: whole, ..run.begin("f") };
    let early = run.upload_with(begin.clone(), &content[..MIB]).await.unwrap_err();
    assert_eq!(reason(&early), "CANCELLED", "{early}");
    assert_eq!(reason(&run.download("f", 0).await.unwrap_err()), "NOT_FOUND");
    let rest = BeginUpload { offset: MIB as u64, sha256: sha256(&content), ..begin };
    run.upload_with(rest, &content[MIB..]).await.unwrap();
    assert!(run.download("f", 0).await.unwrap().data == content);
    nothing_is_left(&daemon, &run).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_run_ends_an_upload_that_broke_off() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let begin = BeginUpload { upload_id: ID.to_owned(), size_bytes: Some(9 << 20), ..run.begin("f") };
    let pieces = [Piece::Begin(begin.clone()), Piece::Data(bytes(MIB).into()), Piece::Begin(begin)];
    let messages = pieces.map(|piece| UploadFileRequest { piece: Some(piece) });
    assert!(run.clients.files.upload_file(tokio_stream::iter(messages)).await.is_err());
    let request = v1::GetUploadRequest { run_id: run.id().to_owned(), upload_id: ID.to_owned() };
    assert!(run.clients.files.get_upload(request.clone()).await.is_ok(), "it waits for its client");
    run.clients.runs.stop_run(v1::StopRunRequest { run_id: run.id().to_owned() }).await.unwrap();
    let gone = async {
        while run.clients.files.get_upload(request.clone()).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.expect("it goes with its run");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_upload_is_resumed_at_its_offset() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let content = bytes(9 * MIB);
    let whole = Some(content.len() as u64);
    let begin = BeginUpload { upload_id: ID.to_owned(), size_bytes: whole, ..run.begin("f") };
    let received = async |run: &mut RunHandle| {
        let request = v1::GetUploadRequest { run_id: run.id().to_owned(), upload_id: ID.to_owned() };
        run.clients.files.get_upload(request).await.map(|answer| answer.into_inner().received_bytes)
    };
    let (messages, stream) = tokio::sync::mpsc::channel(16);
    let mut other = RunHandle { clients: daemon.connect().await, ..run.clone() };
    let streamed =
        tokio::spawn(async move { other.clients.files.upload_file(ReceiverStream::new(stream)).await });
    let say = async |piece| messages.send(UploadFileRequest { piece: Some(piece) }).await.unwrap();
    say(Piece::Begin(begin.clone())).await;
    for piece in content[..5 * MIB].chunks(MIB) {
        say(Piece::Data(piece.to_vec().into())).await;
    }
    let busy = async {
        while reason(&received(&mut run).await.unwrap_err()) != "ALREADY_EXISTS" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), busy).await.unwrap();
    // A message that cannot come here breaks the stream.
    say(Piece::Begin(begin.clone())).await;
    let broken = streamed.await.unwrap().unwrap_err();
    assert_eq!(reason(&broken), "INVALID_ARGUMENT", "{broken}");
    drop(messages);
    let kept = async {
        loop {
            match received(&mut run).await {
                Ok(kept) => return usize::try_from(kept).unwrap(),
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    let kept = tokio::time::timeout(Duration::from_secs(20), kept).await.unwrap();
    assert!(kept <= 5 * MIB && !daemon.log().contains("panicked"));
    assert_eq!(
        reason(&run.download("f", 0).await.unwrap_err()),
        "NOT_FOUND",
        "nothing appears before it is whole"
    );
    let wrong = BeginUpload { offset: kept as u64 + 1, ..begin.clone() };
    assert_eq!(reason(&run.upload_with(wrong, &content).await.unwrap_err()), "PRECONDITION_FAILED");
    let rest = BeginUpload { offset: kept as u64, sha256: sha256(&content), ..begin };
    run.upload_with(rest, &content[kept..]).await.unwrap();
    assert!(run.download("f", 0).await.unwrap().data == content);
    nothing_is_left(&daemon, &run).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_that_asks_for_write_asks_for_an_upload_and_the_bound_is_the_profile_s() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("review")).await;
    let large = BeginUpload { size_bytes: Some(64 * MIB as u64 + 1), ..run.begin("f") };
    assert_eq!(reason(&run.upload_with(large, b"").await.unwrap_err()), "WRITE_LIMIT");
    let begin = run.begin("f");
    let asked = run.upload_with(begin, b"from an upload").await.unwrap();
    assert!(!asked.approval_id.is_empty() && asked.result.is_none());
    assert_eq!(left(&daemon, &run), 1, "it is kept for its call");
    let id = run.id().to_owned();
    let approval = run.clients.pending_approval(&id).await;
    assert!(approval.preview.contains("14 bytes"), "{}", approval.preview);
    run.clients.approve(&asked.approval_id).await.unwrap();
    let written = async {
        while run.download("f", 0).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), written).await.unwrap();
    assert_eq!(run.download("f", 0).await.unwrap().data, b"from an upload");
    nothing_is_left(&daemon, &run).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_or_leaving_client_does_not_block_others() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    run.upload("f", &bytes(24 * MIB)).await;
    let mut open = Vec::new();
    for _ in 0..4 {
        let mut other = daemon.connect().await;
        let request = v1::DownloadFileRequest {
            run_id: run.id().to_owned(),
            path: "f".to_owned(),
            ..Default::default()
        };
        open.push(other.files.download_file(request).await.unwrap().into_inner());
        open.last_mut().unwrap().message().await.unwrap();
    }
    assert_eq!(reason(&run.download("f", 0).await.unwrap_err()), "OVERLOADED", "one more is refused");
    // Others are served meanwhile.
    run.ok(calls::read("f")).await;
    run.ok(calls::write("g", "x")).await;
    drop(open);
    let again = async {
        while run.download("f", 0).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), again)
        .await
        .expect("places of clients that left come back");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_and_an_edit_of_one_file_leave_the_one_or_the_other() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let (old, new) = (vec![b'a'; MIB], vec![b'b'; MIB]);
    for _ in 0..8 {
        run.upload("f", &old).await;
        let mut other = run.clone();
        let editing = tokio::spawn(async move { other.call(calls::write("f", "edited")).await });
        let begin = BeginUpload { if_match_sha256: sha256(&old), ..run.begin("f") };
        let uploaded = run.upload_with(begin, &new).await;
        editing.await.unwrap().unwrap();
        let found = run.download("f", 0).await.unwrap().data;
        assert!(found == b"edited" || (uploaded.is_ok() && found == new), "{} bytes", found.len());
        if let Err(refused) = uploaded {
            assert_eq!(reason(&refused), "PRECONDITION_FAILED", "{refused}");
        }
    }
    nothing_is_left(&daemon, &run).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_goes_in_and_out_in_one_call_each() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let names: Vec<String> = (0..500).map(|number| format!("d{}/f{number}", number % 7)).collect();
    let content = bytes(40_000);
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &content[..])).collect();
    let packed = archive(&files);
    let result = run.upload_archive("tree", &packed).await.unwrap();
    assert_eq!(
        (result.entries, result.bytes_written, result.sha256_after),
        (500, 20_000_000, sha256(&packed))
    );
    run.ran(calls::shell("ln -s d0/f0 tree/link; ln -s /etc/passwd tree/leaves; mkfifo tree/pipe")).await;

    let all = run.download_archive("tree").await.unwrap();
    let ended = all.ended.unwrap().result.unwrap();
    assert_eq!((ended.entries, ended.left_out, ended.sha256), (508, 2, sha256(&all.data)));
    let found = contents(&all.data);
    assert_eq!(found.len(), 500);
    assert!(found.iter().all(|read| *read == content));

    let hostile = archive(&[("a", b"x"), (".git/config", b"x")]);
    let refused = run.upload_archive("other", &hostile).await.unwrap_err();
    assert_eq!(reason(&refused), "SANDBOX_VIOLATION", "{refused}");
    assert_eq!(reason(&run.download("other/a", 0).await.unwrap_err()), "NOT_FOUND");
    let id = run.id().to_owned();
    let intents = run.clients.events(&id, "call_intent").await;
    let writes = intents.iter().map(record).filter(|record| record["operation"] == "write").count();
    assert_eq!(writes, 2, "one call each");
    nothing_is_left(&daemon, &run).await;
}

async fn cp(daemon: &Daemon, arguments: &[&str]) -> (i32, String, String) {
    let mut command = tokio::process::Command::new(binary("coffer"));
    command.env("COFFERDAM_ENDPOINT", format!("unix:{}", daemon.socket().display())).args(arguments);
    let said = command.output().await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (said.status.code().unwrap_or(-1), text(&said.stdout), text(&said.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn coffer_cp_copies_files_and_directories_both_ways() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let here = tempfile::tempdir().unwrap();
    let at = |name: &str| here.path().join(name);
    let shown = |path: &Path| path.display().to_string();
    std::fs::create_dir_all(at("from/sub/.git")).unwrap();
    let mib = effort::cases(3, 200) as usize;
    std::fs::write(at("from/a"), bytes(mib * MIB)).unwrap();
    std::fs::write(at("from/sub/run.sh"), "#!/bin/sh\necho ran\n").unwrap();
    std::fs::set_permissions(at("from/sub/run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(at("from/sub/.git/config"), "x").unwrap();
    let id = run.id().to_owned();
    let remote = |path: &str| format!("{id}:{path}");

    let (code, out, err) = cp(&daemon, &["cp", &shown(&at("from")), &remote("tree")]).await;
    assert_eq!(
        (code, out.contains("unpacked 3 entries"), err.contains("1 entry was left out")),
        (0, true, true),
        "{out}{err}"
    );
    let (code, out, err) = cp(&daemon, &["cp", &shown(&at("from/a")), &remote("")]).await;
    assert_eq!((code, out.starts_with(&format!("created @project/a: {mib}.0 MiB"))), (0, true), "{out}{err}");
    let (code, out, err) = cp(&daemon, &["cp", &remote("tree"), &shown(&at("back"))]).await;
    assert_eq!((code, out.contains("copied 3 entries")), (0, true), "{out}{err}");
    let (code, out, err) = cp(&daemon, &["cp", &remote("a"), &shown(here.path())]).await;
    assert_eq!((code, out.contains("copied to")), (0, true), "{out}{err}");
    for (copy, original) in [("back/a", "from/a"), ("a", "from/a"), ("back/sub/run.sh", "from/sub/run.sh")] {
        assert!(std::fs::read(at(copy)).unwrap() == std::fs::read(at(original)).unwrap(), "{copy}");
    }
    assert_eq!(std::fs::metadata(at("back/sub/run.sh")).unwrap().permissions().mode() & 0o777, 0o755);

    // Links that lead out do not come along.
    run.ran(calls::shell("mkdir evil && cd evil && ln -s / root && ln -s ../.. up && echo x > plain")).await;
    let (code, out, err) = cp(&daemon, &["cp", &remote("evil"), &shown(&at("evil"))]).await;
    assert_eq!((code, err.contains("2 entries were left out")), (0, true), "{out}{err}");
    assert_eq!(std::fs::read_dir(at("evil")).unwrap().count(), 1);
    for (arguments, expected) in [
        (["cp", &shown(&at("from")), &shown(&at("x"))], 2),
        (["cp", &remote("absent"), &shown(&at("x"))], 1),
        (["cp", &shown(&at("absent")), &remote("x")], 2),
        (["cp", &shown(&at("from/a")), &remote(".git/config")], 3),
    ] {
        let (code, out, err) = cp(&daemon, &arguments).await;
        assert_eq!(code, expected, "{arguments:?} {out}{err}");
    }
    assert!(!at("x").exists());
}

/// What is beneath a directory: of each file its mode and digest, of each directory its mode alone.
fn found(directory: &Path) -> BTreeMap<PathBuf, (u32, String)> {
    fn look(top: &Path, directory: &Path, into: &mut BTreeMap<PathBuf, (u32, String)>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let mode = std::fs::symlink_metadata(&path).unwrap().permissions().mode();
            let digest = if path.is_dir() {
                look(top, &path, into);
                String::new()
            } else {
                sha256(&std::fs::read(&path).unwrap())
            };
            into.insert(path.strip_prefix(top).unwrap().to_owned(), (mode, digest));
        }
    }
    let mut all = BTreeMap::new();
    look(directory, directory, &mut all);
    all
}

/// 400 files and 20 MiB, with `COFFERDAM_LONG` 4,000 files and 200 MiB: up by `coffer cp`, down by it, and down as an archive.
#[tokio::test(flavor = "multi_thread")]
async fn a_tree_of_thousands_of_files_goes_up_and_down_whole() {
    let daemon = Daemon::start().await;
    let request = v1::CreateRunRequest { image: debian(), ..requests::managed("harness") };
    let mut run = daemon.run_on(request).await;
    let here = tempfile::tempdir().unwrap();
    let (from, back) = (here.path().join("from"), here.path().join("back"));
    let (count, content) = (effort::cases(400, 4_000) as usize, bytes(256 * 1024));
    for number in 0..count {
        let directory = from.join(format!("package {}/süd-{}/src", number % 37, number % 5));
        std::fs::create_dir_all(&directory).unwrap();
        // 0 to 104 kB, 52 on average, each with bytes of its own.
        let size = number * 7_919 % 104_857;
        let file = directory.join(format!("{number}.txt"));
        std::fs::write(&file, &content[number..number + size]).unwrap();
        let mode = if number % 10 == 0 { 0o755 } else { 0o644 };
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    std::fs::create_dir(from.join("empty")).unwrap();
    let there = found(&from);
    let (id, shown) = (run.id().to_owned(), |path: &Path| path.display().to_string());
    let (code, out, err) = cp(&daemon, &["cp", &shown(&from), &format!("{id}:tree")]).await;
    assert_eq!((code, out.contains(&format!("unpacked {} entries", there.len()))), (0, true), "{out}{err}");
    // The run sees the same files.
    let seen = run.ran(calls::shell("cd tree && find . -type f | wc -l && find . -type f -perm 755 | wc -l"));
    assert_eq!(seen.await.stdout, format!("{count}\n{}\n", count / 10));
    let (code, out, err) = cp(&daemon, &["cp", &format!("{id}:tree"), &shown(&back)]).await;
    assert_eq!((code, out.contains(&format!("copied {} entries", there.len()))), (0, true), "{out}{err}");
    assert!(found(&back) == there, "what came back is not what went up");
    let unpacked = here.path().join("unpacked");
    let archive = run.download_archive("tree").await.unwrap().data;
    tar::Archive::new(archive.as_slice()).unpack(&unpacked).unwrap();
    let files = |tree: BTreeMap<PathBuf, (u32, String)>| -> Vec<_> {
        tree.into_iter().filter(|(_, (_, digest))| !digest.is_empty()).collect()
    };
    assert!(files(found(&unpacked)) == files(there), "the archive is not what went up");
    nothing_is_left(&daemon, &run).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_given_as_much_as_the_kernel_takes_where_the_profile_says_so() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let piece = "x".repeat(64 * 1024);
    let argv: Vec<&str> =
        ["sh", "-c", "echo $#"].into_iter().chain(std::iter::repeat_n(&*piece, 31)).collect();
    assert_eq!(run.ran(calls::exec(&argv)).await.stdout, "30\n");
    let script = format!("echo {} | wc -c", "y".repeat(120 * 1024));
    assert_eq!(run.ran(calls::shell(&script)).await.stdout.trim(), (120 * 1024 + 1).to_string());
    let content = bytes(64 * MIB);
    run.upload("@state/input", &content).await;
    let summed = v1::ExecRequest {
        command: "sha256sum".to_owned(),
        stdin_file: "@state/input".to_owned(),
        ..Default::default()
    };
    let seen = run.ran(v1::operation::Kind::Exec(summed.clone())).await.stdout;
    assert!(seen.starts_with(&sha256(&content)), "{seen}");
    // `coffer cp` and `--stdin-file` are the same from a command line; a small input goes straight through.
    for call in ["exec", "shell"] {
        let program = if call == "exec" { &["--", "sha256sum"][..] } else { &["sha256sum"] };
        let options = ["call", call, run.id(), "--stdin-file", "@state/input"];
        let (code, out, err) = cp(&daemon, &[&options[..], program].concat()).await;
        assert!(code == 0 && out.starts_with(&sha256(&content)), "{call}: {out}{err}");
    }
    let both = v1::ExecRequest { stdin: b"x".to_vec(), ..summed.clone() };
    let refused = run.call(v1::operation::Kind::Exec(both)).await.unwrap_err();
    assert_eq!(reason(&refused), "INVALID_ARGUMENT");

    // Elsewhere the bounds are what they were, in the same words.
    let mut open = daemon.run_on(requests::managed("open")).await;
    let refused = open.call(calls::exec(&argv)).await.unwrap_err();
    let told = "exec.args: are more than 4096 or longer than 131072 bytes together";
    assert_eq!((reason(&refused).as_str(), refused.message()), ("INVALID_ARGUMENT", told));
    let refused = open.call(calls::shell(&script)).await.unwrap_err();
    assert_eq!(refused.message(), "shell.script: is longer than 65536 bytes");
    let long = v1::ExecRequest { command: "cat".to_owned(), stdin: vec![0; MIB + 1], ..Default::default() };
    let refused = open.call(v1::operation::Kind::Exec(long)).await.unwrap_err();
    assert_eq!(refused.message(), "exec.stdin: is longer than 1048576 bytes");
    open.upload("input", b"rm -rf /").await;
    let unseen =
        v1::ExecRequest { stdin_file: "input".to_owned(), command: "sh".to_owned(), ..Default::default() };
    let refused = open.call(v1::operation::Kind::Exec(unseen)).await.unwrap_err();
    assert_eq!(reason(&refused), "PERMISSION_DENIED", "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_and_trees_go_to_places_of_the_container_and_out_of_them() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let content = bytes(9 * MIB + 1);
    for path in ["/tmp/new/large.bin", "/home/agent/large.bin"] {
        let begin = BeginUpload { sha256: sha256(&content), mode: Some(0o750), ..run.begin(path) };
        let written = run.upload_with(begin, &content).await.unwrap().result.unwrap();
        assert_eq!((written.path.as_str(), written.sha256_after), (path, sha256(&content)));
        let all = run.download(path, 0).await.unwrap();
        assert!(all.data == content && all.begun.unwrap().mode == 0o750, "{path}");
    }
    // One that cannot be written leaves nothing on its way.
    let begin = run.begin("/etc/passwd");
    assert_eq!(reason(&run.upload_with(begin, &content).await.unwrap_err()), "SANDBOX_VIOLATION");
    let begin = BeginUpload { create_only: true, ..run.begin("/tmp/new/large.bin") };
    assert_eq!(reason(&run.upload_with(begin, b"x").await.unwrap_err()), "PRECONDITION_FAILED");
    assert_eq!(run.ran(calls::shell("ls -A /state")).await.stdout, "logs\n");
    nothing_is_left(&daemon, &run).await;

    let out = run.download_archive("/tmp/new").await.unwrap();
    let unpacked = run.upload_archive("/home/agent/tree", &out.data).await.unwrap();
    assert_eq!((unpacked.path.as_str(), unpacked.entries), ("/home/agent/tree", 1));
    let seen = run.ran(calls::shell("sha256sum /home/agent/tree/large.bin; ls -A /state")).await.stdout;
    assert!(seen.starts_with(&sha256(&content)) && seen.ends_with("\nlogs\n"), "{seen}");
    assert_eq!(
        reason(&run.upload_archive("/", &tar_of("workspace/x")).await.unwrap_err()),
        "SANDBOX_VIOLATION"
    );

    let here = tempfile::tempdir().unwrap();
    std::fs::write(here.path().join("a.txt"), "copied\n").unwrap();
    let id = run.id().to_owned();
    let local = |name: &str| here.path().join(name).display().to_string();
    for (from, to) in
        [(local("a.txt"), format!("{id}:/tmp/a.txt")), (format!("{id}:/tmp/a.txt"), local("b.txt"))]
    {
        let said = cp(&daemon, &["cp", &from, &to]).await;
        assert_eq!(said.0, 0, "{from} {to}: {said:?}");
    }
    assert_eq!(std::fs::read_to_string(here.path().join("b.txt")).unwrap(), "copied\n");
}

fn tar_of(name: &str) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(1);
    header.set_mode(0o644);
    builder.append_data(&mut header, name, &b"x"[..]).unwrap();
    builder.into_inner().unwrap()
}

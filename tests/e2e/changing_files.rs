//! Files that change while they go into a run or out of it, and archives that lie about theirs.

use std::io::Read as _;
use std::time::Duration;

use harness::files::sha256;
use harness::v1::download_archive_response::Piece;
use harness::v1::{self, BeginUpload};
use harness::{Daemon, RunHandle, calls, reason, requests};
use tonic::{Status, Streaming};

const MIB: usize = 1 << 20;

/// An archive on its way, of which the client has taken nothing but its beginning: what does not fit into the buffers in between
/// is not read yet.
struct Begun(Streaming<v1::DownloadArchiveResponse>);

impl Begun {
    async fn of(run: &mut RunHandle, path: &str) -> Self {
        let request = v1::DownloadArchiveRequest {
            run_id: run.id().to_owned(),
            path: path.to_owned(),
            ..Default::default()
        };
        let mut stream = run.clients.files.download_archive(request).await.unwrap().into_inner();
        let first = stream.message().await.unwrap().unwrap();
        assert!(matches!(first.piece, Some(Piece::Begin(_))), "{first:?}");
        Self(stream)
    }

    /// Takes the rest.
    async fn rest(mut self) -> Result<(Vec<u8>, v1::ReadResult), Status> {
        let (mut archive, mut result) = (Vec::new(), None);
        while let Some(message) = self.0.message().await? {
            match message.piece.unwrap() {
                Piece::Begin(_) => panic!("it begins twice"),
                Piece::Data(data) => archive.extend_from_slice(&data),
                Piece::End(ended) => result = ended.result,
            }
        }
        Ok((archive, result.expect("an end")))
    }
}

/// Names and lengths of the files, each of which is whole.
fn members(archive: &[u8]) -> Vec<(String, usize)> {
    let mut members = Vec::new();
    for entry in tar::Archive::new(archive).entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        assert_eq!(content.len() as u64, entry.size());
        members.push((entry.path().unwrap().display().to_string(), content.len()));
    }
    members
}

/// A tree whose second file is larger than all that is between it and a client.
async fn tree(run: &mut RunHandle) {
    let made = "mkdir tree; echo first >tree/a; head -c 134217728 /dev/zero >tree/b; echo last >tree/c";
    assert_eq!(run.ran(calls::shell(made)).await.exit_code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_grows_while_it_is_packed_has_the_length_that_it_had() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    tree(&mut run).await;
    let begun = Begun::of(&mut run, "tree").await;
    // All the time until it is over.
    let grows = "while :; do echo more >>tree/b; echo more >>tree/c; done";
    let id = run.start(harness::process::script(grows)).await.process_id;
    let (archive, result) = begun.rest().await.unwrap();
    run.send(&id, v1::signal_process_request::Signal::Kill).await.unwrap();
    run.waited(&id).await;
    let found = members(&archive);
    assert_eq!(found[..2], [("a".to_owned(), 6), ("b".to_owned(), 128 * MIB)]);
    assert!(found.len() == 3 && found[2].1 > 5, "the last one is opened later: {found:?}");
    assert_eq!((result.entries, result.left_out, result.sha256), (3, 0, sha256(&archive)));
    let now = run.exec(&["stat", "-c", "%s", "tree/b"]).await.stdout;
    assert!(now.trim().parse::<usize>().unwrap() > 128 * MIB, "it has grown: {now}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_shrinks_while_it_is_packed_ends_the_archive_with_an_error() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    tree(&mut run).await;
    for shrinks in ["echo short >tree/b", ": >tree/b"] {
        let begun = Begun::of(&mut run, "tree").await;
        assert_eq!(run.ran(calls::shell(shrinks)).await.exit_code, Some(0));
        let broken = begun.rest().await.unwrap_err();
        assert_eq!(reason(&broken), "PRECONDITION_FAILED", "{broken}");
        assert!(broken.message().contains("tree/b became shorter while it was read"), "{broken}");
        // As it is now it can be had.
        let whole = run.download_archive("tree").await.unwrap();
        assert_eq!(members(&whole.data).len(), 3);
        assert_eq!(
            run.ran(calls::shell("head -c 134217728 /dev/zero >tree/b")).await.exit_code,
            Some(0),
            "for the next"
        );
    }
    // One that is removed is read to its end, and one that is exchanged is another file.
    let begun = Begun::of(&mut run, "tree").await;
    assert_eq!(run.ran(calls::shell("rm tree/b; echo other >tree/b")).await.exit_code, Some(0));
    let found = members(&begun.rest().await.unwrap().0);
    assert_eq!(found[1], ("b".to_owned(), 128 * MIB));
}

/// One member, of which the header says this size. Two blocks of zeros follow.
fn lying(content: &[u8], says: impl FnOnce(&mut tar::Header)) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.set_path("liar").unwrap();
    header.set_mode(0o644);
    says(&mut header);
    header.set_cksum();
    let mut archive = header.as_bytes().to_vec();
    archive.extend_from_slice(content);
    archive.resize(archive.len().next_multiple_of(512) + 1_024, 0);
    archive
}

/// Another member that is whole.
fn honest() -> Vec<u8> {
    let archive = lying(b"content", |header| {
        header.set_path("honest").unwrap();
        header.set_size(7);
    });
    archive[..1_024].to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_with_a_false_size_is_refused_and_leaves_nothing() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let text = b"some text that is longer than a block, ".repeat(100);
    let base_256 = |header: &mut tar::Header, bytes: [u8; 12]| header.as_gnu_mut().unwrap().size = bytes;
    for (what, archive, expected) in [
        ("less", lying(&text, |header| header.set_size(512)), "INVALID_ARGUMENT"),
        ("none", lying(&text, |header| header.set_size(0)), "INVALID_ARGUMENT"),
        ("more", lying(&text, |header| header.set_size(1 << 20)), "INVALID_ARGUMENT"),
        ("more than a run may have", lying(&text, |header| header.set_size(8 << 30)), "WRITE_LIMIT"),
        ("as much as can be said", lying(&text, |header| base_256(header, [0xff; 12])), "INVALID_ARGUMENT"),
        (
            "no number",
            lying(&text, |header| header.as_gnu_mut().unwrap().size = *b"99999999999\0"),
            "INVALID_ARGUMENT",
        ),
    ] {
        let archive = [honest(), archive].concat();
        let refused = run.upload_archive("tree", &archive).await.unwrap_err();
        let told = format!("{what}: {refused}");
        assert_eq!(reason(&refused), expected, "{told}");
        assert!(!refused.message().is_empty() && !refused.message().contains("/var/tmp"), "{told}");
        assert_eq!(run.exec(&["ls", "-A"]).await.stdout, "", "{told}");
    }
    // What follows a member that says too much is its content, and no member.
    let swallowed = [lying(b"", |header| header.set_size(1_024))[..512].to_vec(), honest(), vec![0; 1_024]];
    let result = run.upload_archive("tree", &swallowed.concat()).await.unwrap();
    assert_eq!((result.entries, result.bytes_written), (1, 1_024));
    assert_eq!(run.exec(&["ls", "-A", "tree"]).await.stdout, "liar\n");
}

/// Whichever comes first, neither is lost: an edit is of what was there, and what was uploaded for one content replaces no other.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_races_with_an_edit_is_before_it_or_after_it() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let content = |word: &str, byte: u8| [word.as_bytes(), &vec![byte; 2 * MIB]].concat();
    let (old, new) = (content("MARK\n", b'a'), content("MARK\n", b'b'));
    let (edited_old, edited_new) = (content("EDITED\n", b'a'), content("EDITED\n", b'b'));
    let mut outcomes = std::collections::BTreeMap::new();
    for round in 0..effort::cases(24, 240) {
        let guarded = round % 2 == 0;
        run.upload("f", &old).await;
        let mut other = run.clone();
        let editing = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(u64::from(round / 2 * 4 % 48))).await;
            other.call(calls::replace("f", "MARK", "EDITED")).await.unwrap()
        });
        let if_match_sha256 = if guarded { sha256(&old) } else { String::new() };
        let uploaded = run.upload_with(BeginUpload { if_match_sha256, ..run.begin("f") }, &new).await;
        let edited = editing.await.unwrap();
        let found = run.download("f", 0).await.unwrap().data;
        let what = [(&old, "old"), (&new, "new"), (&edited_old, "edited old"), (&edited_new, "edited new")]
            .into_iter()
            .find_map(|(content, name)| (found == *content).then_some(name))
            .unwrap_or_else(|| panic!("{} bytes of a torn file", found.len()));
        let refused = |reason: &str| assert_eq!(reason, "PRECONDITION_FAILED");
        if let Err(status) = &uploaded {
            refused(&reason(status));
        }
        if let Some(failure) = &edited.error {
            refused(&failure.reason);
        }
        let told = (uploaded.is_ok(), edited.error.is_none(), what);
        let expected = match told {
            (true, true, "edited new") | (true, false, "new") => true,
            // The edit was first, and what is uploaded without a condition replaces whatever is there.
            (true, true, "new") => !guarded,
            (false, true, "edited old") => guarded,
            _ => false,
        };
        assert!(expected, "round {round}, guarded: {guarded}, {told:?}");
        *outcomes.entry(told).or_insert(0) += 1;
    }
    println!("{outcomes:?}");
    assert_eq!(run.exec(&["ls", "-A"]).await.stdout, "f\n", "nothing is left of either");
}

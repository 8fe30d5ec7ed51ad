//! Images and bases that are copied from one daemon to another.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use harness::v1::export_base_response::Part as BasePart;
use harness::v1::export_image_response::Part as ImagePart;
use harness::v1::import_base_request::Part as Sent;
use harness::v1::{self, base_source::Source};
use harness::{Clients, Daemon, Image, Setup, as_user, calls, own, reason, record, requests, until};
use tonic::Status;

use crate::bases::{directory, get, list, make, trees, verify};
use crate::cli::{coffer, json, out};
use crate::image_service::{
    build, build_header, context, docker, filesystem, header, import, named, phases, run_in,
};

/// The image that is announced, its archive, and what the last message says of it.
async fn exported(
    clients: &mut Clients,
    reference: &str,
) -> Result<(v1::Image, Vec<u8>, v1::ExportedArchive), Status> {
    let request = v1::ExportImageRequest { reference: reference.to_owned() };
    let mut stream = clients.images.export_image(request).await?.into_inner();
    let (mut image, mut archive, mut end) = (None, Vec::new(), None);
    while let Some(message) = stream.message().await? {
        match message.part.unwrap() {
            ImagePart::Image(announced) => image = Some(announced),
            ImagePart::Piece(piece) => archive.extend(piece),
            ImagePart::End(last) => end = Some(last),
        }
    }
    Ok((image.unwrap(), archive, end.expect("an export that is not whole ends with an error")))
}

fn has_image(image: &Image) -> bool {
    docker(&["image", "inspect", &image.0]).status.success()
}

fn announcing(image: &Image, id: &str) -> v1::ImportImageHeader {
    v1::ImportImageHeader { image_id: id.to_owned(), ..header(image) }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exported_image_is_imported_with_its_name_and_id_and_both_are_on_record() {
    let daemon = Daemon::start().await;
    let mut clients = daemon.connect().await;
    let (image, built) = (named("exported"), named("exported-build"));
    import(&mut clients, header(&image), &filesystem("hello\n")).await.unwrap();
    let tar = context(&daemon, "RUN echo from-the-build > /made");
    build(&mut clients.images, build_header(&built), &tar).await.1.unwrap();
    // What another program packed.
    let packed = Image::of_files("exported-packed", &[("motd", "packed\n"), ("d/file", "x")], &[]);
    for image in [&image, &built, &packed] {
        let (announced, archive, end) = exported(&mut clients, &image.0).await.unwrap();
        assert_eq!((announced.reference.as_str(), end.size_bytes), (image.0.as_str(), archive.len() as u64));
        let told = phases(&mut clients, "image_exported", image).await;
        let of = |phase: usize, key: &str| told[phase][key].as_str().unwrap_or_default().to_owned();
        assert_eq!((told.len(), of(0, "phase"), of(1, "phase")), (2, "begun".into(), "done".into()));
        assert_eq!((of(0, "image_id"), of(1, "tar_sha256")), (announced.image_id.clone(), end.sha256));

        docker(&["rmi", "-f", &image.0]);
        assert!(!has_image(image));
        let header = announcing(image, &announced.image_id);
        let imported = import(&mut clients, header.clone(), &archive).await.unwrap();
        let there = imported.image.unwrap();
        assert_eq!((&there.image_id, &there.reference), (&announced.image_id, &announced.reference));
        assert!(!imported.present);
        // It is there: no tar is read, and no `replace` is needed.
        let again = import(&mut clients, header, b"no tar at all").await.unwrap();
        assert!(again.present && again.tar_sha256.is_empty());
        assert_eq!(again.image.unwrap().image_id, announced.image_id);
    }
    let mut run = run_in(&daemon, &built).await.unwrap();
    assert_eq!(run.ran(calls::exec(&["cat", "/made"])).await.stdout, "from-the-build\n");

    // Another daemon of this engine has the images already.
    let other = Daemon::start().await;
    let target = format!("unix:{}", other.socket().display());
    let pushed = out(&daemon, &["image", "push", &built.0, &target]).await;
    assert!(pushed.starts_with(&format!("{target} present sha256:")), "{pushed}");
    // An id leaves the name to the source, which must take none from another image.
    let id = pushed.trim_end().rsplit(' ').next().unwrap();
    let by_id = coffer(&daemon, &["image", "push", id, &target, "--replace"]).await;
    assert!(by_id.code == 2 && by_id.err.contains("--replace needs the name"), "{}", by_id.err);
    let missing = coffer(&daemon, &["image", "push", "no/such:1", &target]).await;
    assert!(missing.code == 1 && missing.err.contains("no image"), "{}", missing.err);
    let missing = exported(&mut clients, "no/such:1").await.unwrap_err();
    assert_eq!(reason(&missing), "NOT_FOUND");
    for reference in ["", "../version?a=", "a b"] {
        assert_eq!(reason(&exported(&mut clients, reference).await.unwrap_err()), "INVALID_ARGUMENT");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_of_another_image_than_announced_leaves_nothing() {
    let daemon = Daemon::start().await;
    let mut clients = daemon.connect().await;
    let (image, name) = (named("announced"), named("announced-otherwise"));
    import(&mut clients, header(&image), &filesystem("hello\n")).await.unwrap();
    let (announced, archive, _) = exported(&mut clients, &image.0).await.unwrap();
    let other = format!("sha256:{}", "ab".repeat(32));
    let refused = import(&mut clients, announcing(&name, &other), &archive).await.unwrap_err();
    assert!(reason(&refused) == "INVALID_ARGUMENT" && refused.message().contains(&announced.image_id));
    assert!(!has_image(&name) && has_image(&image));
    let told = phases(&mut clients, "image_imported", &name).await;
    assert_eq!(told.last().unwrap()["phase"], "failed");
    // A part of the archive, and a root file system under the identity of an image.
    let cut = &archive[..archive.len() / 2];
    import(&mut clients, announcing(&name, &announced.image_id), cut).await.unwrap_err();
    let tar = filesystem("hello\n");
    import(&mut clients, announcing(&name, &announced.image_id), &tar).await.unwrap_err();
    assert!(!has_image(&name));
    // A name that another image has stays with it.
    let other = import(&mut clients, header(&name), &filesystem("other\n")).await.unwrap().image.unwrap();
    let taken = import(&mut clients, announcing(&name, &announced.image_id), &archive).await.unwrap_err();
    assert_eq!(reason(&taken), "ALREADY_EXISTS");
    let replace = v1::ImportImageHeader { replace: true, ..announcing(&name, &announced.image_id) };
    let replaced = import(&mut clients, replace, &archive).await.unwrap().image.unwrap();
    assert_eq!(replaced.image_id, announced.image_id);
    // The engine keeps it without a name.
    drop(Image(other.image_id));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_above_the_bound_is_not_exported_and_a_client_that_leaves_is_on_record() {
    let config = "access: [{ uid: 4321, roles: [operator] }]\n".to_owned();
    let daemon = Daemon::start_with(Setup { config, ..Setup::default() }).await;
    let mut clients = daemon.connect().await;
    let image = named("large");
    let tar = filesystem(&"x".repeat(40 << 20));
    import(&mut clients, header(&image), &tar).await.unwrap();
    let config = "images: { max_size: 32MiB }\n".to_owned();
    let bounded = Daemon::start_with(Setup { config, ..Setup::default() }).await;
    let refused = exported(&mut bounded.connect().await, &image.0).await.unwrap_err();
    assert!(reason(&refused) == "READ_LIMIT" && refused.message().contains("images.max_size"), "{refused}");

    let request = v1::ExportImageRequest { reference: image.0.clone() };
    let mut stream = clients.images.export_image(request).await.unwrap().into_inner();
    stream.message().await.unwrap();
    // Another operator does not wait for a client that has stopped reading.
    daemon.expose();
    let name = image.0.clone();
    let read = as_user(4321, &daemon.socket(), async move |mut clients: Clients| {
        exported(&mut clients, &name).await.map(|(_, _, end)| end.size_bytes)
    })
    .await;
    assert!(read.is_ok_and(|bytes| bytes > 40 << 20));
    drop(stream);
    until("the export goes on without its client", async || {
        let told = phases(&mut daemon.connect().await, "image_exported", &image).await;
        told.last().is_some_and(|told| told["phase"] == "failed" && told["reason"] == "CANCELLED")
    })
    .await;
    // The next export has its turn.
    exported(&mut clients, &image.0).await.unwrap();
}

/// The base that is announced, its files as they travel, and the digest that the last message verifies.
async fn exported_base(clients: &mut Clients, id: &str) -> Result<(v1::Base, Vec<u8>, String), Status> {
    let request = v1::ExportBaseRequest { base_id: id.to_owned() };
    let mut stream = clients.bases.export_base(request).await?.into_inner();
    let (mut base, mut files, mut digest) = (None, Vec::new(), None);
    while let Some(message) = stream.message().await? {
        match message.part.unwrap() {
            BasePart::Base(announced) => base = Some(announced),
            BasePart::Piece(piece) => files.extend(piece),
            BasePart::VerifiedDigest(verified) => digest = Some(verified),
        }
    }
    Ok((base.unwrap(), files, digest.expect("an export that is not whole ends with an error")))
}

async fn imported_base(
    clients: &mut Clients,
    digest: &str,
    origin: &str,
    files: &[u8],
) -> Result<v1::ImportBaseResponse, Status> {
    let header = v1::ImportBaseHeader { digest: digest.to_owned(), origin: origin.to_owned() };
    let first = v1::ImportBaseRequest { part: Some(Sent::Header(header)) };
    let pieces =
        files.chunks(100_000).map(|piece| v1::ImportBaseRequest { part: Some(Sent::Piece(piece.to_vec())) });
    let messages: Vec<_> = std::iter::once(first).chain(pieces).collect();
    clients.bases.import_base(tokio_stream::iter(messages)).await.map(tonic::Response::into_inner)
}

/// A directory with files of some sizes and modes, a link, and an empty directory.
fn tree(daemon: &Daemon) -> PathBuf {
    let source = daemon.workspace("w", &[("a.txt", "one\n"), ("d/x.sh", "#!/bin/sh\necho ran\n")]);
    std::fs::write(source.join("large"), vec![7; 1_100_000]).unwrap();
    std::fs::create_dir(source.join("empty")).unwrap();
    std::fs::set_permissions(source.join("d/x.sh"), std::fs::Permissions::from_mode(0o750)).unwrap();
    symlink("a.txt", source.join("link")).unwrap();
    own(&source, 4321);
    source
}

async fn base(daemon: &Daemon, clients: &mut Clients) -> v1::Base {
    make(clients, directory(&tree(daemon))).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_is_pushed_to_another_daemon_and_runs_begin_on_the_copy() {
    let (source, target) = (Daemon::start().await, Daemon::start().await);
    let (mut from, mut to) = (source.connect().await, target.connect().await);
    let base = base(&source, &mut from).await;
    let there = format!("unix:{}", target.socket().display());
    let pushed = json(&source, &["base", "push", &base.base_id, &there]).await;
    assert_eq!((&pushed["node"], &pushed["result"]), (&there.as_str().into(), &"pushed".into()));
    let id = pushed["id"].as_str().unwrap();
    let copy = get(&mut to, id).await.unwrap();
    assert_ne!(copy.base_id, base.base_id);
    assert_eq!(
        (&copy.digest, copy.size_bytes, copy.files, copy.principal.as_str()),
        (&base.digest, base.size_bytes, base.files, "uid:0")
    );
    let Some(Source::Copy(origin)) = copy.source.unwrap().source else { panic!("not a copy") };
    assert_eq!(origin.origin, base.base_id);
    assert!(verify(&mut to, id).await.intact);
    assert!(out(&target, &["base", "list"]).await.contains(&format!("copy of {}", base.base_id)));

    let mut run = target.run_on(requests::base("open", id)).await;
    let script = "cat link && d/x.sh && wc -c <large && ls -d empty && echo more >>a.txt && cat a.txt";
    let ran = run.ran(calls::shell(script)).await;
    assert_eq!(ran.stdout, "one\nran\n1100000\nempty\none\nmore\n", "{}", ran.stderr);
    run.stop().await;

    let again = out(&source, &["base", "push", &base.base_id[28..], &there]).await;
    assert_eq!(again, format!("{there} present {id}\n"));
    assert_eq!(list(&mut to).await.len(), 1);
    let told = from.events("", "base_exported").await;
    let told: Vec<_> = told.iter().map(|event| record(event)["details"].clone()).collect();
    assert_eq!((&told[0]["phase"], &told[1]["phase"]), (&"begun".into(), &"done".into()));
    assert!(
        told.iter()
            .all(|told| told["digest"] == base.digest.as_str() && told["base"] == base.base_id.as_str())
    );
    let made = to.events("", "base_created").await;
    assert_eq!(record(&made[0])["details"]["source"]["copy"]["origin"], base.base_id.as_str());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_of_another_principal_at_the_target_is_not_the_copy() {
    let config = "access: [{ uid: 4321, roles: [orchestrator] }]\n".to_owned();
    let source = Daemon::start().await;
    let target = Daemon::start_with(Setup { config, ..Setup::default() }).await;
    let (mut from, mut to) = (source.connect().await, target.connect().await);
    let base = base(&source, &mut from).await;
    target.expose();
    let files = tree(&target);
    let other = as_user(4321, &target.socket(), async move |mut clients: Clients| {
        make(&mut clients, directory(&files)).await.unwrap()
    })
    .await;
    assert_eq!((&other.digest, other.principal.as_str()), (&base.digest, "uid:4321"));

    let there = format!("unix:{}", target.socket().display());
    let pushed = json(&source, &["base", "push", &base.base_id, &there]).await;
    assert_eq!(pushed["result"], "pushed", "{pushed}");
    let copy = get(&mut to, pushed["id"].as_str().unwrap()).await.unwrap();
    assert_eq!((&copy.digest, copy.principal.as_str()), (&base.digest, "uid:0"));
    let again = out(&source, &["base", "push", &base.base_id, &there]).await;
    assert_eq!(again, format!("{there} present {}\n", copy.base_id));
    assert_eq!(list(&mut to).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_not_those_of_the_digest_are_no_base() {
    let (source, target) = (Daemon::start().await, Daemon::start().await);
    let (mut from, mut to) = (source.connect().await, target.connect().await);
    let base = base(&source, &mut from).await;
    let (announced, files, verified) = exported_base(&mut from, &base.base_id).await.unwrap();
    assert_eq!((&announced.digest, &verified), (&base.digest, &base.digest));
    let mut changed = files.clone();
    let at = changed.windows(4).position(|part| part == b"one\n").unwrap();
    changed[at] = b'O';
    let other = "ab".repeat(32);
    for (digest, sent, expected) in [
        (&other, &files[..], "INVALID_ARGUMENT"),
        (&base.digest, &changed[..], "INVALID_ARGUMENT"),
        (&base.digest, &files[..files.len() - 1], "PRECONDITION_FAILED"),
        (&base.digest, &[][..], "PRECONDITION_FAILED"),
        (&base.digest, &vec![7; 500_000][..], "PRECONDITION_FAILED"),
    ] {
        let refused = imported_base(&mut to, digest, &base.base_id, sent).await.unwrap_err();
        assert_eq!(reason(&refused), expected, "{refused}");
        assert!(!refused.message().contains("/var/"), "a path of the host: {refused}");
        assert!(list(&mut to).await.is_empty() && trees(&target).is_empty());
    }
    for (digest, origin) in [("", &*base.base_id), ("sha256:ab", &base.base_id), (&base.digest, "../x")] {
        let refused = imported_base(&mut to, digest, origin, &files).await.unwrap_err();
        assert_eq!(reason(&refused), "INVALID_ARGUMENT");
    }
    // A message that is none breaks off.
    let header = v1::ImportBaseHeader { digest: base.digest.clone(), origin: base.base_id.clone() };
    let parts = [Some(Sent::Header(header)), Some(Sent::Piece(files.clone())), None];
    let messages: Vec<_> = parts.map(|part| v1::ImportBaseRequest { part }).into();
    to.bases.import_base(tokio_stream::iter(messages)).await.unwrap_err();
    assert!(trees(&target).is_empty());

    imported_base(&mut to, &base.digest, &base.base_id, &files).await.unwrap();
    let again = imported_base(&mut to, &base.digest, &base.base_id, &[]).await.unwrap();
    assert!(again.reused, "the caller has it");
    // Changed files of the source are no export.
    let tree = source.state_dir().join("bases").join(&base.base_id);
    std::fs::write(tree.join("a.txt"), "ONE\n").unwrap();
    let refused = exported_base(&mut from, &base.base_id).await.unwrap_err();
    assert_eq!(reason(&refused), "PRECONDITION_FAILED");
    let told = from.events("", "base_exported").await;
    assert_eq!(record(told.last().unwrap())["details"]["phase"], "failed");
    verify(&mut from, &base.base_id).await;
    let refused = exported_base(&mut from, &base.base_id).await.unwrap_err();
    assert!(refused.message().contains("verify it again"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_above_the_bounds_of_the_target_leaves_nothing() {
    let source = Daemon::start().await;
    let config = "bases: { max_bytes: 1MiB }\n".to_owned();
    let target = Daemon::start_with(Setup { config, ..Setup::default() }).await;
    let (mut from, mut to) = (source.connect().await, target.connect().await);
    let base = base(&source, &mut from).await;
    let there = format!("unix:{}", target.socket().display());
    let failed = coffer(&source, &["base", "push", &base.base_id, &there]).await;
    assert_eq!((failed.code, failed.out), (1, format!("{there} failed\n")), "{}", failed.err);
    assert!(list(&mut to).await.is_empty() && trees(&target).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn pushes_are_for_operators_alone() {
    let config = "access: [{ uid: 4321, roles: [orchestrator, approver, auditor] }]\n".to_owned();
    let daemon = Daemon::start_with(Setup { config, ..Setup::default() }).await;
    let base = base(&daemon, &mut daemon.connect().await).await;
    daemon.expose();
    let socket = daemon.socket();
    let refused = as_user(4321, &socket, async move |mut clients: Clients| {
        let image = exported(&mut clients, "x:1").await.unwrap_err();
        let export = exported_base(&mut clients, &base.base_id).await.unwrap_err();
        let import = imported_base(&mut clients, &base.digest, &base.base_id, &[]).await.unwrap_err();
        [image, export, import].map(|status| reason(&status))
    })
    .await;
    assert_eq!(refused, ["PERMISSION_DENIED"; 3].map(str::to_owned));
}

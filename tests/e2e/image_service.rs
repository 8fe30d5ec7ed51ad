//! Images that operators import, build and list through the daemon.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use harness::v1::build_image_request::Part as BuildPart;
use harness::v1::build_image_response::Part as Said;
use harness::v1::image_service_client::ImageServiceClient;
use harness::v1::import_image_header::Form;
use harness::v1::import_image_request::Part as ImportPart;
use harness::v1::{self, CreateRunRequest};
use harness::{Clients, Daemon, Image, RunHandle, Setup, as_user, calls, reason, record, requests, until};
use tonic::Status;

/// A name of this test, and the image under it, which goes with the value.
pub(crate) fn named(name: &str) -> Image {
    Image(format!("cofferdam-test-{}/{name}:1", std::process::id()))
}

pub(crate) fn docker(arguments: &[&str]) -> Output {
    Command::new("docker").args(arguments).output().unwrap()
}

/// The tar of a root file system with one file.
pub(crate) fn filesystem(content: &str) -> Vec<u8> {
    made(|tar| add(tar, "motd", content.as_bytes()))
}

fn made(fill: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    fill(&mut tar);
    tar.into_inner().unwrap()
}

fn add(tar: &mut tar::Builder<Vec<u8>>, name: &str, content: &[u8]) {
    let mut header = tar::Header::new_ustar();
    header.set_size(content.len() as u64);
    header.set_mode(0o755);
    tar.append_data(&mut header, name, content).unwrap();
}

pub(crate) fn header(image: &Image) -> v1::ImportImageHeader {
    v1::ImportImageHeader { reference: image.0.clone(), ..Default::default() }
}

pub(crate) async fn import(
    clients: &mut Clients,
    header: v1::ImportImageHeader,
    tar: &[u8],
) -> Result<v1::ImportImageResponse, Status> {
    let first = v1::ImportImageRequest { part: Some(ImportPart::Header(header)) };
    let pieces = tar
        .chunks(100_000)
        .map(|piece| v1::ImportImageRequest { part: Some(ImportPart::Piece(piece.to_vec())) });
    let messages: Vec<_> = std::iter::once(first).chain(pieces).collect();
    clients.images.import_image(tokio_stream::iter(messages)).await.map(tonic::Response::into_inner)
}

/// What the build printed, and its image.
pub(crate) async fn build(
    images: &mut ImageServiceClient<tonic::transport::Channel>,
    header: v1::BuildImageHeader,
    context: &[u8],
) -> (String, Result<v1::Image, Status>) {
    let first = v1::BuildImageRequest { part: Some(BuildPart::Header(header)) };
    let pieces = context
        .chunks(100_000)
        .map(|piece| v1::BuildImageRequest { part: Some(BuildPart::Piece(piece.to_vec())) });
    let messages: Vec<_> = std::iter::once(first).chain(pieces).collect();
    let mut output = String::new();
    let mut said = match images.build_image(tokio_stream::iter(messages)).await {
        Ok(said) => said.into_inner(),
        Err(status) => return (output, Err(status)),
    };
    loop {
        match said.message().await {
            Ok(Some(v1::BuildImageResponse { part: Some(Said::Output(text)) })) => output.push_str(&text),
            Ok(Some(v1::BuildImageResponse { part: Some(Said::Image(image)) })) => {
                return (output, Ok(image));
            }
            Ok(_) => panic!("no image at the end: {output}"),
            Err(status) => return (output, Err(status)),
        }
    }
}

pub(crate) fn build_header(image: &Image) -> v1::BuildImageHeader {
    v1::BuildImageHeader { reference: image.0.clone(), without_network: true, ..Default::default() }
}

/// A directory whose build begins with the default image, which is there without a network.
pub(crate) fn context(daemon: &Daemon, commands: &str) -> Vec<u8> {
    // An engine may have those of other versions.
    let base = daemon.told("default image image=");
    made(|tar| add(tar, "Dockerfile", format!("FROM {base}\n{commands}\n").as_bytes()))
}

/// The phases that are on record for this image.
pub(crate) async fn phases(clients: &mut Clients, kind: &str, image: &Image) -> Vec<serde_json::Value> {
    let events = clients.events("", kind).await;
    let records = events.iter().map(record).filter(|record| record["input"]["reference"] == image.0.as_str());
    records.map(|record| record["details"].clone()).collect()
}

pub(crate) async fn run_in(daemon: &Daemon, image: &Image) -> Result<RunHandle, Status> {
    daemon.run_with(CreateRunRequest { image: image.0.clone(), ..requests::managed("harness") }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_file_system_becomes_a_listed_and_recorded_image() {
    let daemon = Daemon::start().await;
    let mut clients = daemon.connect().await;
    let image = named("rootfs");
    let missing = run_in(&daemon, &image).await.map(|run| run.run.run_id).unwrap_err();
    assert_eq!(reason(&missing), "IMAGE_MISSING");

    let tar = filesystem("hello\n");
    let imported = import(&mut clients, header(&image), &tar).await.unwrap();
    let made = imported.image.unwrap();
    assert_eq!((made.reference.as_str(), made.unusable.as_str()), (image.0.as_str(), ""));
    assert!(made.profiles.contains(&"harness".to_owned()), "{made:?}");
    let listed = clients.images.list_images(v1::ListImagesRequest {}).await.unwrap().into_inner();
    assert!(listed.images.contains(&made), "{:?}", listed.images);
    let told = phases(&mut clients, "image_imported", &image).await;
    assert_eq!(
        told.iter().map(|told| told["phase"].as_str().unwrap()).collect::<Vec<_>>(),
        ["begun", "done"]
    );
    assert_eq!(told[1]["image_id"], made.image_id.as_str());
    assert_eq!(told[1]["tar_sha256"], imported.tar_sha256.as_str());

    let run = run_in(&daemon, &image).await.unwrap();
    assert_eq!(run.run.image_id, made.image_id);
    // Its name is another image's only if that was said.
    let other = filesystem("other\n");
    let taken = import(&mut clients, header(&image), &other).await.unwrap_err();
    assert_eq!(reason(&taken), "ALREADY_EXISTS");
    let replaced = v1::ImportImageHeader { replace: true, ..header(&image) };
    let replaced = import(&mut clients, replaced, &other).await.unwrap().image.unwrap();
    assert_ne!(replaced.image_id, made.image_id);
    // The engine keeps it without a name.
    drop(Image(made.image_id));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_of_the_engine_is_imported_under_the_given_name() {
    let daemon = Daemon::start().await;
    let mut clients = daemon.connect().await;
    let original = Image::of_files("saved", &[("motd", "saved\n")], &[]);
    let saved = docker(&["save", &original.0]).stdout;
    docker(&["rmi", "-f", &original.0]);
    let image = named("loaded");
    let imported = import(&mut clients, header(&image), &saved).await.unwrap().image.unwrap();
    assert_eq!(imported.reference, image.0);
    let listed = clients.images.list_images(v1::ListImagesRequest {}).await.unwrap().into_inner();
    assert!(!listed.images.iter().any(|image| image.reference == original.0), "it took a name of its own");
    run_in(&daemon, &image).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn false_tars_leave_nothing_and_are_on_record() {
    let config = "images: { max_size: 1MiB }\n".to_owned();
    let daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    let mut clients = daemon.connect().await;
    let image = named("lies");
    let good = filesystem("hello\n");
    let climbs = made(|tar| {
        let mut header = tar::Header::new_ustar();
        header.as_mut_bytes()[..9].copy_from_slice(b"../../etc");
        header.set_size(0);
        header.set_cksum();
        tar.append(&header, &[][..]).unwrap();
    });
    let digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let forged = made(|tar| {
        let config = format!(
            r#"{{"architecture":"amd64","os":"linux","rootfs":{{"type":"layers","diff_ids":["sha256:{digest}"]}}}}"#
        );
        add(tar, &format!("{digest}.json"), config.as_bytes());
        add(tar, &format!("{digest}/layer.tar"), &good);
        let manifest =
            format!(r#"[{{"Config":"{digest}.json","RepoTags":null,"Layers":["{digest}/layer.tar"]}}]"#);
        add(tar, "manifest.json", manifest.as_bytes());
    });
    let large = filesystem(&"x".repeat(2 << 20));
    let cases = [
        ("cut", good[..600].to_vec(), "INVALID_ARGUMENT"),
        ("no tar", vec![7; 10_000], "INVALID_ARGUMENT"),
        ("nothing", Vec::new(), "INVALID_ARGUMENT"),
        ("climbs", climbs, "INVALID_ARGUMENT"),
        ("compressed", [&[0x1f, 0x8b, 8, 0][..], &good].concat(), "INVALID_ARGUMENT"),
        ("too long", large, "INVALID_ARGUMENT"),
        ("a layer that is not what the configuration says", forged, "INVALID_ARGUMENT"),
    ];
    let count = cases.len();
    for (what, tar, expected) in cases {
        let refused = import(&mut clients, header(&image), &tar).await.unwrap_err();
        assert_eq!(reason(&refused), expected, "{what}: {refused}");
        assert!(!docker(&["image", "inspect", &image.0]).status.success(), "{what}");
    }
    let told = phases(&mut clients, "image_imported", &image).await;
    assert_eq!(told.iter().filter(|told| told["phase"] == "failed").count(), count, "{told:?}");
    for reference in ["", "cofferdam/default:1", "../version?a=", "a@sha256:b"] {
        let header = v1::ImportImageHeader { reference: reference.to_owned(), ..Default::default() };
        assert_eq!(reason(&import(&mut clients, header, &good).await.unwrap_err()), "INVALID_ARGUMENT");
    }
    // A form that it does not have.
    let header = v1::ImportImageHeader { form: Form::DockerArchive.into(), ..header(&image) };
    assert_eq!(reason(&import(&mut clients, header, &good).await.unwrap_err()), "INVALID_ARGUMENT");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_is_built_and_its_output_is_seen() {
    let daemon = Daemon::start().await;
    let mut clients = daemon.connect().await;
    let image = named("built");
    // With its own name, so that the engine has it in no cache.
    let run = format!("RUN echo from-the-build > /made && seq 20000 && echo seen-in {}", image.0);
    let tar = context(&daemon, &run);
    let (output, built) = build(&mut clients.images, build_header(&image), &tar).await;
    let built = built.unwrap();
    // The engine tells it in larger pieces than the daemon does.
    let printed: Vec<_> = (1..=20_000).map(|number: u32| number.to_string()).collect();
    assert!(output.contains(&(printed.join("\n") + &format!("\nseen-in {}", image.0))), "{output}");
    let told = phases(&mut clients, "image_built", &image).await;
    assert_eq!((&told[0]["phase"], &told[1]["phase"]), (&"begun".into(), &"done".into()));
    assert_eq!(told[1]["image_id"], built.image_id.as_str());
    let mut run = run_in(&daemon, &image).await.unwrap();
    assert_eq!(run.ran(calls::exec(&["cat", "/made"])).await.stdout, "from-the-build\n");

    // Why a build failed is said, and leaves neither an image nor a container.
    let broken = named("broken");
    let tar = context(&daemon, "RUN echo before-the-end && false");
    let (output, failed) = build(&mut clients.images, build_header(&broken), &tar).await;
    let failed = failed.unwrap_err();
    assert_eq!(reason(&failed), "PRECONDITION_FAILED", "{failed}");
    assert!(output.contains("before-the-end") && failed.message().contains("false"), "{failed}");
    assert!(!docker(&["image", "inspect", &broken.0]).status.success());
    let leads_out = made(|tar| {
        add(tar, "Dockerfile", b"FROM scratch\nCOPY passwd /\n");
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        tar.append_link(&mut header, "passwd", "../../../etc/passwd").unwrap();
    });
    let (_, refused) = build(&mut clients.images, build_header(&broken), &leads_out).await;
    let refused = refused.unwrap_err();
    assert_eq!(reason(&refused), "INVALID_ARGUMENT");
    assert!(refused.message().contains("leads out"), "{refused}");
}

/// Containers in which a build runs this.
fn building(word: &str) -> bool {
    let processes = Command::new("ps").args(["-eo", "args"]).output().unwrap();
    String::from_utf8_lossy(&processes.stdout)
        .lines()
        .any(|line| line.contains(word) && !line.contains("docker"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_never_ends_is_ended_by_its_time_its_client_and_the_daemon() {
    let mut daemon = Daemon::start().await;
    let mut clients = daemon.connect().await;
    // In its time.
    let image = named("endless");
    let word = format!("8641{}", std::process::id() % 1_000);
    let tar = context(&daemon, &format!("RUN sleep {word}"));
    let timeout = Some(wire::duration(Duration::from_secs(6)));
    let header = v1::BuildImageHeader { timeout, ..build_header(&image) };
    let (_, ended) = build(&mut clients.images, header, &tar).await;
    assert_eq!(reason(&ended.unwrap_err()), "TIMED_OUT");
    until("the build goes on after its time", async || !building(&word)).await;

    // When its client goes away.
    let mut images = clients.images.clone();
    let (header, context_tar) = (build_header(&image), tar.clone());
    let client = tokio::spawn(async move { build(&mut images, header, &context_tar).await });
    until("the build does not begin", async || building(&word)).await;
    client.abort();
    until("the build goes on without its client", async || !building(&word)).await;
    let began = Instant::now();
    loop {
        let told = phases(&mut clients, "image_built", &image).await;
        if told.last().unwrap()["reason"] == "CANCELLED" {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{told:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    // When the daemon stops.
    let mut images = clients.images.clone();
    let header = build_header(&image);
    let client = tokio::spawn(async move { build(&mut images, header, &tar).await });
    until("the build does not begin again", async || building(&word)).await;
    drop(clients);
    daemon.stop().await;
    until("the build outlives the daemon", async || !building(&word)).await;
    client.abort();
    assert!(!docker(&["image", "inspect", &image.0]).status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn images_are_for_operators_alone() {
    let config = "access: [{ uid: 4321, roles: [orchestrator, approver, auditor] }]\n".to_owned();
    let daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    daemon.expose();
    let socket = daemon.socket();
    let refused = as_user(4321, &socket, async |mut clients: Clients| {
        let header = v1::ImportImageHeader { reference: "x:1".to_owned(), ..Default::default() };
        let imported = import(&mut clients, header, &filesystem("x")).await.unwrap_err();
        let header = v1::BuildImageHeader { reference: "x:1".to_owned(), ..Default::default() };
        let (_, built) = build(&mut clients.images, header, &filesystem("x")).await;
        let listed = clients.images.list_images(v1::ListImagesRequest {}).await.unwrap_err();
        [imported, built.unwrap_err(), listed].map(|status| reason(&status))
    })
    .await;
    assert_eq!(refused, ["PERMISSION_DENIED"; 3].map(str::to_owned));
}

fn out(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap().trim().to_owned()
}

fn write(directory: &Path, name: &str, content: &[u8]) {
    std::fs::write(directory.join(name), content).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_imports_builds_and_lists() {
    let daemon = Daemon::start().await;
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "image.tar", &filesystem("by hand\n"));
    let (imported, built) = (named("cli-imported"), named("cli-built"));
    let file = directory.path().join("image.tar");
    let id = out(&daemon.coffer(&["image", "import", file.to_str().unwrap(), &imported.0]));
    assert!(id.starts_with("sha256:"), "{id}");
    let tools = directory.path().join("tools");
    std::fs::create_dir(&tools).unwrap();
    write(&tools, "Dockerfile", format!("FROM {}\nCOPY more /\n", imported.0).as_bytes());
    write(&tools, "more", b"more\n");
    let id = out(&daemon.coffer(&["image", "build", tools.to_str().unwrap(), &built.0]));
    let listed = out(&daemon.coffer(&["image", "list"]));
    let line = listed.lines().find(|line| line.contains(&built.0)).unwrap();
    assert!(line.contains(&id["sha256:".len()..][..12]) && line.contains("harness"), "{listed}");
    let missing = daemon.coffer(&["run", "create", "--profile", "open", "--managed", "--image", "no/such:1"]);
    let told = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(!missing.status.success() && told.contains("coffer image import"), "{told}");
}

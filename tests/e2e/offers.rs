//! The table in `images/README.md` of what a container offers to programs, measured beside a plain one of the engine's.
//!
//! A row that differs from the table fails, in a run as in the plain container. So neither the product nor the document changes
//! alone.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use harness::v1::{self, CreateRunRequest};
use harness::{Daemon, Image, Libc, RunHandle, Setup, calls, debian, offers_with, requests};

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../images/README.md");
const BEGIN: &str = "| row | plain | run | why, and what to do |";
const PROFILES: [&str; 5] = ["build", "harness", "open", "review", "strict"];

/// Measured values, by the names of their rows.
type Rows = BTreeMap<String, String>;

/// Returns the rows of the table by name, each with the cell of a plain container and that of a run.
fn table() -> BTreeMap<&'static str, (&'static str, &'static str)> {
    static TEXT: LazyLock<String> = LazyLock::new(|| std::fs::read_to_string(README).unwrap());
    let rows = TEXT.lines().skip_while(|line| *line != BEGIN).skip(2);
    let mut table = BTreeMap::new();
    for row in rows.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [names, plain, run, why] = cells[..] else { panic!("not four cells: {row}") };
        assert!(plain == run || !why.is_empty(), "no reason: {row}");
        for name in names.split("; ") {
            let earlier = table.insert(name, (plain, run));
            assert!(earlier.is_none(), "{name} has two rows");
        }
    }
    table
}

/// Returns true if a cell has this value. Values are alternatives, or a profile's by its name: `EROFS; harness: ok`.
fn is_as_written(cell: &str, profile: &str, found: &str) -> bool {
    let prefix = format!("{profile}: ");
    let own = cell.split("; ").find_map(|part| part.strip_prefix(&prefix));
    let usual = cell.split("; ").next().unwrap_or_default();
    own.unwrap_or(usual).split(" or ").any(|value| value == found)
}

fn parse(text: &str) -> Rows {
    let line = |line: &str| line.split_once('\t').map(|(name, value)| (name.to_owned(), value.to_owned()));
    text.lines().filter_map(line).collect()
}

fn plain(image: &str, program: &Path) -> Rows {
    let mount = format!("{}:/offers:ro", program.display());
    let output = Command::new("docker")
        .args(["run", "--rm", "--network", "none", "-v", &mount, image, "/offers"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    parse(&String::from_utf8(output.stdout).unwrap())
}

/// A run with the program in its workspace.
async fn enter(daemon: &Daemon, profile: &str, image: &str, offers: &Path) -> RunHandle {
    let workspace = daemon.workspace(&format!("{profile}-{}", image.replace(['/', ':'], "-")), &[]);
    let program = workspace.join("offers");
    std::fs::copy(offers, &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    daemon.run_on(CreateRunRequest { image: image.to_owned(), ..requests::bind(profile, &workspace) }).await
}

async fn measured(run: &mut RunHandle) -> Rows {
    let operation = calls::exec(&["/workspace/offers"]);
    let asks = matches!(run.run.profile.as_str(), "build" | "review" | "strict");
    let response = if asks { run.consented(operation).await.1 } else { run.call(operation).await.unwrap() };
    let Some(v1::result::Kind::Exec(result)) = response.into_kind() else { panic!("not a command's result") };
    assert_eq!((result.exit_code, result.stderr.as_str()), (Some(0), ""));
    parse(&result.stdout)
}

fn differences(found: &Rows, cell: impl Fn(&str) -> Option<(&'static str, bool)>) -> Vec<String> {
    found
        .iter()
        .filter_map(|(name, value)| match cell(name) {
            Some((_, true)) => None,
            Some((cell, false)) => Some(format!("{name}: {value}, and the table has `{cell}`")),
            None => Some(format!("{name}: {value}, and the table has no such row")),
        })
        .collect()
}

/// Returns the rows of a run that differ from the table.
fn of_run(found: &Rows, profile: &str) -> Vec<String> {
    let table = table();
    differences(found, |name| {
        let (_, run) = table.get(name)?;
        Some((run, is_as_written(run, profile, &found[name])))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_has_the_features_of_the_table_beside_a_plain_one() {
    let table = table();
    let beside = plain(&debian(), &harness::offers());
    let names: BTreeSet<&str> = beside.keys().map(String::as_str).collect();
    assert_eq!(table.keys().copied().collect::<BTreeSet<_>>(), names);
    let wrong = differences(&beside, |name| {
        let (plain, _) = table[name];
        Some((plain, is_as_written(plain, "", &beside[name])))
    });
    assert_eq!(wrong, [""; 0], "in the plain container");

    let config = "harness_on_bind: allow\npool: [{ profile: open, min: 1, max: 1 }]\n".to_owned();
    let daemon = Daemon::start_with(Setup { config, ..Setup::default() }).await;
    for profile in PROFILES {
        let mut run = enter(&daemon, profile, &debian(), &harness::offers()).await;
        assert_eq!(of_run(&measured(&mut run).await, profile), [""; 0], "{profile}");
        run.stop().await;
    }
    // In a container that was there before its run.
    daemon.pool_is_full(1).await;
    let workspace = daemon.workspace("warm", &[]);
    std::fs::copy(harness::offers(), workspace.join("offers")).unwrap();
    let mut warm = daemon.run("open", &workspace).await;
    assert_eq!(warm.run.start_kind(), v1::run::StartKind::Warm);
    assert_eq!(without_directories(of_run(&measured(&mut warm).await, "open")), [""; 0], "warm");
}

/// An image without any file has less to write to, and nothing else less.
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_image_offers_the_same() {
    let nothing = Image::of_files("offers-nothing", &[("motd", "x")], &[]);
    let linked = Image::of_links(
        "offers-links",
        &[
            ("etc/resolv.conf", "../run/systemd/resolve/stub-resolv.conf"),
            ("etc/hosts", "/run/hosts"),
            ("bin", "usr/bin"),
        ],
    );
    let config = "harness_on_bind: allow\n".to_owned();
    let daemon = Daemon::start_with(Setup { config, ..Setup::default() }).await;
    for image in [&nothing.0, &linked.0] {
        for profile in ["open", "harness"] {
            let mut run = enter(&daemon, profile, image, &harness::offers()).await;
            let wrong = without_directories(of_run(&measured(&mut run).await, profile));
            assert_eq!(wrong, [""; 0], "{profile} of {image}");
            run.stop().await;
        }
    }
}

/// Programs with the C library of their image find the same: in Debian's, and in one that has nothing but libraries.
#[tokio::test(flavor = "multi_thread")]
async fn an_images_own_c_library_finds_the_same() {
    let program = offers_with(Libc::Shared);
    let distroless = Image::of_program(
        "offers-distroless",
        &program,
        &[
            ("etc/passwd", "root:x:0:0:root:/root:/sbin/nologin\n"),
            ("etc/group", "root:x:0:\n"),
            // In a directory that only root can write.
            ("tmp/.keep", ""),
            ("root/.keep", ""),
        ],
    );
    let config = "harness_on_bind: allow\n".to_owned();
    let daemon = Daemon::start_with(Setup { config, ..Setup::default() }).await;
    let table = table();
    for image in [&debian(), &distroless.0] {
        let beside = plain(image, &program);
        let wrong = differences(&beside, |name| {
            let (plain, _) = table.get(name)?;
            Some((plain, is_as_written(plain, "", &beside[name])))
        });
        assert_eq!(without_directories(wrong), [""; 0], "plain, of {image}");
        for profile in ["open", "harness"] {
            let mut run = enter(&daemon, profile, image, &program).await;
            let wrong = without_directories(of_run(&measured(&mut run).await, profile));
            assert_eq!(wrong, [""; 0], "{profile} of {image}");
            run.stop().await;
        }
    }
}

/// Leaves out directories that an image need not have.
fn without_directories(mut wrong: Vec<String>) -> Vec<String> {
    let absent = ["/var/tmp", "/run", "/usr/local"].map(|path| format!("write in {path}: ENOENT"));
    wrong.retain(|line| !absent.iter().any(|absent| line.starts_with(absent)));
    wrong
}

/// Names by the libraries and programs of an image, as they are used.
#[tokio::test(flavor = "multi_thread")]
async fn localhost_and_the_own_name_resolve_for_an_images_programs() {
    let daemon = Daemon::start().await;
    for profile in ["open", "harness"] {
        let mut run = daemon
            .run_on(CreateRunRequest { image: harness::dev_image(), ..requests::managed(profile) })
            .await;
        let script = "import os, socket, multiprocessing as m, http.server, threading, urllib.request
assert socket.gethostname() == 'cofferdam' and socket.getfqdn('localhost') == 'localhost'
assert {socket.gethostbyname(n) for n in ('localhost', socket.gethostname())} == {'127.0.0.1'}
assert socket.if_nameindex()[0][1] == 'lo'
server = http.server.HTTPServer(('localhost', 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
assert urllib.request.urlopen(f'http://{socket.gethostname()}:{server.server_port}/').status == 200
def double(x): return 2 * x
lock, queue = m.Lock(), m.Queue()
with m.Pool(2) as pool: assert pool.map(double, [1, 2]) == [2, 4]
from multiprocessing import shared_memory
shared_memory.SharedMemory(create=True, size=1 << 20).unlink()
print('all')
";
        let python = run.exec(&["python3", "-c", script]).await;
        assert_eq!(python.stdout, "all\n", "{profile}: {}", python.stderr);
        let node = "const os = require('os'), dns = require('dns');
            dns.lookup(os.hostname(), (error, address) => console.log(error, address, Object.keys(os.networkInterfaces())))";
        assert_eq!(run.exec(&["node", "-e", node]).await.stdout, "null 127.0.0.1 [ 'lo' ]\n", "{profile}");
        let hosts = run.exec(&["getent", "hosts", "localhost", "cofferdam"]).await;
        assert_eq!(hosts.stdout.lines().count(), 2, "{profile}: {hosts:?}");
    }
}

#[test]
fn a_cell_is_read_as_it_is_written() {
    assert!(is_as_written("ok", "open", "ok") && !is_as_written("ok", "open", "EPERM"));
    assert!(is_as_written("EPERM or ENOSYS", "", "ENOSYS"));
    let cell = "EROFS; harness: ok";
    assert!(is_as_written(cell, "harness", "ok") && !is_as_written(cell, "harness", "EROFS"));
    assert!(is_as_written(cell, "open", "EROFS") && !is_as_written(cell, "open", "ok"));
    assert!(Path::new(harness::offers().as_path()).is_absolute());
}

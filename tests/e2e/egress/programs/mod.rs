//! Programs of the image of `images/dev`, which reach servers without a setting for their way: no variable names a proxy.
//!
//! The servers have certificates of an authority that the programs are told by an option or a file, as a company's own would be.

mod grpc;
mod packages;
mod real_programs;
mod suggested;
mod system;

use std::time::Duration;

use super::server::Server;
use super::shell;
use super::site::{LARGE, WORDS, digest_of_large};
use super::world::{CA, Setting, World};
use packages::served;

#[tokio::test(flavor = "multi_thread")]
async fn n71_git_clones_over_https_and_over_its_own_protocol() {
    let server = Server::git().await;
    let mut world = World::start(Setting { tcp: &[server.port], ..Setting::default() }).await;
    let files = [("hello.txt", "hello\n")];
    let repository = world.repository(&files);
    world.site.put(served(&repository, "/repo.git"));
    let url = world.url();
    let log = world
        .says(&format!(
            "git -c http.sslCAInfo={CA} clone -q {url}/repo.git over-https && git -C over-https log --format=%s && cat over-https/hello.txt"
        ))
        .await;
    assert_eq!(log, "first\nhello\n");
    let path = repository.display();
    let log = world
        .says(&format!(
            "git clone -q git://git.example.org:{}{path} over-tcp && cat over-tcp/hello.txt",
            server.port
        ))
        .await;
    assert_eq!(log, "hello\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn n71_a_server_may_speak_first_as_those_of_ssh_do() {
    let server = Server::banner().await;
    let mut world = World::start(Setting { tcp: &[server.port], ..Setting::default() }).await;
    let script = format!(
        "exec 3<>/dev/tcp/git.example.org/{} && read -r line <&3 && echo \"$line\" && echo SSH-2.0-client >&3 && read -r line <&3 && echo \"$line\"",
        server.port
    );
    let said = world.says(&format!("bash -c '{script}'")).await;
    assert_eq!(said, "SSH-2.0-server\r\nSSH-2.0-client\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn n72_libraries_of_python_and_node_reach_a_site_with_tls() {
    let mut world = World::start(Setting::default()).await;
    world.site.put([("/hello".to_owned(), b"hello\n".to_vec())]);
    let (url, port) = (world.url(), world.site.port);
    for script in [
        format!("curl -fsS --cacert {CA} {url}/hello"),
        format!(
            "python3 -c 'import ssl, urllib.request as u; print(u.urlopen(\"{url}/hello\", context=ssl.create_default_context(cafile=\"{CA}\")).read().decode(), end=\"\")'"
        ),
        format!(
            "python3 -c 'import http.client as h, ssl; c = h.HTTPSConnection(\"files.example.org\", {port}, context=ssl.create_default_context(cafile=\"{CA}\")); c.request(\"GET\", \"/hello\"); print(c.getresponse().read().decode(), end=\"\")'"
        ),
        format!(
            "NODE_EXTRA_CA_CERTS={CA} node -e 'fetch(\"{url}/hello\").then(r => r.text()).then(t => process.stdout.write(t))'"
        ),
        format!(
            "node -e 'require(\"https\").get(\"{url}/hello\", {{ ca: require(\"fs\").readFileSync(\"{CA}\") }}, r => r.pipe(process.stdout))'"
        ),
    ] {
        assert_eq!(world.says(&script).await, "hello\n", "{script}");
    }
    // Without the authority, no program takes the certificate: nothing on the way has another one.
    let (code, said) = shell(&mut world.run, &format!("curl -sS {url}/hello")).await;
    assert_eq!(code, Some(60), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn n73_a_websocket_echoes_with_tls_and_without() {
    let mut world = World::start(Setting::default()).await;
    let (tls, plain) = (world.site.port, world.plain.port);
    for script in [
        format!("python3 websocket.py files.example.org {tls} {CA}"),
        format!("python3 websocket.py files.example.org {plain}"),
    ] {
        assert_eq!(world.says(&script).await, "echoed\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn n74_events_arrive_word_by_word_and_after_a_long_silence() {
    let silence = Duration::from_secs(effort::cases(20, 120).into());
    let mut world = World::start(Setting { silence, ..Setting::default() }).await;
    let script = format!("python3 events.py {} {CA}", world.url());
    let said = world.says(&script).await;
    let words: Vec<&str> = said.lines().collect();
    assert_eq!(words[..WORDS.len()], WORDS);
    let silent: u64 = words[WORDS.len()].strip_prefix("silence ").unwrap().parse().unwrap();
    assert!(silent + 1 >= silence.as_secs(), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn n76_a_hundred_mebibytes_up_and_down_have_equal_digests() {
    let mut world = World::start(Setting::default()).await;
    let sum = "sha256sum | cut -d' ' -f1";
    let upload =
        world.says(&format!("head -c {LARGE} /dev/urandom >large && sha256sum <large | cut -d' ' -f1")).await;
    let expected = digest_of_large();
    for url in [world.url(), world.plain_url()] {
        let said = world.says(&format!("curl -fsS --cacert {CA} -H Expect: -T large {url}/upload")).await;
        assert_eq!(said, upload.trim(), "up, {url}");
        let said = world.says(&format!("curl -fsS --cacert {CA} {url}/large | {sum}")).await;
        assert_eq!(said.trim(), expected, "down, {url}");
    }
    let large = u64::try_from(LARGE).unwrap();
    for port in [world.site.port, world.plain.port] {
        let bytes = world.bytes(port, 4).await;
        assert!(bytes.iter().any(|(out, _)| *out >= large) && bytes.iter().any(|(_, into)| *into >= large));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn n77_programs_that_try_both_families_do_not_wait_for_the_one_without_an_address() {
    let mut world = World::start(Setting::default()).await;
    world.site.put([("/hello".to_owned(), b"hello\n".to_vec())]);
    let (url, port) = (world.url(), world.site.port);
    // Its last line: the address is one that libraries call global.
    assert_eq!(world.says(&format!("python3 names.py files.example.org {port}")).await, "True\n");
    let quick = format!("curl -fsS --max-time 2 --cacert {CA} {url}/hello");
    assert_eq!(world.says(&quick).await, "hello\n");
    let script = format!(
        "const began = Date.now(); require(\"net\").connect({{ host: \"files.example.org\", port: {port}, autoSelectFamily: true }}, function () {{ this.end(); console.log(Date.now() - began < 2000); }});"
    );
    assert_eq!(world.says(&format!("node -e '{script}'")).await, "true\n");
    let (code, said) = shell(&mut world.run, &format!("curl -6 -sS --cacert {CA} {url}/hello")).await;
    // "Couldn't resolve host" or "Couldn't connect", and at once.
    assert!(matches!(code, Some(6 | 7)), "{code:?} {said}");
}

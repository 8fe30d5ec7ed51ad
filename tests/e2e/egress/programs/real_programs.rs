//! Programs of the image of `images/programs`, which reach servers without a setting for their way.
//!
//! With `tests/run.sh --long`: the image is large.

mod guards;
mod suggested;

use flate2::Compression;
use flate2::write::GzEncoder;
use harness::{docker, programs_image};
use serde_json::json;

use crate::egress::details;
use crate::egress::site::Files;
use crate::egress::world::{CA, Setting, World};

/// Refuses an address that its library does not call public, as a guard against SSRF does. So does the next one.
const JAVA: &str = r#"
import java.net.*;
import java.net.http.*;

public class Client {
    public static void main(String[] arguments) throws Exception {
        var address = InetAddress.getByName(URI.create(arguments[0]).getHost());
        if (address.isSiteLocalAddress() || address.isLoopbackAddress() || address.isLinkLocalAddress()) {
            throw new SecurityException(address + " is not public");
        }
        var request = HttpRequest.newBuilder(URI.create(arguments[0])).build();
        System.out.print(HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body());
    }
}
"#;

const GO: &str = r#"
package main

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
)

func main() {
	place, _ := url.Parse(os.Args[1])
	found, _ := net.LookupIP(place.Hostname())
	if len(found) != 1 || found[0].IsPrivate() || found[0].IsLoopback() || !found[0].IsGlobalUnicast() {
		panic(found)
	}
	answer, err := http.Get(os.Args[1])
	if err != nil {
		panic(err)
	}
	io.Copy(os.Stdout, answer.Body)
}
"#;

/// Resolves a name for any family, and connects to the first address that answers.
const C: &str = r#"
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int count, char **arguments) {
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *all, *one;
    int failed = count == 3 ? getaddrinfo(arguments[1], arguments[2], &hints, &all) : EAI_FAIL;
    if (failed) {
        puts(gai_strerror(failed));
        return 1;
    }
    for (one = all; one; one = one->ai_next) {
        int stream = socket(one->ai_family, one->ai_socktype, one->ai_protocol);
        if (stream >= 0 && connect(stream, one->ai_addr, one->ai_addrlen) == 0) {
            puts(one->ai_family == AF_INET ? "connected" : "connected over IPv6");
            return 0;
        }
        close(stream);
    }
    puts("no address answers");
    return 1;
}
"#;

async fn world() -> World {
    let world = World::start(Setting { image: programs_image(), ..Setting::default() }).await;
    world.site.put([
        ("/hello".to_owned(), b"hello\n".to_vec()),
        ("/page".to_owned(), b"<p id=p></p><script>p.textContent = 'ran ' + 6 * 7</script>".to_vec()),
    ]);
    world
}

/// Returns a command that writes a file of the workspace.
fn written(name: &str, text: &str) -> String {
    format!("cat >{name} <<'END'\n{text}\nEND\n")
}

/// Returns the archive of a crate.
fn archive() -> Vec<u8> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (name, text) in [
        ("small-1.0.0/Cargo.toml", "[package]\nname = \"small\"\nversion = \"1.0.0\"\nedition = \"2021\"\n"),
        ("small-1.0.0/src/lib.rs", "pub const WORD: &str = \"fetched\";\n"),
    ] {
        let mut header = tar::Header::new_ustar();
        header.set_size(u64::try_from(text.len()).unwrap());
        header.set_mode(0o644);
        archive.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}

/// A manifest up to its dependencies.
const MANIFEST: &str = "[package]\nname = \"it\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\n";

/// Returns the files of a sparse registry with one crate, for a site with this URL.
fn registry(url: &str) -> Files {
    let archive = archive();
    let entry = json!({
        "name": "small", "vers": "1.0.0", "deps": [], "features": {}, "yanked": false,
        "cksum": harness::files::sha256(&archive),
    });
    Files::from([
        ("/index/config.json".to_owned(), json!({ "dl": format!("{url}/crates") }).to_string().into_bytes()),
        ("/index/sm/al/small".to_owned(), format!("{entry}\n").into_bytes()),
        ("/crates/small/1.0.0/download".to_owned(), archive),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn n122_cargo_fetches_from_a_registry_that_a_rule_names() {
    let mut world = world().await;
    let url = world.url();
    world.site.put(registry(&url));
    // Sparse registries are not yet stable in every cargo: hence the option, and the variable that permits it.
    let script = [
        "mkdir -p it/src && cd it && touch src/lib.rs\n".to_owned(),
        written(
            "Cargo.toml",
            &format!("{MANIFEST}small = {{ version = \"1\", registry = \"own\" }}"),
        ),
        format!(
            "export CARGO_HOME=$PWD/home CARGO_HTTP_CAINFO={CA} CARGO_REGISTRIES_OWN_INDEX=sparse+{url}/index/\n\
             export RUSTC_BOOTSTRAP=1\n\
             cargo -Z sparse-registry fetch --quiet >&2 && cat home/registry/src/*/small-1.0.0/src/lib.rs"
        ),
    ]
    .concat();
    let said = world.says(&script).await;
    assert!(said.contains("\"fetched\""), "{said}");
    let requests = world.site.requests();
    assert!(requests.contains(&"GET /crates/small/1.0.0/download".to_owned()), "{requests:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn n122_apt_reads_a_repository_that_a_rule_names() {
    let mut world = world().await;
    let packages = "Package: small\nVersion: 1.0\nArchitecture: all\nMaintainer: Test <test@example.invalid>\n\
                    Filename: small.deb\nSize: 1\nDescription: a package\n";
    let sum = harness::files::sha256(packages.as_bytes());
    let release = format!(
        "Suite: own\nDate: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n {sum} {} Packages\n",
        packages.len()
    );
    world.site.put([
        ("/apt/./Packages".to_owned(), packages.as_bytes().to_vec()),
        ("/apt/./Release".to_owned(), release.into_bytes()),
    ]);
    let script = [
        "mkdir -p apt/etc apt/state/lists/partial apt/cache/archives/partial && touch apt/status\n"
            .to_owned(),
        written("apt/etc/sources.list", &format!("deb [trusted=yes] {}/apt ./", world.url())),
        written(
            "apt/conf",
            &format!(
                "Dir::Etc \"/workspace/apt/etc\";\nDir::State \"/workspace/apt/state\";\n\
                 Dir::State::status \"/workspace/apt/status\";\nDir::Cache \"/workspace/apt/cache\";\n\
                 APT::Sandbox::User \"\";\nAcquire::https::CaInfo \"{CA}\";"
            ),
        ),
        "export APT_CONFIG=/workspace/apt/conf\n\
         apt-get -q update >&2 && apt-cache policy small"
            .to_owned(),
    ]
    .concat();
    let said = world.says(&script).await;
    assert!(said.contains("Candidate: 1.0"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn n123_a_java_client_reaches_a_site_with_tls() {
    let mut world = world().await;
    let script = format!(
        "{}keytool -importcert -noprompt -file {CA} -alias own -keystore trust.p12 -storetype PKCS12 -storepass changeit >keytool.log 2>&1 && \
         java -Djavax.net.ssl.trustStore=trust.p12 -Djavax.net.ssl.trustStorePassword=changeit Client.java {}/hello",
        written("Client.java", JAVA),
        world.url()
    );
    assert_eq!(world.says(&script).await, "hello\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn n123_a_static_go_client_reaches_a_site_with_tls() {
    let mut world = world().await;
    let script = format!(
        "{}export GOCACHE=$PWD/go-cache GOPATH=$PWD/go-path TMPDIR=$PWD\n\
         CGO_ENABLED=0 go build -o client client.go && SSL_CERT_FILE={CA} ./client {}/hello",
        written("client.go", GO),
        world.url()
    );
    assert_eq!(world.says(&script).await, "hello\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn n124_chromium_shows_a_page_of_a_site_with_tls() {
    let mut world = world().await;
    let (url, port) = (world.url(), world.site.port);
    // Its own sandbox needs namespaces, which a run does not have: the run is the sandbox.
    let script = format!(
        "key=$(openssl s_client -connect files.example.org:{port} -servername files.example.org </dev/null 2>/dev/null | \
         openssl x509 -pubkey -noout | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | base64)\n\
         export TMPDIR=$PWD\n\
         chromium --headless=new --no-sandbox --disable-gpu --user-data-dir=$PWD/profile \
         --ignore-certificate-errors-spki-list=$key --dump-dom {url}/page 2>chromium.log || tail -n 20 chromium.log"
    );
    let said = world.says(&script).await;
    assert!(said.contains("ran 42"), "{said}");
    // Its ClientHellos have another one encrypted in them, or what looks like it.
    let intents = details(&mut world.run, "egress_intent", 2).await;
    assert!(intents.iter().any(|intent| intent["encrypted_client_hello"] == true), "{intents:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn n125_the_resolver_of_musl_leads_to_a_connection() {
    let mut world = world().await;
    let script = format!(
        "{}musl-gcc -static -o connect connect.c && ./connect files.example.org {}",
        written("connect.c", C),
        world.site.port
    );
    assert_eq!(world.says(&script).await, "connected\n");
}

/// A PostgreSQL on the host's loopback; removed with the value.
struct Database(String);

impl Database {
    fn start(port: u16) -> Self {
        let script = format!(
            "bin=$(echo /usr/lib/postgresql/*/bin) && $bin/initdb -D /tmp/data -U me --auth trust && \
             exec $bin/postgres -D /tmp/data -k /tmp -c listen_addresses=127.0.0.1 -p {port}"
        );
        let mut started = docker();
        started.args(["run", "--detach", "--network", "host", &programs_image(), "sh", "-c", &script]);
        let output = started.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        Self(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = docker().args(["rm", "--force", &self.0]).output();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn n126_psql_reaches_a_database() {
    let port = harness::free_port();
    let _database = Database::start(port);
    let setting = Setting { image: programs_image(), tcp: &[port], ..Setting::default() };
    let mut world = World::start(setting).await;
    let to = format!("--host git.example.org --port {port} --username me");
    let script = format!(
        "for _ in $(seq 100); do pg_isready --quiet {to} && break; sleep 0.5; done\n\
         psql {to} postgres --tuples-only --no-align --command 'select 6 * 7'"
    );
    assert_eq!(world.says(&script).await, "42\n");
}

//! What a run needs for connections that are opened: a bundle of certificates, variables that name it, and placeholders.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use harness::process::script;
use harness::v1::run::StartKind;
use harness::{
    Certificates, Daemon, Image, RunHandle, Setup, dev_image, forks, reason, record, requests, v1,
};
use tempfile::TempDir;

use super::shell;

const BUNDLE: &str = "/.cofferdam/ca-bundle.pem";
/// The same certificates for Java.
const JAVA_STORE: &str = "/.cofferdam/cacerts.p12";
/// Chromium's policy file, in the directory of its configuration.
const POLICY: &str = "/etc/chromium/policies/managed/cofferdam.json";
/// A bundle of the image, over which the run's is mounted.
const OF_IMAGE: &str = "/etc/ssl/certs/ca-certificates.crt";
const VARIABLES: [&str; 10] = [
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "CURL_CA_BUNDLE",
    "DENO_CERT",
    "GIT_SSL_CAINFO",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_FILE",
];
/// Value of the secret, which no run ever has.
const VALUE: &str = "open-sesame-0123456789";

/// A host with one root, and a daemon with a secret. The profiles `out` and `layered` open connections, and `plain` does not.
struct Host {
    daemon: Daemon,
    root: String,
    _files: (Certificates, TempDir),
}

impl Host {
    async fn start(more: &str) -> Self {
        let certificates = Certificates::for_host("files.example.org");
        let root = std::fs::read_to_string(certificates.authority()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let secret = directory.path().join("model");
        std::fs::write(&secret, format!("{VALUE}\n")).unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        let config = format!("secrets: {{ model: {{ file: '{}' }} }}\n{more}", secret.display());
        let profile = "allowed_images: [\"*\"]\n    \
             operations: { shell: allow, process: allow }\n    \
             exec: { default: allow, deny_list: off, env: [\"*\"] }\n    \
             egress:\n      \
             rules: [{ host: files.example.org, ports: [443], RULE, decision: allow }]\n";
        let opened = profile
            .replace("RULE", "inject: { header: Authorization, value: \"Bearer ${secret:model}\" }")
            + "      placeholders: { MODEL_API_KEY: { secret: model, shape: \"key-{40}\" } }\n";
        let plain = profile.replace("RULE", "scheme: https");
        let policy = format!(
            "profiles:\n  out:\n    workspace: read-write\n    {opened}  layered:\n    root: writable-layer\n    {opened}  \
             plain:\n    {plain}roles: {{ director: {{ allow: \"*\" }} }}\n"
        );
        // The directory has no certificates.
        let environment = vec![
            ("SSL_CERT_FILE", certificates.authority().display().to_string()),
            ("SSL_CERT_DIR", directory.path().display().to_string()),
        ];
        let policy = vec![("out.yaml", policy)];
        let daemon = Daemon::start_with(Setup { config, policy, environment, ..Default::default() }).await;
        Self { daemon, root, _files: (certificates, directory) }
    }
}

/// Runs a script that has to succeed, and returns what it says.
async fn says(run: &mut RunHandle, script: &str) -> String {
    let (code, said) = shell(run, script).await;
    assert_eq!(code, Some(0), "{script}: {said}");
    said
}

/// Returns the certificate beside the root of the host, which is that of the run alone.
async fn authority(run: &mut RunHandle, root: &str) -> String {
    let text = says(run, &format!("cat {BUNDLE}")).await;
    let others = text.replacen(root.trim(), "", 1);
    assert_eq!(
        (others.len() + root.trim().len(), others.matches("BEGIN").count()),
        (text.len(), 1),
        "{text}"
    );
    others
}

async fn placeholder(run: &mut RunHandle) -> String {
    says(run, "printf %s \"$MODEL_API_KEY\"").await
}

#[tokio::test(flavor = "multi_thread")]
async fn n200_a_run_whose_connections_are_opened_has_a_bundle_that_its_variables_name() {
    let host = Host::start("").await;
    // An image without a bundle gets none in its `/etc`.
    let mut bare = host.daemon.run_on(requests::managed("out")).await;
    let of_bare = authority(&mut bare, &host.root).await;
    assert_ne!(shell(&mut bare, &format!("ls {OF_IMAGE}")).await.0, Some(0));

    let request = v1::CreateRunRequest { image: dev_image(), ..requests::managed("out") };
    let mut run = host.daemon.run_on(request).await;
    assert_ne!(authority(&mut run, &host.root).await, of_bare, "each run has an authority of its own");
    says(&mut run, &format!("cmp {BUNDLE} {OF_IMAGE}")).await;
    let mounts = run.run.hardening.iter().find(|fact| fact.name == "mounts").unwrap();
    for path in [BUNDLE, JAVA_STORE] {
        assert!(mounts.value.contains(&format!("{path} read-only")), "{}", mounts.value);
    }
    for target in [BUNDLE, JAVA_STORE, OF_IMAGE] {
        let attempts = ["echo x >", "echo x >>", "rm -f", "chmod 666", "mv -f /etc/hosts"];
        let tried = attempts.map(|attempt| format!("({attempt} {target}) && echo 'done: {attempt}'"));
        let (_, said) = shell(&mut run, &tried.join("; ")).await;
        assert!(!said.contains("done: "), "{target}: {said}");
    }
    let show = VARIABLES.map(|name| format!("echo ${name}")).join("; ");
    let all = format!("{BUNDLE}\n").repeat(VARIABLES.len());
    assert_eq!(says(&mut run, &show).await, all);
    let process = run.start(script(&show)).await.process_id;
    assert_eq!(run.all_of(&process).await.text(), all);
    // What a client asks for is its own.
    let own = BTreeMap::from([("PIP_CERT".to_owned(), "/workspace/own.pem".to_owned())]);
    let request = v1::CreateRunRequest { env: own, ..requests::managed("out") };
    let mut run = host.daemon.run_on(request).await;
    assert_eq!(
        says(&mut run, "echo $PIP_CERT $SSL_CERT_FILE").await,
        format!("/workspace/own.pem {BUNDLE}\n")
    );

    let mut plain = host.daemon.run_on(requests::managed("plain")).await;
    assert_eq!(says(&mut plain, "echo $SSL_CERT_FILE$MODEL_API_KEY").await, "\n");
    assert_ne!(shell(&mut plain, &format!("ls {BUNDLE}")).await.0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn n201_a_placeholder_has_its_shape_is_one_run_s_and_lasts() {
    let mut host = Host::start("").await;
    let mut run = host.daemon.run_on(requests::managed("out")).await;
    let mut other = host.daemon.run_on(requests::managed("out")).await;
    let of_run = placeholder(&mut run).await;
    let random = of_run.strip_prefix("key-").unwrap();
    assert!(random.len() == 40 && random.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{of_run}");
    let of_other = placeholder(&mut other).await;
    assert_ne!(of_other[..20], of_run[..20]);
    let process = run.start(script("printf %s $MODEL_API_KEY")).await.process_id;
    assert_eq!(run.all_of(&process).await.text(), of_run);
    let id = run.id().to_owned();
    let created = record(&run.clients.events(&id, "run_created").await[0])["details"].clone();
    assert_eq!(created["placeholders"], serde_json::json!(["MODEL_API_KEY"]), "{created}");

    let before = authority(&mut run, &host.root).await;
    host.daemon.kill().await;
    host.daemon.launch().await;
    run.clients = host.daemon.connect().await;
    // The first command has the authority of the new process, in the file that was mounted.
    let after = authority(&mut run, &host.root).await;
    assert_ne!(after, before);
    assert_eq!(placeholder(&mut run).await, of_run);

    // A fork is another run.
    let mut fork = forks::ready(&host.daemon, forks::of_run(&id, 1)).await.remove(0);
    let of_fork = placeholder(&mut fork).await;
    assert!(of_fork != of_run && of_fork.len() == of_run.len(), "{of_fork}");
    assert_ne!(authority(&mut fork, &host.root).await, after);
    let everything = says(&mut run, "env; cat /proc/self/environ").await;
    assert!(!everything.contains(VALUE), "{everything}");
}

#[tokio::test(flavor = "multi_thread")]
async fn n202_a_request_cannot_set_the_variable_of_a_placeholder() {
    let host = Host::start("").await;
    let mine = BTreeMap::from([("MODEL_API_KEY".to_owned(), "x".to_owned())]);
    for (field, request) in [
        ("env", v1::CreateRunRequest { env: mine.clone(), ..requests::managed("out") }),
        ("secret_env", v1::CreateRunRequest { secret_env: mine.clone(), ..requests::managed("out") }),
    ] {
        let refused = host.daemon.run_with(request).await.map(|run| run.run.run_id).unwrap_err();
        assert_eq!(reason(&refused), "INVALID_ARGUMENT");
        assert!(
            refused.message().starts_with(&format!("{field}: has MODEL_API_KEY")),
            "{}",
            refused.message()
        );
    }
    // It is any variable where no profile has a placeholder.
    let request = v1::CreateRunRequest { env: mine, ..requests::managed("plain") };
    let mut run = host.daemon.run_on(request).await;
    assert_eq!(placeholder(&mut run).await, "x");
}

#[tokio::test(flavor = "multi_thread")]
async fn n203_a_warm_run_has_its_bundle_and_placeholders_before_its_first_command() {
    let host = Host::start("pool: [{ profile: out, min: 1, max: 1 }]\n").await;
    let mut seen = BTreeMap::new();
    for times in 1..=2 {
        host.daemon.pool_is_full(times).await;
        let mut run = host.daemon.run_on(requests::managed("out")).await;
        assert_eq!(run.run.start_kind(), StartKind::Warm, "{}", host.daemon.log());
        let authority = authority(&mut run, &host.root).await;
        seen.insert(authority, placeholder(&mut run).await);
        run.stop().await;
        run.delete().await;
    }
    let placeholders: BTreeSet<&String> = seen.values().collect();
    assert_eq!((seen.len(), placeholders.len()), (2, 2), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn n204_a_bundle_leaves_nothing_in_a_writable_root_and_ends_with_its_run() {
    let mut host = Host::start("").await;
    let request = v1::CreateRunRequest { image: dev_image(), ..requests::managed("layered") };
    let mut run = host.daemon.run_on(request).await;
    authority(&mut run, &host.root).await;
    says(&mut run, &format!("cmp {BUNDLE} {OF_IMAGE}")).await;
    let layer = host.daemon.state_dir().join("roots").join(run.id()).join("upper");
    assert!(layer.join("etc").is_dir() && !layer.join("etc/ssl").exists(), "no mount point is in the layer");
    // The next daemon knows the mounts.
    host.daemon.kill().await;
    host.daemon.launch().await;
    run.clients = host.daemon.connect().await;
    authority(&mut run, &host.root).await;
    let mounts = host.daemon.state_dir().join("mounts");
    assert!(mounts.join(run.id()).join("ca-bundle.pem").is_file());
    run.stop().await;
    assert_eq!(host.daemon.left_by_runs(), (vec![], vec![]));
    assert_eq!(std::fs::read_dir(&mounts).unwrap().count(), 0);
    run.delete().await;
    assert!(host.daemon.roots_are_gone());
}

/// An image of busybox with these files, and with links by place and target.
fn image(name: &str, files: &[&str], links: &[(&str, &str)]) -> Image {
    let make = |root: &Path| {
        let made = |path: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            path
        };
        std::fs::copy("/bin/busybox", made("bin/busybox")).unwrap();
        for applet in ["sh", "cat", "cmp", "ls", "rm"] {
            symlink("busybox", made(&format!("bin/{applet}"))).unwrap();
        }
        for file in files {
            std::fs::write(made(file), "of the image\n").unwrap();
        }
        for (path, target) in links {
            symlink(target, made(path)).unwrap();
        }
    };
    Image::of_tree(name, make, &[])
}

#[tokio::test(flavor = "multi_thread")]
async fn n205_a_bundle_covers_those_of_the_image_and_follows_no_link_out_of_etc() {
    let host = Host::start("").await;
    let fedora = "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem";
    let both = image(
        "bundles",
        &[
            &OF_IMAGE[1..],
            &fedora[1..],
            "etc/ssl/certs/java/cacerts",
            "opt/java/openjdk/lib/security/cacerts",
        ],
        &[
            ("etc/ssl/cert.pem", "certs/ca-certificates.crt"),
            ("etc/pki/tls/certs/ca-bundle.crt", "../../ca-trust/extracted/pem/tls-ca-bundle.pem"),
        ],
    );
    let stores = ["/etc/ssl/certs/java/cacerts", "/opt/java/openjdk/lib/security/cacerts"];
    let beneath_workspace = "workspace/pki/tls/certs/ca-bundle.crt";
    let hostile = image(
        "bundles-elsewhere",
        &[
            beneath_workspace,
            "workspace/cert.pem",
            "workspace/java/openjdk/lib/security/cacerts",
            "etc/ssl/certs/ca-certificates.crt/a-directory",
        ],
        &[
            ("etc/pki", "/workspace/pki"),
            ("etc/ssl/cert.pem", "/workspace/cert.pem"),
            ("opt/java", "/workspace/java"),
        ],
    );
    let request = |image: &Image| v1::CreateRunRequest { image: image.0.clone(), ..requests::managed("out") };
    let mut run = host.daemon.run_on(request(&both)).await;
    for place in [OF_IMAGE, fedora, "/etc/ssl/cert.pem", "/etc/pki/tls/certs/ca-bundle.crt"] {
        says(&mut run, &format!("cmp {BUNDLE} {place}")).await;
    }
    for place in stores {
        says(&mut run, &format!("cmp {JAVA_STORE} {place}")).await;
    }
    let mut run = host.daemon.run_on(request(&hostile)).await;
    authority(&mut run, &host.root).await;
    assert_eq!(says(&mut run, "ls -A /workspace").await, "");
    let mounts = run.run.hardening.iter().find(|fact| fact.name == "mounts").unwrap();
    assert!(!mounts.value.contains("/etc/pki") && !mounts.value.contains("/etc/ssl"), "{}", mounts.value);
    assert!(!mounts.value.contains("/opt/java"), "{}", mounts.value);
}

/// Returns the certificates of a policy, in base64.
fn authorities_of(policy: &str) -> Vec<String> {
    let policy: serde_json::Value = serde_json::from_str(policy).unwrap();
    let keys: Vec<&String> = policy.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["CACertificates"]);
    let certificates = policy["CACertificates"].as_array().unwrap().iter();
    certificates.map(|certificate| certificate.as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn n207_chromium_has_a_policy_with_the_authority_beside_those_of_the_image() {
    let mut host = Host::start("").await;
    let browsers = image(
        "browsers",
        &["etc/chromium/policies/managed/own.json", "etc/opt/chrome/initial_preferences"],
        &[("etc/chromium-browser", "/workspace/browser")],
    );
    let elsewhere = image(
        "browsers-elsewhere",
        &["workspace/managed/own.json", "etc/opt/chrome/policies"],
        &[("etc/chromium/policies", "/workspace")],
    );
    for profile in ["out", "layered"] {
        let request = v1::CreateRunRequest { image: browsers.0.clone(), ..requests::managed(profile) };
        let mut run = host.daemon.run_on(request).await;
        let others = authority(&mut run, &host.root).await;
        let of_run: String = others.lines().filter(|line| !line.starts_with("--")).collect();
        let policy = says(&mut run, &format!("cat {POLICY}")).await;
        assert_eq!(authorities_of(&policy), [of_run]);
        says(&mut run, &format!("cmp {POLICY} /etc/opt/chrome/policies/managed/cofferdam.json")).await;
        let own = says(&mut run, "cat /etc/chromium/policies/managed/own.json").await;
        assert_eq!(own, "of the image\n", "the image's own are there");
        for attempt in ["echo x >", "rm -f"] {
            assert_ne!(shell(&mut run, &format!("{attempt} {POLICY}")).await.0, Some(0), "{attempt}");
        }
        assert_eq!(says(&mut run, "ls -A /workspace").await, "");
        // The next daemon writes the authority of the next process.
        host.daemon.kill().await;
        host.daemon.launch().await;
        run.clients = host.daemon.connect().await;
        let again = says(&mut run, &format!("cat {POLICY}")).await;
        assert!(authorities_of(&again).len() == 1 && again != policy, "{again}");
        run.stop().await;
    }
    // Links of the image, and a file in the way, are no place for it.
    let request = v1::CreateRunRequest { image: elsewhere.0.clone(), ..requests::managed("layered") };
    let mut run = host.daemon.run_on(request).await;
    authority(&mut run, &host.root).await;
    assert_eq!(says(&mut run, "ls -A /workspace").await, "");
    // No connection of this profile is opened.
    let request = v1::CreateRunRequest { image: browsers.0.clone(), ..requests::managed("plain") };
    let mut run = host.daemon.run_on(request).await;
    assert_ne!(shell(&mut run, &format!("cat {POLICY}")).await.0, Some(0));
}

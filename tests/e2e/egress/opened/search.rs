//! One search for secrets, of every source, after a session that used them: none is where a run, an engine or a disk could show it.

use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use harness::{calls, dev_image, docker, in_pid_namespace, pid_namespace, requests, v1};

use super::super::{daemon_in, details, shell};
use super::{Keys, Origin, SECRET, ok};

/// Bytes of a process's memory that are searched at a time.
const PIECE: usize = 4 << 20;
/// Values of the sources other than the file.
const OTHERS: [(&str, &str); 3] = [
    ("from_env", "Vq2-canary-8sHn4Yd6Rk0Pj7Ez"),
    ("from_credential", "Wt5-canary-1uBm9Xc3Ng8Fa2Ho"),
    ("from_command", "Jx7-canary-3pLk6Qz0Si5Ov9Cy"),
];
/// Variable of the daemon's environment with a secret.
const VARIABLE: &str = "SEARCHED_KEY";

/// Returns the forms in which a secret could be found: as it is, in hexadecimal digits, and in Base64, also after a user's name.
fn forms(secret: &str) -> Vec<String> {
    let encoded = |text: &str| {
        let mut encoded = STANDARD_NO_PAD.encode(text);
        // The last digit holds bits of what follows.
        encoded.pop();
        encoded
    };
    vec![secret.to_owned(), hex::encode(secret), encoded(secret), encoded(&format!("reader:{secret}"))]
}

fn patterns() -> Vec<String> {
    [SECRET].into_iter().chain(OTHERS.map(|(_, value)| value)).flat_map(forms).collect()
}

fn has(bytes: &[u8], patterns: &[String]) -> bool {
    patterns.iter().any(|pattern| memchr::memmem::find(bytes, pattern.as_bytes()).is_some())
}

/// Returns the readable areas of a process in which a pattern is. A process that has ended has none.
fn in_memory(process: &Path, patterns: &[String]) -> Vec<String> {
    let maps = std::fs::read_to_string(process.join("maps")).unwrap_or_default();
    let Ok(memory) = std::fs::File::open(process.join("mem")) else { return Vec::new() };
    let longest = patterns.iter().map(String::len).max().unwrap();
    let mut bytes = vec![0; PIECE + longest];
    let mut found = Vec::new();
    for area in
        maps.lines().filter(|area| area.split(' ').nth(1).is_some_and(|rights| rights.starts_with('r')))
    {
        let (begin, end) = area.split(' ').next().unwrap().split_once('-').unwrap();
        let address = |text| u64::from_str_radix(text, 16).unwrap();
        let (mut at, end) = (address(begin), address(end));
        while at < end {
            let length = usize::try_from(end - at).unwrap().min(bytes.len());
            // Areas without memory cannot be read.
            let Ok(read @ 1..) = memory.read_at(&mut bytes[..length], at) else { break };
            if has(&bytes[..read], patterns) {
                found.push(format!("{}: {area}", process.display()));
                break;
            }
            at += u64::try_from(read.min(PIECE)).unwrap();
        }
    }
    found
}

/// Returns the files beneath directories in which a pattern is.
fn in_files(directories: &[PathBuf], patterns: &[String]) -> String {
    let words = patterns.iter().flat_map(|pattern| ["-e", pattern]);
    let found = Command::new("grep")
        .args(["-rlaF", "--devices=skip"])
        .args(words)
        .args(directories)
        .output()
        .unwrap();
    String::from_utf8_lossy(&found.stdout).into_owned()
}

/// Returns the argument lists and environments in which a pattern is.
fn in_arguments(processes: &[PathBuf], patterns: &[String]) -> Vec<PathBuf> {
    let files = processes.iter().flat_map(|process| ["cmdline", "environ"].map(|file| process.join(file)));
    files.filter(|file| has(&std::fs::read(file).unwrap_or_default(), patterns)).collect()
}

/// Returns the processes that a process started, from whichever thread, and theirs.
fn started_by(pid: u32) -> Vec<PathBuf> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let children: String = children.collect();
    let children = children.split_whitespace().map(|child| child.parse().unwrap());
    children
        .flat_map(|child| [vec![PathBuf::from(format!("/proc/{child}"))], started_by(child)].concat())
        .collect()
}

fn closed(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn the_search_finds_what_is_there() {
    let patterns = patterns();
    // This process has them.
    assert!(!in_memory(Path::new("/proc/self"), &patterns).is_empty());
    let directory = tempfile::tempdir().unwrap();
    for (number, pattern) in patterns.iter().enumerate() {
        std::fs::write(directory.path().join(number.to_string()), format!("\0a{pattern}b")).unwrap();
    }
    assert_eq!(in_files(&[directory.path().to_owned()], &patterns).lines().count(), patterns.len());
    let encoded = base64::engine::general_purpose::STANDARD.encode(format!("reader:{SECRET}"));
    assert!(has(encoded.as_bytes(), &patterns));
}

/// Asks for everything that echoes, and stays with all answers in its memory.
const SESSION: &str = "\
import os, ssl, sys, time, urllib.error, urllib.request
kept = []
for port in sys.argv[1:]:
    url = 'https://files.example.org:' + port
    for path, headers in [('/a', {}), ('/b', {'Authorization': 'Bearer own', 'X-Key': 'own'}), ('/refused?x=' + os.environ['MODEL_API_KEY'], {})]:
        try:
            with urllib.request.urlopen(urllib.request.Request(url + path, b'body', headers)) as answer:
                kept.append(answer.read() + str(answer.headers).encode())
        except (urllib.error.URLError, OSError) as error:
            kept.append(repr(error).encode() + (error.read() if hasattr(error, 'read') else b''))
print(len(kept), sum(b'****' in answer for answer in kept), flush=True)
while not os.path.exists('go'): time.sleep(0.05)
";

#[tokio::test(flavor = "multi_thread")]
async fn s52_no_secret_of_any_source_is_found_after_a_session() {
    let keys = Keys::make();
    let [(_, of_env), (_, of_credential), (_, of_command)] = OTHERS;
    let (credentials, program) =
        (keys.directory.path().join("credentials"), keys.directory.path().join("print"));
    std::fs::create_dir(&credentials).unwrap();
    closed(&credentials.join("key"), of_credential, 0o600);
    closed(&program, &format!("#!/bin/sh\necho {of_command}\n"), 0o700);
    let origin = Origin::start(Some(&keys.certificates), |request| ok("text/plain", request)).await;
    let mut more = Vec::new();
    for _ in 0..3 {
        more.push(Origin::start(Some(&keys.certificates), |request| ok("text/plain", request)).await);
    }
    let rule = |port: u16, inject: &str| {
        format!("{{ host: files.example.org, ports: [{port}], inject: {inject}, decision: allow }}, ")
    };
    let basic = "{ basic: { user: reader, password: \"${secret:from_env}\" } }";
    let rules = [
        rule(origin.port, "{ header: Authorization, value: \"Bearer ${secret:model}\" }"),
        rule(more[0].port, basic),
        rule(more[1].port, "{ header: X-Key, value: \"${secret:from_credential}\" }"),
        rule(more[2].port, "{ header: X-Key, value: \"key ${secret:from_command}\" }"),
    ]
    .concat();
    let config = format!(
        "secrets:\n  model: {{ file: '{}' }}\n  from_env: {{ env: {VARIABLE} }}\n  from_credential: {{ credential: key }}\n  \
         from_command: {{ command: ['{}'] }}\n",
        keys.file().display(),
        program.display()
    );
    let egress = format!(
        "{{ networks: [\"127.0.0.0/8\"], rules: [{rules}], placeholders: {{ MODEL_API_KEY: {{ secret: model, shape: \"key-{{40}}\" }} }} }}"
    );
    let environment =
        vec![(VARIABLE, of_env.to_owned()), ("CREDENTIALS_DIRECTORY", credentials.display().to_string())];
    let authority = format!("'{}'", keys.certificates.authority().display());
    let mut daemon = daemon_in(environment, &authority, &config, &egress, "").await;
    let request = v1::CreateRunRequest { image: dev_image(), ..requests::managed("out") };
    let mut run = daemon.run_on(request).await;

    run.ok(calls::write("session.py", SESSION)).await;
    let ports = [&origin, &more[0], &more[1], &more[2]].map(|origin| origin.port.to_string());
    let script = format!("timeout 200 python3 session.py {} >said 2>&1", ports.join(" "));
    let mut other = run.clone();
    let session = tokio::spawn(async move { shell(&mut other, &script).await });
    let (code, said) =
        shell(&mut run, "for i in $(seq 600); do [ -s said ] && break; sleep 0.1; done; cat said").await;
    // Two of three of each are answered, and each of these has an echo of its secret that is hidden.
    assert_eq!((code, said.as_str()), (Some(0), "12 8\n"));
    for (origin, secret) in [&origin, &more[1], &more[2]].into_iter().zip([SECRET, of_credential, of_command])
    {
        assert!(origin.requests().iter().all(|request| request.contains(secret)), "{:?}", origin.requests());
        assert_eq!(origin.requests().len(), 2);
    }
    // An error about a source is no place for it either.
    std::fs::remove_file(keys.file()).unwrap();
    let url = format!("https://files.example.org:{}/c", origin.port);
    let (_, said) = shell(&mut run, &format!("curl -sS {url}; env; set")).await;
    let patterns = patterns();
    assert!(said.contains("model") && !has(said.as_bytes(), &patterns), "{said}");
    details(&mut run, "egress_receipt", 4).await;

    let [container] = &daemon.containers()[..] else { panic!("not one container") };
    let processes = in_pid_namespace(&pid_namespace(container));
    let is_session = |process: &PathBuf| {
        std::fs::read_to_string(process.join("cmdline")).is_ok_and(|words| words.contains("session.py"))
    };
    assert!(processes.iter().any(is_session), "{processes:?}");
    let found: Vec<String> = processes.iter().flat_map(|process| in_memory(process, &patterns)).collect();
    assert_eq!(found, Vec::<String>::new(), "memory of the run");
    assert_eq!(in_arguments(&processes, &patterns), Vec::<PathBuf>::new(), "the run");
    // The variable is the daemon's own.
    let of_daemon = started_by(daemon.pid());
    assert!(!of_daemon.is_empty());
    assert_eq!(in_arguments(&of_daemon, &patterns), Vec::<PathBuf>::new(), "processes of the daemon");

    let root = processes[0].join("root");
    let inside = ["tmp", "run", "dev/shm", "workspace", ".cofferdam"].map(|place| root.join(place));
    let inside: Vec<PathBuf> = inside.into_iter().filter(|place| place.exists()).collect();
    assert_eq!(in_files(&inside, &patterns), "", "files of the run");
    for words in [["inspect", container.as_str()], ["logs", container.as_str()]] {
        let shown = docker().args(words).output().unwrap();
        assert!(!has(&[shown.stdout, shown.stderr].concat(), &patterns), "docker {}", words[0]);
    }
    // State, log, record, spool, policy, configuration and workspaces are all beneath this directory.
    let outside = [daemon.outside().to_owned()];
    assert_eq!(in_files(&outside, &patterns), "", "files of a live daemon");
    assert_eq!(shell(&mut run, "touch go").await.0, Some(0));
    assert_eq!(session.await.unwrap().0, Some(0));
    run.stop().await;
    daemon.stop().await;
    assert_eq!(in_files(&outside, &patterns), "", "files of a daemon that has ended");
}

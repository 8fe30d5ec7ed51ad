//! A server of git over HTTPS: `git http-backend` behind basic authentication.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use harness::Certificates;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::process::Command;

use super::SECRET;

/// A server with the repositories `org/app` and `org/other`. `org/moved` leads to the second.
pub(super) struct Forge {
    pub(super) port: u16,
    root: TempDir,
    /// Requests that had the secret.
    pub(super) authenticated: Arc<Mutex<Vec<String>>>,
}

impl Forge {
    pub(super) async fn start(certificates: &Certificates) -> Self {
        let root = tempfile::tempdir().unwrap();
        let work = root.path().join("work");
        std::fs::create_dir(&work).unwrap();
        git(&work, &["init", "-q", "-b", "main"]);
        std::fs::write(work.join("first"), "first\n").unwrap();
        git(&work, &["add", "first"]);
        git(&work, &["commit", "-q", "-m", "first"]);
        for name in ["app", "other"] {
            let bare = root.path().join(format!("org/{name}.git"));
            git(root.path(), &["clone", "-q", "--bare", "work", bare.to_str().unwrap()]);
            git(&bare, &["config", "receive.advertisePushOptions", "true"]);
            git(&bare, &["config", "core.logAllRefUpdates", "false"]);
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (acceptor, place) = (certificates.acceptor(), root.path().to_owned());
        let authenticated = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&authenticated);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, place, kept) = (acceptor.clone(), place.clone(), Arc::clone(&kept));
                tokio::spawn(async move {
                    if let Ok(mut stream) = acceptor.accept(stream).await {
                        serve(&mut stream, &place, &kept).await;
                        let _ = stream.shutdown().await;
                    }
                });
            }
        });
        Self { port, root, authenticated }
    }

    /// Returns the directory of a repository.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(format!("org/{name}.git"))
    }

    /// Commits a file on a branch of `app`, after its last commit. Returns the id.
    pub(super) fn commit(&self, branch: &str, file: &str, content: &str) -> String {
        let work = self.root.path().join("work");
        let app = self.path("app");
        let app = app.to_str().unwrap();
        let has_branch = self.refs("app").contains(&format!("refs/heads/{branch} "));
        git(&work, &["fetch", "-q", app, if has_branch { branch } else { "main" }]);
        git(&work, &["checkout", "-q", "--detach", "FETCH_HEAD"]);
        let path = work.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        git(&work, &["add", "-A", "-f"]);
        git(&work, &["commit", "-q", "-m", &format!("change {file}")]);
        git(&work, &["push", "-q", app, &format!("HEAD:refs/heads/{branch}")]);
        self.id(branch).unwrap()
    }

    /// Returns the id of a branch of `app`.
    pub(super) fn id(&self, branch: &str) -> Option<String> {
        let refs = self.refs("app");
        let line = refs.lines().find_map(|line| line.strip_prefix(&format!("refs/heads/{branch} ")));
        line.map(str::to_owned)
    }

    /// Returns the refs of a repository, one a line.
    pub(super) fn refs(&self, name: &str) -> String {
        git(&self.path(name), &["for-each-ref", "--format=%(refname) %(objectname)"])
    }
}

/// Runs git on the host, and returns its output.
fn git(directory: &Path, args: &[&str]) -> String {
    let output = std::process::Command::new("git")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args(["-c", "user.name=A", "-c", "user.email=a@example.org"])
        .args(args)
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Answers one request.
async fn serve(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), root: &Path, kept: &Mutex<Vec<String>>) {
    let mut bytes = Vec::new();
    let Some(end) = super::head_end(stream, &mut bytes).await else { return };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    bytes.drain(..end);
    let is_authenticated = super::header(&head, "authorization")
        .is_some_and(|value| value == format!("Basic {}", STANDARD.encode(format!("x:{SECRET}"))));
    let first = head.lines().next().unwrap_or_default().to_owned();
    let target = first.split(' ').nth(1).unwrap_or_default();
    let response = if !is_authenticated {
        b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec()
    } else if let Some(rest) = target.strip_prefix("/org/moved.git") {
        kept.lock().push(first.clone());
        format!("HTTP/1.1 302 Found\r\nLocation: /org/other.git{rest}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").into_bytes()
    } else {
        kept.lock().push(first.clone());
        let Some(body) = read_body(stream, &head, bytes).await else { return };
        backend(root, &head, target, &body).await
    };
    let _ = stream.write_all(&response).await;
}

/// Reads a body with a length or in chunks. `None` if it breaks off.
async fn read_body(stream: &mut (impl AsyncRead + Unpin), head: &str, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    if super::header(head, "transfer-encoding").is_none() {
        let length = super::header(head, "content-length").map_or(0, |length| length.parse().unwrap());
        fill(stream, &mut bytes, length).await?;
        return Some(bytes);
    }
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let line = loop {
            if let Some(end) = bytes[at..].windows(2).position(|end| end == b"\r\n") {
                break at..at + end;
            }
            let more = bytes.len() + 1;
            fill(stream, &mut bytes, more).await?;
        };
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[line.clone()]).unwrap(), 16).unwrap();
        let begin = line.end + 2;
        fill(stream, &mut bytes, begin + size + 2).await?;
        body.extend_from_slice(&bytes[begin..begin + size]);
        at = begin + size + 2;
        if size == 0 {
            return Some(body);
        }
    }
}

async fn fill(stream: &mut (impl AsyncRead + Unpin), bytes: &mut Vec<u8>, length: usize) -> Option<()> {
    while bytes.len() < length {
        if stream.read_buf(bytes).await.unwrap_or(0) == 0 {
            return None;
        }
    }
    Some(())
}

/// Has `git http-backend` answer a request.
async fn backend(root: &Path, head: &str, target: &str, body: &[u8]) -> Vec<u8> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let header = |name: &str| super::header(head, name).unwrap_or_default();
    let project: PathBuf = root.to_owned();
    let mut child = Command::new("git")
        .arg("http-backend")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_PROJECT_ROOT", project)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REMOTE_USER", "x")
        .env("REMOTE_ADDR", "127.0.0.1")
        .env("REQUEST_METHOD", head.split(' ').next().unwrap_or_default())
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("GIT_PROTOCOL", header("git-protocol"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut input, body) = (child.stdin.take().unwrap(), body.to_vec());
    let writing = tokio::spawn(async move { drop(input.write_all(&body).await) });
    let output = child.wait_with_output().await.unwrap().stdout;
    writing.await.unwrap();
    let end = output.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    let fields = String::from_utf8_lossy(&output[..end - 2]).into_owned();
    let status = fields.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK");
    let length = output.len() - end;
    let mut response =
        format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\nConnection: close\r\n\r\n")
            .into_bytes();
    response.extend_from_slice(&output[end..]);
    response
}

//! A receiver of webhooks, which checks their signatures.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A server for webhooks: hands over each connection with the request that came on it.
pub(crate) async fn receiver() -> (u16, tokio::sync::mpsc::Receiver<(TcpStream, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (requests, received) = tokio::sync::mpsc::channel(16);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut sent = Vec::new();
            let whole = |sent: &[u8]| {
                let text = String::from_utf8_lossy(sent).into_owned();
                let (head, body) = text.split_once("\r\n\r\n")?;
                let length = header(head, "content-length").parse::<usize>().ok()?;
                (body.len() >= length).then_some(())
            };
            let mut piece = [0; 4096];
            while whole(&sent).is_none() {
                match stream.read(&mut piece).await {
                    Ok(count) if count > 0 => sent.extend_from_slice(&piece[..count]),
                    _ => break,
                }
            }
            let _ = requests.send((stream, String::from_utf8(sent).unwrap())).await;
        }
    });
    (port, received)
}

/// A header of a request, empty when it is not there.
pub(crate) fn header<'t>(head: &'t str, name: &str) -> &'t str {
    let found = head.lines().find_map(|line| line.split_once(": ").filter(|(key, _)| *key == name));
    found.map_or("", |(_, value)| value)
}

/// Answers a request with this status, and nothing else.
pub(crate) async fn answer(mut stream: TcpStream, status: &str) {
    let _ = stream.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes()).await;
}

/// The signature as another program computes it.
pub(crate) fn signature(key: &[u8], request: &str) -> String {
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let signed = format!("{}.{}.{body}", header(head, "webhook-id"), header(head, "webhook-timestamp"));
    let hex = key.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    let script = format!("openssl dgst -sha256 -mac HMAC -macopt hexkey:{hex} -binary | base64");
    let mut child = std::process::Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), signed.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    format!("v1,{}", String::from_utf8(output.stdout).unwrap().trim())
}

/// A secret file; the directory keeps it.
pub(crate) fn secret(directory: &Path) -> PathBuf {
    let path = directory.join("webhook.secret");
    // 24 times the byte 1.
    std::fs::write(&path, format!("whsec_{}\n", "AQEB".repeat(8))).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    path
}

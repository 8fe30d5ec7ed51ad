//! Open pages of the console, as a browser and the console's script keep them: each has a stream of events, and asks for itself again
//! when it hears that something has changed, at most once in a second and a half.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use harness::{Daemon, v1};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::observers::Noted;

/// Time from one refresh to the next, as the script has it.
const AGAIN: Duration = Duration::from_millis(1_500);

/// A person who has signed in.
pub(super) struct Browser {
    address: String,
    origin: String,
    cookie: String,
}

impl Browser {
    /// Signs in with a new token.
    pub(super) async fn signed_in(daemon: &Daemon, name: &str) -> Self {
        let token = v1::Token {
            name: name.to_owned(),
            roles: ["approver", "auditor"].map(str::to_owned).into(),
            ..Default::default()
        };
        let (_, secret) = daemon.token(token, None).await;
        let origin = daemon.told("the console is served origin=");
        let address = daemon.told(&format!("the console is served origin={origin} address="));
        let mut browser = Self { address, origin, cookie: String::new() };
        let head = format!(
            "{}Origin: {}\r\nContent-Type: application/x-www-form-urlencoded\r\n",
            browser.head("POST", "/sign-in/token"),
            browser.origin
        );
        // The one character of Base64 that a form has as another.
        let secret = secret.replace('+', "%2B");
        let answer = ask(&browser.address, &head, &format!("token={secret}")).await;
        let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: "));
        let cookie = cookie.unwrap_or_else(|| panic!("{name} cannot sign in: {answer}"));
        cookie.split(';').next().unwrap().clone_into(&mut browser.cookie);
        browser
    }

    fn head(&self, method: &str, path: &str) -> String {
        let host = self.origin.strip_prefix("http://").unwrap();
        format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nCookie: {}\r\n", self.cookie)
    }

    /// Keeps a page open for as long as its daemon lives.
    pub(super) async fn watch(self, page: &'static str, noted: Arc<Noted>) {
        let shown = ask(&self.address, &self.head("GET", page), "").await;
        let events = shown.split_once("data-events=\"").unwrap_or_else(|| panic!("{page}: {shown}")).1;
        let events = events.split('"').next().unwrap().replace("&amp;", "&");
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let head = format!("{}Accept: text/event-stream\r\n\r\n", self.head("GET", &events));
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut lines = BufReader::new(stream).lines();
        // Several changes until the next refresh are one.
        let changed = Notify::new();
        let listen = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                match line.as_str() {
                    "event: hello" => drop(noted.streams.fetch_add(1, Ordering::Relaxed)),
                    "event: change" => changed.notify_one(),
                    _ => {}
                }
            }
        };
        let refresh = async {
            let head = format!("{}cofferdam-refresh: 1\r\n", self.head("GET", page));
            loop {
                changed.notified().await;
                let answer = ask(&self.address, &head, "").await;
                assert!(answer.starts_with("HTTP/1.1 200 "), "{page}: {answer}");
                noted.refreshes.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(AGAIN).await;
            }
        };
        tokio::select! {
            () = listen => {}
            () = refresh => {}
        }
    }
}

/// Sends a request on a new connection, and returns the whole answer.
pub(super) async fn ask(address: &str, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{head}Connection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

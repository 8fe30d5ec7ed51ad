//! An issuer that tests play, and tokens of it.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use tokio::sync::watch;
use webhook::{Tls, testing};

/// Returns a token with these claims and no valid signature.
pub(crate) fn token(claims: &Value) -> String {
    format!("{}.{}.c2ln", URL_SAFE_NO_PAD.encode("{}"), URL_SAFE_NO_PAD.encode(claims.to_string()))
}

/// Answers of a server: status and body, by path.
pub(crate) type Answers = BTreeMap<&'static str, (u16, String)>;

/// A server with TLS.
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) tls: Tls,
    pub(crate) answers: watch::Sender<Answers>,
    /// Requests that it got, each as a whole.
    pub(crate) asked: watch::Receiver<Vec<String>>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let (answers, said) = watch::channel(Answers::new());
        let (count, asked) = watch::channel(Vec::new());
        let answer = move |request: String| {
            let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
            count.send_modify(|all: &mut Vec<String>| all.push(request));
            let (status, body) = said.borrow().get(path.as_str()).cloned().unwrap_or((404, String::new()));
            let head = format!("HTTP/1.1 {status} Said\r\ncontent-length: {}\r\n\r\n", body.len());
            format!("{head}{body}").into_bytes()
        };
        let (url, tls) = testing::serve(answer).await;
        Self { url, tls, answers, asked }
    }

    pub(crate) fn say(&self, path: &'static str, status: u16, body: &Value) {
        self.answers.send_modify(|answers| drop(answers.insert(path, (status, body.to_string()))));
    }
}

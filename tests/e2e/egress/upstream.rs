//! Connections through the upstream proxy of the daemon's configuration.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use harness::{Daemon, Setup, requests};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::server::Server;
use super::{details, shell};

/// An HTTP proxy that connects each name but `blocked.example.org` to one server.
struct Proxy {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    async fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let heard = requests.clone();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let heard = heard.clone();
                tokio::spawn(async move {
                    let mut request = Vec::new();
                    while !request.ends_with(b"\r\n\r\n") {
                        request.push(client.read_u8().await.unwrap());
                    }
                    let request = String::from_utf8(request).unwrap();
                    let is_blocked = request.contains("blocked.example.org");
                    heard.lock().push(request);
                    if is_blocked {
                        let _ = client.write_all(b"HTTP/1.1 403 Forbidden\r\n\r\n").await;
                        return;
                    }
                    let mut server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                    let _ = client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await;
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self { port, requests }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn n92_connections_go_through_the_upstream_proxy_and_it_is_on_record() {
    let (http, pinned) = (Server::http().await, Server::http().await);
    let proxy = Proxy::to(http.port).await;
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "user:pass\n").unwrap();
    std::fs::set_permissions(secret.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
    let config = format!(
        "egress: {{ hosts: {{ inner.example.org: 127.0.0.1 }}, upstream_proxy: '127.0.0.1:{}', \
         upstream_proxy_credentials: '{}' }}\n",
        proxy.port,
        secret.path().display()
    );
    // Nothing but the proxy knows the first two names.
    let policy = format!(
        "profiles:\n  out:\n    operations: {{ shell: allow }}\n    exec: {{ default: allow }}\n    egress: {{ networks: \
         [127.0.0.0/8], rules: [ {{ host: files.example.org, ports: [8080], scheme: http, decision: allow }}, \
         {{ host: blocked.example.org, ports: [8080], scheme: http, decision: allow }}, {{ host: inner.example.org, ports: \
         [{}], scheme: http, decision: allow }} ] }}\n\
         roles: {{ director: {{ allow: \"*\" }} }}\n",
        pinned.port
    );
    let setup = Setup { config, policy: vec![("out.yaml", policy)], ..Default::default() };
    let daemon = Daemon::start_with(setup).await;
    let mut run = daemon.run_on(requests::managed("out")).await;

    let (code, said) = shell(&mut run, "wget -qO- http://files.example.org:8080/a").await;
    assert_eq!((code, said.as_str()), (Some(0), "GET /a HTTP/1.1\n"));
    let asked = proxy.requests();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert!(asked[0].starts_with("CONNECT files.example.org:8080 HTTP/1.1\r\n"), "{asked:?}");
    assert!(asked[0].contains("\r\nProxy-Authorization: Basic dXNlcjpwYXNz\r\n"), "{asked:?}");
    let receipt = details(&mut run, "egress_receipt", 1).await.remove(0);
    assert_eq!((&receipt["upstream_proxy"], &receipt["host"]), (&true.into(), &"files.example.org".into()));

    // A name with an address of its own is reached directly.
    let (code, _) = shell(&mut run, &format!("wget -qO- http://inner.example.org:{}/", pinned.port)).await;
    assert_eq!((code, pinned.connections(), proxy.requests().len()), (Some(0), 1, 1));

    // The guard for addresses holds for literals, whatever the proxy would reach.
    shell(&mut run, "echo x | nc -w 5 10.1.2.3 8080").await;
    details(&mut run, "egress_refused", 1).await;
    assert_eq!(proxy.requests().len(), 1);

    // A refusal of the proxy is no connection, and has its reason.
    assert_ne!(shell(&mut run, "wget -qO- http://blocked.example.org:8080/").await.0, Some(0));
    assert_eq!((proxy.requests().len(), http.connections()), (2, 1));
    let receipts = details(&mut run, "egress_receipt", 3).await;
    assert!(receipts.iter().any(|receipt| receipt["cause"] == "upstream_proxy"), "{receipts:?}");
}

//! Asks an HTTP proxy for a connection to the server (RFC 9110, section 9.3.6).

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use wire::worker::v1::Tunnel;
use wire::worker::v1::connection_ended::Cause;

/// Time that a proxy has for its answer.
const TIME: Duration = Duration::from_secs(30);
/// Most bytes of its head.
const HEAD: usize = 8 * 1024;
/// Most fields in its head.
const FIELDS: usize = 64;
const END: &[u8] = b"\r\n\r\n";

/// Asks the proxy at the other end. Afterwards, the stream leads to the server.
pub(crate) async fn tunnel(stream: &mut TcpStream, to: &Tunnel) -> Result<(), Cause> {
    let asked = timeout(TIME, ask(stream, to)).await;
    match asked {
        Ok(Ok(200..=299)) => Ok(()),
        Ok(Ok(_) | Err(_)) | Err(_) => Err(Cause::Proxy),
    }
}

/// Sends the request. Returns the status of the answer, whose head has been read, and no byte after it.
async fn ask(stream: &mut TcpStream, Tunnel { authority, authorization }: &Tunnel) -> io::Result<u16> {
    let authorization = match authorization.as_str() {
        "" => String::new(),
        value => format!("Proxy-Authorization: {value}\r\n"),
    };
    let request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{authorization}\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while !head.ends_with(END) {
        // Looked at first, because the bytes after the head are the server's.
        let seen = stream.peek(&mut piece).await?;
        let before = head.len();
        head.extend_from_slice(piece.get(..seen).unwrap_or_default());
        if let Some(at) = head.windows(END.len()).position(|bytes| bytes == END) {
            head.truncate(at + END.len());
        }
        let taken = head.len() - before;
        if taken == 0 || head.len() > HEAD {
            return Err(io::ErrorKind::InvalidData.into());
        }
        stream.read_exact(piece.get_mut(..taken).unwrap_or_default()).await?;
    }
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    response.parse(&head).map_err(io::Error::other)?;
    response.code.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use wire::worker::v1::Tunnel;

    use super::{HEAD, tunnel};

    /// Sends the pieces of an answer, one after the other. Returns the request, and what was read after the tunnel was there.
    async fn answered(pieces: &[&[u8]], authorization: &str) -> (String, Result<Vec<u8>, ()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let proxy = async {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(client.read_u8().await.unwrap());
            }
            for piece in pieces {
                client.write_all(piece).await.unwrap();
                client.flush().await.unwrap();
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            String::from_utf8(request).unwrap()
        };
        let to = Tunnel { authority: "files.example.org:443".into(), authorization: authorization.into() };
        let client = async {
            let mut stream = TcpStream::connect(address).await.unwrap();
            tunnel(&mut stream, &to).await.map_err(drop)?;
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.unwrap();
            Ok(rest)
        };
        tokio::join!(proxy, client)
    }

    #[tokio::test]
    async fn a_proxy_is_asked_for_the_name_and_the_first_bytes_of_the_server_stay() {
        for pieces in [
            &[&b"HTTP/1.1 200 Connection established\r\n\r\nSSH-2.0-x\r\n\r\n"[..]][..],
            &[b"HTTP/1.0 200 OK\r\nVia: a\r\n\r", b"\nSSH-2.0-x\r\n\r\n"],
            &[b"HTTP/1.1 204 \r\n", b"\r\n", b"SSH-2.0-x\r\n", b"\r\n"],
        ] {
            let (request, rest) = answered(pieces, "").await;
            assert_eq!(
                request,
                "CONNECT files.example.org:443 HTTP/1.1\r\nHost: files.example.org:443\r\n\r\n"
            );
            assert_eq!(rest.unwrap(), b"SSH-2.0-x\r\n\r\n");
        }
        let (request, _) = answered(&[b"HTTP/1.1 200 OK\r\n\r\n"], "Basic YTpi").await;
        assert!(request.contains("\r\nProxy-Authorization: Basic YTpi\r\n"), "{request}");
    }

    #[tokio::test]
    async fn other_answers_are_refusals() {
        let long = [b"HTTP/1.1 200 OK\r\nX: ".to_vec(), vec![b'a'; HEAD]].concat();
        for answer in [
            &b"HTTP/1.1 403 Forbidden\r\n\r\n"[..],
            b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
            b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
            b"SSH-2.0-x\r\n\r\n",
            b"HTTP/1.1 200",
            b"",
            &long,
        ] {
            assert_eq!(answered(&[answer], "").await.1, Err(()), "{}", String::from_utf8_lossy(answer));
        }
    }
}

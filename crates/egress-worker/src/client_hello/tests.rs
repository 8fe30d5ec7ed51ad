use std::sync::Arc;

use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::server::Acceptor;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, version};

use super::*;

const NAME: &str = "files.example.org";

/// Returns the first bytes of a real client.
fn hello(name: &str, change: impl FnOnce(&mut ClientConfig)) -> Vec<u8> {
    let versions = ClientConfig::builder_with_protocol_versions(&[&version::TLS13, &version::TLS12]);
    let mut config = versions.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    change(&mut config);
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

/// Returns the facts of a ClientHello without an encrypted one.
fn plain(name: &str) -> Hello {
    Hello { server_name: name.to_owned(), has_encrypted: false }
}

/// Feeds parts of `size` bytes. Returns the first result, and the bytes for the server.
fn collect(bytes: &[u8], size: usize) -> (Result<Option<Hello>, Cause>, Vec<u8>) {
    let mut collector = Collector::default();
    for part in bytes.chunks(size) {
        match collector.push(part) {
            Ok(None) => {}
            result => return (result, collector.into_bytes()),
        }
    }
    (Ok(None), collector.into_bytes())
}

/// Divides the handshake message of one record into records of `size` bytes.
fn fragment(record: &[u8], size: usize) -> Vec<u8> {
    let (header, message) = record.split_at(RECORD_HEADER);
    let record = |part: &[u8]| {
        let length = u16::try_from(part.len()).unwrap().to_be_bytes();
        [&header[..3], &length, part].concat()
    };
    message.chunks(size).flat_map(record).collect()
}

/// Appends an extension to a ClientHello of one record, and mends the lengths.
fn with_extension(hello: &[u8], kind: u16, content: &[u8]) -> Vec<u8> {
    let mut message = hello[RECORD_HEADER..].to_vec();
    let mut at = MESSAGE_HEADER + 2 + RANDOM;
    at += 1 + usize::from(message[at]);
    at += 2 + usize::from(u16::from_be_bytes([message[at], message[at + 1]]));
    at += 1 + usize::from(message[at]);
    let extension =
        [&kind.to_be_bytes(), &u16::try_from(content.len()).unwrap().to_be_bytes()[..], content].concat();
    // In front, as a pre-shared key must be the last.
    message.splice(at + 2..at + 2, extension);
    let extensions = u16::try_from(message.len() - at - 2).unwrap();
    message[at..at + 2].copy_from_slice(&extensions.to_be_bytes());
    let length = u32::try_from(message.len() - MESSAGE_HEADER).unwrap().to_be_bytes();
    message[1..4].copy_from_slice(&length[1..]);
    let record = u16::try_from(message.len()).unwrap().to_be_bytes();
    [&hello[..3], &record, &message].concat()
}

#[test]
fn the_name_of_a_real_client_is_found_however_it_arrives() {
    let whole = hello(NAME, |_| {});
    for bytes in [whole.clone(), fragment(&whole, 100), fragment(&whole, 1)] {
        for size in [1, 7, bytes.len()] {
            assert_eq!(collect(&bytes, size), (Ok(Some(plain(NAME))), bytes.clone()), "{size}");
        }
    }
}

#[test]
fn bytes_after_the_client_hello_are_not_lost() {
    let bytes = [hello(NAME, |_| {}), vec![0x14, 3, 3, 0, 1, 1]].concat();
    assert_eq!(collect(&bytes, bytes.len()), (Ok(Some(plain(NAME))), bytes.clone()));
}

#[test]
fn a_client_without_a_name_has_none() {
    assert_eq!(collect(&hello(NAME, |config| config.enable_sni = false), 4096).0, Ok(Some(plain(""))));
    assert_eq!(collect(&hello("192.0.2.1", |_| {}), 4096).0, Ok(Some(plain(""))));
}

#[test]
fn an_encrypted_client_hello_is_reported_and_other_extensions_are_not() {
    let outer = [0_u8, 0, 1, 0, 1, 7, 0, 0, 0, 1, 9];
    for (name, whole) in [
        (NAME, hello(NAME, |_| {})),
        ("", hello(NAME, |config| config.enable_sni = false)),
        ("", hello("192.0.2.1", |_| {})),
    ] {
        // For the server that the name in the clear leads to, and for one to which another server passes it on.
        for content in [&outer[..], &[1]] {
            let encrypted = with_extension(&whole, ENCRYPTED_CLIENT_HELLO, content);
            let expected = Hello { server_name: name.to_owned(), has_encrypted: true };
            for bytes in [encrypted.clone(), fragment(&encrypted, 50), fragment(&encrypted, 1)] {
                assert_eq!(collect(&bytes, 4096), (Ok(Some(expected.clone())), bytes));
            }
        }
        let other = with_extension(&whole, 0x4a4a, &outer);
        assert_eq!(collect(&other, 4096).0, Ok(Some(plain(name))));
    }
}

#[test]
fn a_malformed_or_a_second_encrypted_client_hello_is_refused() {
    let whole = hello(NAME, |_| {});
    let outer = [0_u8, 0, 1, 0, 1, 7, 0, 0, 0, 1, 9];
    let encrypted = with_extension(&whole, ENCRYPTED_CLIENT_HELLO, &outer);
    for bytes in [
        // No content, an unknown kind, a cut one, and one without a payload.
        with_extension(&whole, ENCRYPTED_CLIENT_HELLO, &[]),
        with_extension(&whole, ENCRYPTED_CLIENT_HELLO, &[2]),
        with_extension(&whole, ENCRYPTED_CLIENT_HELLO, &outer[..outer.len() - 1]),
        with_extension(&whole, ENCRYPTED_CLIENT_HELLO, &[0, 0, 1, 0, 1, 7, 0, 0, 0, 0]),
        with_extension(&encrypted, ENCRYPTED_CLIENT_HELLO, &outer),
    ] {
        assert_eq!(collect(&bytes, 4096).0, Err(Cause::WrongScheme));
    }
}

/// Returns an extension `server_name` with these names.
fn names(names: &[&str]) -> Vec<u8> {
    let length = |length: usize| u16::try_from(length).unwrap().to_be_bytes();
    let list: Vec<u8> =
        names.iter().flat_map(|name| [&[0], &length(name.len())[..], name.as_bytes()].concat()).collect();
    [&length(list.len())[..], &list].concat()
}

#[test]
fn two_names_are_refused() {
    let whole = hello(NAME, |_| {});
    let second = with_extension(&whole, SERVER_NAME, &names(&["evil"]));
    assert_eq!(collect(&second, 4096).0, Err(Cause::WrongScheme));
    let bare = hello(NAME, |config| config.enable_sni = false);
    let both = with_extension(&bare, SERVER_NAME, &names(&[NAME, "evil"]));
    assert_eq!(collect(&both, 4096).0, Err(Cause::WrongScheme));
}

#[test]
fn a_malformed_name_is_refused_and_an_address_is_none() {
    let bare = hello(NAME, |config| config.enable_sni = false);
    let named = |content: &[u8]| collect(&with_extension(&bare, SERVER_NAME, content), 4096).0;
    assert_eq!(named(&names(&["files.example.org"])), Ok(Some(plain(NAME))));
    for address in ["192.0.2.1", "2001:db8::1"] {
        assert_eq!(named(&names(&[address])), Ok(Some(plain(""))), "{address}");
    }
    let longer = [names(&[NAME]), vec![0]].concat();
    let shorter = &names(&[NAME])[..8];
    let mut other_kind = names(&[NAME]);
    other_kind[2] = 1;
    for content in
        [&[][..], &names(&[]), &names(&[""]), &names(&["münchen.example.org"]), &longer, shorter, &other_kind]
    {
        assert_eq!(named(content), Err(Cause::WrongScheme), "{content:?}");
    }
}

/// A client of TLS 1.2 that knows one extension, as that of busybox does.
#[test]
fn a_client_of_few_extensions_is_accepted() {
    let name = names(&[NAME]);
    let length = |length: usize| u16::try_from(length).unwrap().to_be_bytes();
    let extension = [&[0, 0], &length(name.len())[..], &name].concat();
    let content = [
        &[3, 3][..],
        &[7; RANDOM],
        &[0],
        &[0, 4, 0xc0, 0x2b, 0x00, 0x2f],
        &[1, 0],
        &length(extension.len()),
        &extension,
    ]
    .concat();
    let message = [&[CLIENT_HELLO, 0][..], &length(content.len()), &content].concat();
    let record = [&[HANDSHAKE, 3, 1][..], &length(message.len()), &message].concat();
    assert_eq!(collect(&record, 3), (Ok(Some(plain(NAME))), record.clone()));
    // Bytes that belong to no message.
    let more = [&[HANDSHAKE, 3, 1][..], &length(message.len() + 1), &message, &[0]].concat();
    assert_eq!(collect(&more, 4096).0, Err(Cause::WrongScheme));
    let empty = [&[HANDSHAKE, 3, 1, 0, 0][..], &record].concat();
    assert_eq!(collect(&empty, 4096).0, Err(Cause::WrongScheme));
}

#[test]
fn too_much_without_a_client_hello_is_refused() {
    let whole = hello(NAME, |config| config.alpn_protocols = vec![vec![b'a'; 255]; 80]);
    assert!(whole.len() > MOST);
    assert_eq!(collect(&whole, 1000).0, Err(Cause::WrongScheme));
}

#[test]
fn what_is_not_tls_is_refused_and_a_beginning_waits() {
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: files.example.org\r\n\r\n"[..],
        b"SSH-2.0-OpenSSH_9.6\r\n",
        // An alert, and application data.
        &[21, 3, 1, 0, 2, 2, 40],
        &[23, 3, 3, 0, 1, 0],
        // A ServerHello.
        &[22, 3, 3, 0, 4, 2, 0, 0, 0],
        &[0; 64],
    ] {
        assert_eq!(collect(bytes, 4096).0, Err(Cause::WrongScheme), "{bytes:?}");
    }
    let whole = hello(NAME, |_| {});
    assert_eq!(collect(&whole[..whole.len() - 1], 4096).0, Ok(None));
}

proptest::proptest! {
    #[test]
    fn changed_bytes_give_this_name_another_or_an_error(
        at in 0_usize..200, byte in proptest::num::u8::ANY, size in 1_usize..300,
    ) {
        let mut bytes = hello(NAME, |_| {});
        bytes[at] = byte;
        let (_, kept) = collect(&bytes, size);
        proptest::prop_assert!(bytes.starts_with(&kept));
    }

    /// A server with rustls stands for all servers.
    #[test]
    fn no_server_finds_another_name(
        changes in proptest::collection::vec((0_usize..300, proptest::num::u8::ANY), 1..4), has_name: bool,
    ) {
        let mut bytes = hello(NAME, |config| config.enable_sni = has_name);
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        let mut server = Acceptor::default();
        server.read_tls(&mut &bytes[..]).unwrap();
        if let (Ok(Some(found)), Ok(Some(accepted))) = (collect(&bytes, 4096).0, server.accept()) {
            let name = accepted.client_hello().server_name().unwrap_or_default().to_owned();
            proptest::prop_assert!(found.server_name.eq_ignore_ascii_case(&name), "{found:?}, {name}");
        }
    }
}

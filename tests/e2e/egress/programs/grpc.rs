//! HTTP/2: by curl, and a gRPC stream both ways by Node's client.

use harness::Certificates;
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Identity, Server, ServerTlsConfig};

use crate::egress::world::{CA, Setting, World};

/// Asks for the services over one stream, three times: each time after the answer before. Prints the answers and the status.
const CLIENT: &str = r#"
const [, url, ca] = process.argv;
const client = require("http2").connect(url, ca ? { ca: require("fs").readFileSync(ca) } : {});
const stream = client.request({
    ":method": "POST", ":path": "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "content-type": "application/grpc", te: "trailers",
});
const question = Buffer.from([0, 0, 0, 0, 3, 0x3a, 1, 0x2a]);
let received = Buffer.alloc(0), answers = 0;
stream.write(question);
stream.on("data", part => {
    received = Buffer.concat([received, part]);
    while (received.length >= 5 && received.length >= 5 + received.readUInt32BE(1)) {
        const end = 5 + received.readUInt32BE(1);
        if (received.subarray(5, end).includes("grpc.health.v1.Health")) answers++;
        received = received.subarray(end);
        if (answers < 3) stream.write(question); else stream.end();
    }
});
stream.on("trailers", trailers => { console.log(answers, trailers["grpc-status"]); client.close(); });
"#;

/// Serves the reflection of gRPC, with TLS or without.
async fn serve(certificates: Option<&Certificates>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .unwrap();
    let mut server = Server::builder();
    if let Some(certificates) = certificates {
        let of = |name: &str| std::fs::read(certificates.directory().join("server").join(name)).unwrap();
        let identity = Identity::from_pem(of("cert.pem"), of("key.pem"));
        server = server.tls_config(ServerTlsConfig::new().identity(identity)).unwrap();
    }
    tokio::spawn(server.add_service(reflection).serve_with_incoming(TcpIncoming::from(listener)));
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn n75_http2_and_grpc_pass_both_ways_with_tls_and_without() {
    let certificates = Certificates::for_host("files.example.org");
    let (tls, plain) = (serve(Some(&certificates)).await, serve(None).await);
    let setting = Setting { certificates, https: &[tls], tcp: &[plain], ..Setting::default() };
    let mut world = World::start(setting).await;
    let (tls, plain) =
        (format!("https://files.example.org:{tls}"), format!("http://git.example.org:{plain}"));
    let written = "-o /dev/null -w '%{http_version} %{http_code}\\n'";
    for script in [
        format!("curl -sS --http2 --cacert {CA} {written} {tls}/"),
        format!("curl -sS --http2-prior-knowledge {written} {plain}/"),
    ] {
        assert_eq!(world.says(&script).await, "2 200\n", "{script}");
    }
    for arguments in [format!("{tls} {CA}"), plain] {
        let said = world.says(&format!("node -e '{CLIENT}' {arguments}")).await;
        assert_eq!(said, "3 0\n", "{arguments}");
    }
}

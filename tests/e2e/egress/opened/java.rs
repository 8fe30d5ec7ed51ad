//! The store of certificates for Java, which reads no bundle in PEM.

use harness::{calls, programs_image, requests, v1};

use super::super::shell;
use super::{Keys, Origin, SECRET, header, ok};

const CLIENT: &str = r"
import java.net.*;
import java.net.http.*;

public class Client {
    public static void main(String[] arguments) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(arguments[0])).build();
        System.out.print(HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body());
    }
}
";
const STORE: &str = "/.cofferdam/cacerts.p12";

#[tokio::test(flavor = "multi_thread")]
async fn s53_java_trusts_opened_connections_without_a_setting() {
    let keys = Keys::make();
    let origin = Origin::start(Some(&keys.certificates), |_| ok("text/plain", "hello\n")).await;
    let rule = format!(
        "{{ host: files.example.org, ports: [{}], inject: {{ header: Authorization, value: \"${{secret:model}}\" }}, decision: allow }}",
        origin.port
    );
    let daemon = keys.daemon(&[rule], "").await;
    let request = v1::CreateRunRequest { image: programs_image(), ..requests::managed("out") };
    let mut run = daemon.run_on(request).await;
    run.ok(calls::write("Client.java", CLIENT)).await;
    let client = format!("Client.java https://files.example.org:{}/a", origin.port);
    // With the image's own `cacerts`, and with the store that a JVM elsewhere is given.
    for options in ["", "-Djavax.net.ssl.trustStore=/.cofferdam/cacerts.p12"] {
        assert_eq!(
            shell(&mut run, &format!("java {options} {client}")).await,
            (Some(0), "hello\n".to_owned())
        );
    }
    for request in origin.requests() {
        assert_eq!(header(&request, "authorization").as_deref(), Some(SECRET));
    }
    // Each certificate of the bundle is in it.
    let list = format!(
        "keytool -list -keystore {STORE} -storepass changeit | grep -c trustedCertEntry; grep -c BEGIN $SSL_CERT_FILE"
    );
    let (code, said) = shell(&mut run, &list).await;
    let counts: Vec<&str> = said.lines().collect();
    assert!(code == Some(0) && counts.len() == 2 && counts[0] == counts[1], "{said}");
    for attempt in ["echo x >", "rm -f"] {
        assert_ne!(shell(&mut run, &format!("{attempt} {STORE}")).await.0, Some(0), "{attempt}");
    }
}

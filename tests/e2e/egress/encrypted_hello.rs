//! ClientHellos that have another one encrypted in them, as those of browsers.

use super::world::{CA, Setting, World};
use super::{details, listed};

#[tokio::test(flavor = "multi_thread")]
async fn n110_the_name_in_the_clear_decides_and_an_encrypted_hello_is_on_record() {
    let mut world = World::start(Setting::default()).await;
    let (url, port) = (world.url(), world.site.port);
    world.site.put([("/hello".to_owned(), b"hello\n".to_vec())]);
    let answer = async |world: &mut World, name: &str| {
        world.says(&format!("python3 encrypted_hello.py files.example.org {port} '{name}'")).await
    };
    for name in ["other.example.org", ""] {
        assert_eq!(answer(&mut world, name).await, "refused\n", "{name}");
    }
    assert_eq!(answer(&mut world, "files.example.org").await, "handshake\n");
    assert_eq!(world.says(&format!("curl -fsS --cacert {CA} {url}/hello")).await, "hello\n");

    let intents = details(&mut world.run, "egress_intent", 2).await;
    assert_eq!(intents.len(), 2, "the others never went out: {intents:?}");
    assert_eq!(intents[0]["encrypted_client_hello"], true, "{intents:?}");
    assert_eq!(intents[0]["server_name"], "files.example.org", "{intents:?}");
    assert!(intents[1].get("encrypted_client_hello").is_none(), "{intents:?}");
    let (_, refused) = listed(&mut world.run).await;
    assert!(refused.iter().any(|refused| refused.reason.contains("TLS server name")), "{refused:?}");
}

//! The engine itself, and the default image.

use crate::support::{TestImage, busybox, engine};
use cofferdam_containers::{
    Endpoint, Engine, EngineError, ImageReference, ImportChanges, advisories, ensure_default,
};

#[tokio::test]
async fn the_engine_reports_its_versions() {
    let facts = engine().version().await.unwrap();
    let (major, minor) = facts.api_version.split_once('.').unwrap();
    let api: (u32, u32) = (major.parse().unwrap(), minor.parse().unwrap());
    assert!(api >= (1, 41), "{}", facts.api_version);
    assert!(facts.has_seccomp(), "{:?}", facts.security_options);
    assert!(facts.runtimes.contains(&facts.default_runtime), "{:?}", facts.runtimes);
    assert!(facts.cpus >= 1);
    assert!(facts.runc_version.is_some() && facts.containerd_version.is_some());
    for advisory in advisories(&facts) {
        assert!(advisory.sentence.ends_with('.'), "{}", advisory.sentence);
    }
}

#[tokio::test]
async fn socket_without_a_listener_is_reported_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("engine.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let endpoint = Endpoint::parse(&format!("unix://{}", path.display())).unwrap();
    let error = Engine::connect(&endpoint).unwrap().version().await.unwrap_err();
    assert!(matches!(error, EngineError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().ends_with("no process listens on the socket; start Docker Engine"), "{error}");
}

#[tokio::test]
async fn the_default_image_is_imported_once_and_verified_by_content() {
    let test = TestImage::new().await;
    let again = ensure_default(test.engine.as_ref(), &test.busybox).await.unwrap();
    assert_eq!(again.image, test.image);
    assert_eq!(again.reference, test.reference);
    let facts = test.engine.image(&test.reference).await.unwrap().unwrap();
    assert_eq!(facts.layers.len(), 1);
    assert_eq!(facts.labels["io.cofferdam.image"], facts.layers[0]);
    assert_eq!(facts.labels["io.cofferdam.busybox"], test.busybox.digest());
    assert_eq!(again.busybox, test.busybox.digest());
    assert_eq!(facts.volumes, Vec::<String>::new());
}

#[tokio::test]
async fn another_busybox_makes_another_image() {
    let test = TestImage::new().await;
    let other = ensure_default(test.engine.as_ref(), &busybox()).await.unwrap();
    test.engine.remove_image(other.image.id()).await.unwrap();
    assert_ne!((&other.reference, &other.image), (&test.reference, &test.image));
    assert_ne!(other.busybox, test.busybox.digest());
}

/// Somebody tags another image with the default image's name and gives it its labels.
#[tokio::test]
async fn a_forged_default_image_is_replaced() {
    let test = TestImage::new().await;
    let wanted = test.engine.image(&test.reference).await.unwrap().unwrap();
    let labels = wanted.labels.clone().into_iter().collect();
    // The end of an archive that holds nothing.
    let forged = test
        .engine
        .import_image(vec![0; 1_024].into(), &test.reference, &ImportChanges { labels })
        .await
        .unwrap();
    assert_ne!(forged.id, wanted.id);
    let found = ensure_default(test.engine.as_ref(), &test.busybox).await.unwrap();
    let layers = test.engine.image(&found.reference).await.unwrap().unwrap().layers;
    let _ = test.engine.remove_image(&forged.id).await;
    let _ = test.engine.remove_image(&wanted.id).await;
    test.engine.remove_image(found.image.id()).await.unwrap();
    assert_eq!(layers, wanted.layers);
}

#[tokio::test]
async fn missing_image_is_not_an_error() {
    let absent = ImageReference::parse("cofferdam/absent:none").unwrap();
    assert_eq!(engine().image(&absent).await.unwrap(), None);
}

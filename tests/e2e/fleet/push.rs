//! Images and bases that are pushed to all nodes, over the network and with a certificate.

use super::{Fleet, VICTIM};
use crate::bases::{directory, list, make};
use crate::image_service::{filesystem, header, import, named};

#[tokio::test(flavor = "multi_thread")]
async fn a_push_reaches_all_nodes_and_a_dead_one_fails_alone() {
    let mut fleet = Fleet::start().await;
    let source = fleet.nodes[0].workspace("w", &[("a.txt", "one\n"), ("d/b.txt", "two\n")]);
    let mut clients = fleet.nodes[0].connect().await;
    let base = make(&mut clients, directory(&source)).await.unwrap();
    let id = base.base_id.as_str();
    let pushed = fleet.all(&["base", "push", id]).await;
    for (line, node) in pushed.lines().zip(["2 pushed ", "3 pushed "]) {
        assert!(line.starts_with(node), "{pushed}");
    }
    assert_eq!(fleet.all(&["base", "push", id]).await, pushed.replace("pushed", "present"));
    for daemon in &fleet.nodes[1..] {
        let copies = list(&mut daemon.connect().await).await;
        let [copy] = &copies[..] else { panic!("{copies:?}") };
        assert!(pushed.contains(&copy.base_id) && copy.principal.starts_with("cert:"), "{copy:?}");
        assert_eq!(copy.digest, base.digest);
    }

    // The three share an engine, so each has the image.
    let image = named("pushed-over-nodes");
    import(&mut clients, header(&image), &filesystem("hello\n")).await.unwrap();
    let present = fleet.all(&["image", "push", &image.0, "--from", "2"]).await;
    for (line, node) in present.lines().zip(["1 present sha256:", "3 present sha256:"]) {
        assert!(line.starts_with(node), "{present}");
    }

    for (line, code) in [(&["base", "push", id, "9"][..], 2), (&["base", "push", "ffffffff"], 1)] {
        let refused = fleet.coffer(&[&["--fleet"], line].concat()).await;
        assert_eq!(refused.code, code, "{line:?}: {}", refused.err);
    }
    fleet.nodes[VICTIM].kill().await;
    let failed = fleet.coffer(&["--fleet", "base", "push", id]).await;
    assert_eq!(failed.code, 1, "{}", failed.err);
    assert!(failed.out.contains("2 failed\n") && failed.out.contains("3 present "), "{}", failed.out);
    let alone = fleet.coffer(&["--fleet", "base", "push", id, "3"]).await;
    assert_eq!(alone.code, 0, "{}", alone.err);
    let unreachable = fleet.coffer(&["--fleet", "base", "push", id, "--from", "2"]).await;
    assert_eq!(unreachable.code, 5, "{}", unreachable.err);
}

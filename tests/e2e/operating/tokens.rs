//! The page on API tokens.

use harness::Daemon;

use super::{Operator, REFUSED, block};

const PAGE: &str = include_str!("../../../docs/src/operating/tokens.md");

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_tokens_count_until_they_are_rotated_or_revoked() {
    let daemon = Daemon::start().await;
    let operator = Operator::of(&daemon);
    operator.does(block(PAGE, "create")).await;
    operator.does(block(PAGE, "use")).await;
    operator.does(block(PAGE, "rotate")).await;
    let old = operator.fails(REFUSED, block(PAGE, "use")).await;
    assert!(old.contains("the token was revoked") && old.contains("coffer token create"), "{old}");
    assert!(!old.contains("coffer policy show"), "the policy is not the reason: {old}");
    let new = block(PAGE, "use").replace("ci.token", "ci-new.token");
    operator.does(&new).await;
    let listed = operator.does(block(PAGE, "revoke")).await;
    assert_eq!(listed.matches("revoked 2").count(), 2, "{listed}");
    operator.fails(REFUSED, &new).await;
}

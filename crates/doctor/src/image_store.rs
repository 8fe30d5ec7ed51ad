//! Judges the store in which the engine keeps its images.

use serde_json::Value;

use crate::finding::Finding;

/// Reports a store whose images cannot be pushed, because their ids are not those of their archives. `None` for any other store.
pub(super) fn examine(info: &Value) -> Option<Finding> {
    let is_containerd = |row: &Value| {
        row[0] == "driver-type"
            && row[1].as_str().is_some_and(|kind| kind.starts_with("io.containerd.snapshotter."))
    };
    let follows = "`coffer image push` is refused from and to this engine, because it identifies images by their manifests. To push \
                   images, give the engine its own store: `\"features\": { \"containerd-snapshotter\": false }` in its daemon.json. \
                   Bases are not affected";
    let is_found = info["DriverStatus"].as_array()?.iter().any(is_containerd);
    is_found.then(|| Finding::limited("push of images", "containerd image store", follows))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::finding::Verdict;

    #[test]
    fn a_store_whose_images_are_not_pushed_is_named() {
        let found = |status: Value| examine(&json!({"Driver": "overlayfs", "DriverStatus": status}));
        let finding = found(json!([["driver-type", "io.containerd.snapshotter.v1"]])).unwrap();
        assert_eq!((finding.verdict, &*finding.found), (Verdict::Limited, "containerd image store"));
        assert!(finding.follows.unwrap().contains("containerd-snapshotter"));
        let others = [
            json!([["Backing Filesystem", "extfs"]]),
            json!([["driver-type"], "driver-type", 3, []]),
            json!([]),
            json!(3),
            json!(null),
        ];
        for other in others {
            assert_eq!(found(other.clone()), None, "{other}");
        }
    }
}

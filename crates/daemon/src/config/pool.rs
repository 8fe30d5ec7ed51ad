//! Reads `pool`: the containers that wait for runs.

use containers::ImageReference;
use document::{At, Fields};
use policy::{Policy, has_own_kernel};
use runs::PoolEntry;
use serde_json::{Value, json};

use super::values::number_or;

/// Maximum number of entries. The daemon checks each of them every few seconds.
const MAX_ENTRIES: usize = 32;
/// Maximum number of waiting containers, of all entries together.
const MAX_WARM: usize = 1_000;

/// Reads the section: one entry that holds for each profile, or a list of entries.
pub(super) fn read(top: &Fields<'_>) -> Vec<PoolEntry> {
    let Some(at) = top.get("pool") else { return Vec::new() };
    let listed = at.is_list();
    let items = if listed { top.items("pool") } else { vec![at.clone()] };
    if items.len() > MAX_ENTRIES {
        at.problem(format!("has more than {MAX_ENTRIES} entries"));
        return Vec::new();
    }
    let mut entries: Vec<PoolEntry> = Vec::new();
    for item in &items {
        let Some(read) = entry(item, listed) else { continue };
        let same = |before: &PoolEntry| (&before.profile, &before.image) == (&read.profile, &read.image);
        if entries.iter().any(same) {
            item.problem("there is an entry for this profile and image already");
        }
        // An entry with `max: 0` never has a waiting container.
        if read.max > 0 {
            entries.push(read);
        }
    }
    if entries.iter().map(|entry| entry.max).sum::<usize>() > MAX_WARM {
        at.problem(format!("allows more than {MAX_WARM} warm containers in total (the sum of `max`)"));
    }
    entries
}

fn entry(at: &At<'_>, listed: bool) -> Option<PoolEntry> {
    let keys: &[&str] = if listed { &["profile", "image", "min", "max"] } else { &["min", "max"] };
    let fields = at.fields(keys);
    let most = u32::try_from(MAX_WARM).unwrap_or(u32::MAX);
    let (min, max) = (number_or(&fields, "min", 0..=most, 0), number_or(&fields, "max", 0..=most, 0));
    if min > max {
        fields.at("min").problem("must not be above `max`");
    }
    let profile = if listed { Some(fields.required("profile")?.text()?.to_owned()) } else { None };
    let image = fields.get("image").and_then(|at| {
        let parsed = at.text().map(ImageReference::parse)?;
        parsed.map_err(|error| at.problem(error.to_string())).ok()
    });
    Some(PoolEntry { profile, image, min: min as usize, max: max as usize })
}

/// Returns the entries in the form of the configuration file.
pub(super) fn shown(entries: &[PoolEntry]) -> Value {
    let one = |entry: &PoolEntry| {
        let mut shown = json!({ "min": entry.min, "max": entry.max });
        if let Some(profile) = &entry.profile {
            shown["profile"] = json!(profile);
        }
        if let Some(image) = &entry.image {
            shown["image"] = json!(image.as_str());
        }
        shown
    };
    match entries {
        [] => json!({ "min": 0, "max": 0 }),
        [entry] if entry.profile.is_none() => one(entry),
        entries => entries.iter().map(one).collect(),
    }
}

/// Checks that the policy permits each entry of the pool.
///
/// A policy that is loaded later is not checked: an entry that it does not permit stays empty.
pub(crate) fn check(entries: &[PoolEntry], policy: &Policy) -> anyhow::Result<()> {
    for (index, entry) in entries.iter().enumerate() {
        let Some(name) = &entry.profile else { continue };
        let problem = |key: &str, why: String| Err(anyhow::anyhow!("pool[{index}].{key}: {why}"));
        let Some(profile) = policy.profile(name) else {
            let known: Vec<&str> = policy.profile_names().collect();
            return problem(
                "profile",
                format!("the policy has no profile {name}; it has {}", known.join(", ")),
            );
        };
        if profile.root_in_user_namespace {
            let why = format!("{name} has `root_in_user_namespace`: its starts are cold");
            return problem("profile", why);
        }
        if profile.runtime.as_deref().is_some_and(has_own_kernel) {
            let why =
                format!("{name} has gVisor as its runtime, which takes no mounts later: its starts are cold");
            return problem("profile", why);
        }
        if !profile.permits_image(entry.image.as_ref().map(ImageReference::as_str)) {
            return problem("image", format!("profile {name} does not allow it; see its allowed_images"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use policy::Policy;

    use super::super::testing::{keys, parse};
    use super::check;

    #[test]
    fn both_forms_are_read_and_printed_as_they_are() {
        assert_eq!(parse("{}").unwrap().pool, []);
        for text in [
            "pool: { min: 0, max: 0 }",
            "pool: { min: 1, max: 8 }",
            "pool: [{ profile: open, min: 2, max: 4 }, { profile: open, image: 'a:1', max: 1 }]",
        ] {
            let config = parse(text).unwrap();
            let again = parse(&config.to_string()).unwrap();
            assert_eq!(again.pool, config.pool, "{text}");
        }
        let entry = &parse("pool: { min: 1, max: 8 }").unwrap().pool[0];
        assert_eq!(
            (entry.min, entry.max, entry.profile.is_none(), entry.image.is_none()),
            (1, 8, true, true)
        );
    }

    #[test]
    fn pool_problems_are_reported_by_key() {
        assert_eq!(keys("pool: { min: 2, max: 1 }"), ["pool.min"]);
        assert_eq!(keys("pool: { max: 1001 }"), ["pool.max"]);
        assert_eq!(keys("pool: { profile: open, max: 1 }"), ["pool.profile"]);
        let listed =
            "pool: [{ max: 1 }, { profile: a, image: '-', max: 600 }, { profile: b, min: x, max: 600 }]";
        assert_eq!(keys(listed), ["pool[0]", "pool[1].image", "pool[2].min", "pool"]);
        assert_eq!(keys("pool: [{ profile: a, max: 1 }, { profile: a, max: 2 }]"), ["pool[1]"]);
    }

    #[test]
    fn pool_conflicts_with_the_policy_are_reported_by_key() {
        let policy = Policy::builtin().unwrap();
        let told = |text: &str| check(&parse(text).unwrap().pool, &policy).unwrap_err().to_string();
        assert!(told("pool: [{ profile: opne, max: 1 }]").starts_with("pool[0].profile: the policy has no"));
        check(&parse("pool: [{ profile: harness, max: 1 }]").unwrap().pool, &policy).unwrap();
        check(&parse("pool: { min: 1, max: 2 }").unwrap().pool, &policy).unwrap();

        let directory = tempfile::tempdir().unwrap();
        let profile = "profiles: { p: { allowed_images: ['a:*'], operations: { read: allow } } }\n\
            roles: { director: { allow: '*' } }\n";
        std::fs::write(directory.path().join("p.yaml"), profile).unwrap();
        let narrow = Policy::load_dir(directory.path()).unwrap();
        let asked = |image: &str| {
            check(
                &parse(&format!("pool: [{{ profile: p, image: '{image}', max: 1 }}]")).unwrap().pool,
                &narrow,
            )
        };
        asked("a:1").unwrap();
        assert!(asked("b:1").unwrap_err().to_string().starts_with("pool[0].image: profile p does not"));

        let directory = tempfile::tempdir().unwrap();
        let rooted = "profiles: { p: { root: writable-layer, root_in_user_namespace: true, operations: {}, \
            exec: { default: allow, deny_list: off } } }\nroles: { director: { allow: '*' } }\n";
        std::fs::write(directory.path().join("p.yaml"), rooted).unwrap();
        let rooted = Policy::load_dir(directory.path()).unwrap();
        let entry = parse("pool: [{ profile: p, max: 1 }]").unwrap().pool;
        let told = check(&entry, &rooted).unwrap_err().to_string();
        assert!(told.starts_with("pool[0].profile: p has `root_in_user_namespace`"), "{told}");
    }
}

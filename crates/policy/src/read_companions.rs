//! Reads `companions`. A profile without it allows none.

use std::collections::{BTreeMap, BTreeSet};

use document::{At, Fields};
use egress_rules::Rules;

use crate::companions::{Check, Companion, CompanionRules, Readiness};
use crate::image_names::{form, permits};
use crate::read_egress;
use crate::read_images::{is_well_formed, reference};

/// Memory of all companions of a run if the profile has no number, MiB.
const MEMORY: u64 = 1_024;
/// Most memory of all companions of a run, MiB.
const MOST_MEMORY: u64 = 1 << 20;

pub(super) fn companions(at: Option<&At<'_>>, egress: &Rules) -> CompanionRules {
    let Some(at) = at else { return CompanionRules::default() };
    let fields = at.fields(&["images", "max", "memory_mib", "egress", "defaults"]);
    let images = fields.required("images").map(At::items).unwrap_or_default();
    let max = fields.number_or("max", 1..=CompanionRules::MOST as u64, 4);
    let items = fields.items("defaults");
    let defaults: Vec<Companion> =
        items.iter().take(CompanionRules::MOST + 1).filter_map(companion).collect();
    // With one left out, problems between companions would name the wrong ones.
    let is_whole = defaults.len() == items.len();
    let images: Vec<String> = images.iter().filter_map(|item| reference(item, true)).collect();
    let rules = CompanionRules {
        egress: fields.get("egress").map(|at| egress_of_images(at, &images)).unwrap_or_default(),
        images,
        max: usize::try_from(max).unwrap_or(CompanionRules::MOST),
        memory_mib: fields.number_or("memory_mib", 16..=MOST_MEMORY, MEMORY),
        defaults,
    };
    if is_whole && let Err(why) = rules.of_run(Vec::new(), [egress]) {
        fields.at("defaults").problem(why.to_string());
    }
    rules
}

/// Reads the rules for connections of companions, by their images.
fn egress_of_images(at: &At<'_>, images: &[String]) -> BTreeMap<String, Rules> {
    let mut forms = BTreeMap::new();
    let read = at.entries().into_iter().map(|(image, at)| {
        if is_well_formed(&at, image, true) && !permits(images, image) {
            at.problem("`images` does not have these images");
        }
        if let Some(other) = forms.insert(form(image), image) {
            at.problem(format!("is for the same images as the key `{other}`: keep one"));
        }
        let rules = read_egress::egress(Some(&at));
        if !rules.settings().budget.is_unbounded() {
            at.problem("the `budget` of the profile's own `egress` counts for its companions, too: leave it out here");
        }
        (image.to_owned(), rules)
    });
    read.collect()
}

fn companion(at: &At<'_>) -> Option<Companion> {
    let fields = at.fields(&[
        "name",
        "image",
        "command",
        "env",
        "ready",
        "memory_mib",
        "ports",
        "depends_on",
        "egress",
    ]);
    let name = fields.required("name").and_then(At::text);
    let image = fields.required("image").and_then(|at| reference(at, false));
    let ready = fields.get("ready").map(ready);
    if ready == Some(None) {
        return None;
    }
    let depends_on = fields.items("depends_on");
    Some(Companion {
        name: name?.to_owned(),
        image: image?,
        command: arguments(&fields, "command"),
        env: fields.get("env").map(env).unwrap_or_default(),
        ready: ready.flatten(),
        memory_mib: fields.number_or("memory_mib", 16..=MOST_MEMORY, 0),
        ports: fields.items("ports").iter().filter_map(port).collect(),
        depends_on: depends_on.iter().filter_map(At::text).map(str::to_owned).collect::<BTreeSet<_>>(),
        egress: fields.get("egress").map(|at| read_egress::egress(Some(at))),
    })
}

fn ready(at: &At<'_>) -> Option<Readiness> {
    let fields = at.fields(&["tcp", "command", "timeout_seconds", "interval_milliseconds"]);
    let check = match (fields.get("tcp"), fields.get("command")) {
        (Some(tcp), None) => port(tcp).map(Check::Tcp),
        (None, Some(_)) => Some(Check::Command(arguments(&fields, "command"))),
        _ => {
            at.problem("needs either `tcp`, a port, or `command`, a list of arguments");
            None
        }
    };
    let (longest, timeout) = Readiness::TIMEOUT;
    let (least, most, interval) = Readiness::INTERVAL;
    Some(Readiness {
        check: check?,
        timeout_seconds: fields.number_or("timeout_seconds", 1..=longest, timeout),
        interval_milliseconds: fields.number_or("interval_milliseconds", least..=most, interval),
    })
}

fn arguments(fields: &Fields<'_>, key: &str) -> Vec<String> {
    fields.items(key).iter().filter_map(At::argument).collect()
}

fn env(at: &At<'_>) -> BTreeMap<String, String> {
    let entries = at.entries().into_iter();
    entries.filter_map(|(name, value)| Some((name.to_owned(), value.argument()?))).collect()
}

fn port(at: &At<'_>) -> Option<u16> {
    at.number(1..=u64::from(u16::MAX)).and_then(|port| u16::try_from(port).ok())
}

#[cfg(test)]
mod tests {
    use crate::{Check, Policy};

    fn loaded(companions: &str) -> Result<Policy, Vec<String>> {
        let policy = format!(
            "profiles:\n  p:\n    operations: {{}}\n    companions: {companions}\nroles: {{r: {{allow: \"*\"}}}}\n"
        );
        Policy::from_files([("p.yaml", policy)])
            .map_err(|problems| problems.0.iter().map(ToString::to_string).collect())
    }

    const WHOLE: &str = "{images: [\"db:*\"], max: 2, memory_mib: 512, defaults: [{name: db, image: \"db:15\", command: [serve, 1], \
        env: {MODE: test}, ready: {tcp: 5432, timeout_seconds: 30}, memory_mib: 64, ports: [5433]}, \
        {name: app, image: \"db:1\", ready: {command: [check]}, depends_on: [db], egress: {rules: [RULE]}}], \
        egress: {\"db:1\": {rules: [RULE], max_bytes: 1MiB}}}";

    #[test]
    fn companions_are_read_and_written_back() {
        let rule = "{host: files.example.org, ports: [443], decision: allow}";
        let policy = loaded(&WHOLE.replace("RULE", rule)).unwrap();
        let rules = &policy.profile("p").unwrap().companions;
        assert_eq!((rules.max, rules.memory_mib), (2, 512));
        let db = &rules.defaults[0];
        assert_eq!(db.command, ["serve", "1"]);
        let ready = db.ready.as_ref().unwrap();
        assert_eq!(
            (&ready.check, ready.timeout_seconds, ready.interval_milliseconds),
            (&Check::Tcp(5432), 30, 200)
        );
        assert!(rules.rules_of("db:15").is_none() && rules.rules_of("db:1").is_some());
        assert_eq!(rules.defaults[1].egress.as_ref().unwrap().settings().rules.len(), 1);
        let written = policy.to_yaml().unwrap();
        assert_eq!(Policy::from_files([("again.yaml", &written)]).unwrap().digest(), policy.digest());
    }

    #[test]
    fn no_other_name_of_an_image_gets_it_other_rules() {
        let rule = "{host: files.example.org, ports: [443], decision: allow}";
        let written =
            format!("{{images: [\"*\"], egress: {{\"db:15\": {{rules: []}}, \"*\": {{rules: [{rule}]}}}}}}");
        let policy = loaded(&written).unwrap();
        let rules = &policy.profile("p").unwrap().companions;
        let opens = |image: &str| rules.rules_of(image).unwrap().settings().rules.len();
        assert_eq!((opens("db:15"), opens("library/db:15"), opens("db:16")), (0, 0, 1));
        let id = "c".repeat(64);
        for content in [id.clone(), format!("sha256:{id}"), format!("db@sha256:{id}")] {
            assert_eq!(rules.rules_of(&content), None, "it may be db:15: {content}");
        }
        assert_eq!(opens(&format!("cache@sha256:{id}")), 1, "it is no image of db");
    }

    #[test]
    fn rules_for_all_images_are_for_ids_too() {
        let policy = loaded("{images: [\"*\"], egress: {\"*\": {rules: []}}}").unwrap();
        let rules = &policy.profile("p").unwrap().companions;
        assert!(rules.rules_of(&format!("sha256:{}", "c".repeat(64))).is_some());
    }

    #[test]
    fn a_profile_without_companions_keeps_its_digest() {
        let text = "profiles: {p: {operations: {}}}\nroles: {r: {allow: \"*\"}}\n";
        let policy = Policy::from_files([("p.yaml", text)]).unwrap();
        assert!(!policy.to_yaml().unwrap().contains("companions"));
    }

    #[test]
    fn every_problem_of_a_companion_has_its_place() {
        for (written, problem) in [
            ("{max: 2}", "`images` is missing"),
            ("{images: [a], max: 17}", "max: must be a whole number from 1 to 16"),
            ("{images: [a], defaults: [{name: db}]}", "defaults[0]: `image` is missing"),
            (
                "{images: [a], defaults: [{name: db, image: b}]}",
                "defaults: db: the profile does not allow the image b",
            ),
            ("{images: [a], defaults: [{name: a, image: a, ready: {}}]}", "defaults[0].ready: needs either"),
            (
                "{images: [a], defaults: [{name: a, image: a, ready: {tcp: 1, command: [b]}}]}",
                "defaults[0].ready: needs either",
            ),
            (
                "{images: [a], defaults: [{name: a, image: a, ports: [0]}]}",
                "ports[0]: must be a whole number",
            ),
            ("{images: [a], defaults: [{name: localhost, image: a}]}", "defaults: a name must be"),
            (
                "{images: [a], defaults: [{name: a, image: a, depends_on: [a]}]}",
                "defaults: each of these waits",
            ),
            ("{images: [a], egress: {b: {rules: []}}}", "egress.b: `images` does not have these images"),
            (
                "{images: [a], egress: {a: {rules: [], budget: {run: {requests: 1}}}}}",
                "egress.a: the `budget` of the profile's own",
            ),
            (
                "{images: [a], defaults: [{name: db, image: a, egress: {rules: [{host: files.example.org, ports: [443], decision: allow}]}}]}",
                "defaults: db: egress: ",
            ),
            (
                "{images: [a], defaults: [{name: db, image: a, egress: {rules: [], budget: {run: {requests: 1}}}}]}",
                "defaults: db: egress: has a `budget`",
            ),
            (
                "{images: [a], egress: {a: {rules: []}, \"a:latest\": {rules: []}}}",
                "egress.a:latest: is for the same images as the key `a`: keep one",
            ),
            (
                "{images: [\"*\"], egress: {\"db:*\": {rules: []}, \"library/db:*\": {rules: []}}}",
                "egress.library/db:*: is for the same images as the key `db:*`: keep one",
            ),
            ("{images: [\"*\"], egress: {\"d*b\": {rules: []}}}", "egress.d*b: must be 1 to 255 characters"),
            (
                "{images: [\"localhost:5000*\"]}",
                "images[0]: is for tags of an image `localhost`, and for no image of a registry",
            ),
            (
                "{images: [\"*\"], egress: {\"localhost:5000*\": {rules: []}}}",
                "egress.localhost:5000*: is for tags of an image `localhost`",
            ),
            ("{images: [\"*\"], egress: {\"\": {rules: []}}}", "egress.: must be 1 to 255 characters"),
            ("{images: [a], default: []}", "default: unknown key"),
        ] {
            let found = loaded(written).unwrap_err();
            assert!(found[0].contains(problem), "{written}: {found:?}");
        }
    }
}

use git2::Signature;
use operations::{GitRemote, GitRevision};

use super::*;

struct World {
    _place: tempfile::TempDir,
    repository: Repository,
}

impl World {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let repository = Repository::init(place.path()).unwrap();
        repository.set_head("refs/heads/main").unwrap();
        Self { _place: place, repository }
    }

    fn commit(&self, parents: &[Oid], content: &str) -> Oid {
        let blob = self.repository.blob(content.as_bytes()).unwrap();
        let mut tree = self.repository.treebuilder(None).unwrap();
        tree.insert("a", blob, 0o100_644).unwrap();
        let tree = self.repository.find_tree(tree.write().unwrap()).unwrap();
        let who = Signature::now("a", "a@example.org").unwrap();
        let parents: Vec<_> = parents.iter().map(|id| self.repository.find_commit(*id).unwrap()).collect();
        let parents: Vec<_> = parents.iter().collect();
        self.repository.commit(None, &who, &who, &format!("say {content}"), &tree, &parents).unwrap()
    }

    fn at(&self, id: Oid) {
        self.repository.reference("refs/heads/main", id, true, "test").unwrap();
    }

    fn plan(&self, push: &GitPush, server: &[(&str, Oid)]) -> Result<Planned, GitError> {
        let name = |name: &str| GitRefName::parse(name).unwrap();
        let server: Vec<_> = server.iter().map(|(text, id)| Listed { name: name(text), id: *id }).collect();
        Planned::of(&self.repository, push, &server)
    }
}

fn push(refs: &[(Option<&str>, Option<&str>, Option<Oid>)], force: bool) -> GitPush {
    let refs = refs.iter().map(|(local, reference, expected)| GitPushed {
        local: local.map(|local| GitRevision::parse(local).unwrap()),
        reference: reference.map(|name| GitRefName::parse(name).unwrap()),
        expected: expected.map(|id| id.to_string()),
    });
    GitPush { remote: GitRemote::Name("origin".into()), refs: refs.collect(), force }
}

fn changes(planned: &Planned) -> Vec<(String, Option<Oid>, Option<Oid>, u64)> {
    let change = |change: &Change| {
        let Update { name, old, new } = &change.update;
        (name.to_string(), *old, *new, change.commits.count())
    };
    planned.updates.iter().map(change).collect()
}

#[test]
fn a_push_names_the_ids_that_the_server_has() {
    let world = World::new();
    let first = world.commit(&[], "1");
    let second = world.commit(&[first], "2");
    world.at(second);
    let main = "refs/heads/main".to_owned();
    let head = push(&[(Some("HEAD"), None, None)], false);
    let planned = world.plan(&head, &[("main", first)]).unwrap();
    assert_eq!(changes(&planned), [(main.clone(), Some(first), Some(second), 1)]);
    let planned = world.plan(&head, &[]).unwrap();
    assert_eq!(changes(&planned), [(main, None, Some(second), 2)]);
    let planned = world.plan(&head, &[("main", second)]).unwrap();
    assert!(planned.updates.is_empty() && planned.same.len() == 1);
    let topic = push(&[(Some("HEAD"), Some("topic"), None)], false);
    let planned = world.plan(&topic, &[("main", first)]).unwrap();
    assert_eq!(changes(&planned), [("refs/heads/topic".to_owned(), None, Some(second), 1)]);
    assert_eq!(planned.updates[0].base, Some(first));
    let delete = push(&[(None, Some("topic"), None)], false);
    let planned = world.plan(&delete, &[("topic", first)]).unwrap();
    assert_eq!(changes(&planned), [("refs/heads/topic".to_owned(), Some(first), None, 0)]);
    assert!(matches!(world.plan(&delete, &[]), Err(GitError::NotAtRemote(_))));
    let unnamed = push(&[(Some("HEAD~1"), None, None)], false);
    assert!(matches!(world.plan(&unnamed, &[]), Err(GitError::NoBranchOf(_))));
    let twice = push(&[(Some("HEAD"), None, None), (Some("HEAD~1"), Some("main"), None)], false);
    assert!(matches!(world.plan(&twice, &[]), Err(GitError::PushedTwice(_))));
}

#[test]
fn commits_are_lost_only_by_force_with_the_present_id() {
    let world = World::new();
    let first = world.commit(&[], "1");
    let ours = world.commit(&[first], "ours");
    let theirs = world.commit(&[first], "theirs");
    world.at(ours);
    let unknown = Oid::from_str(&"7".repeat(40)).unwrap();
    let plain = push(&[(Some("HEAD"), None, None)], false);
    for server in [theirs, unknown] {
        let refused = world.plan(&plain, &[("main", server)]).err();
        assert!(matches!(refused, Some(GitError::NotFastForward(_))), "{refused:?}");
    }
    let leased = |id: Oid| push(&[(Some("HEAD"), None, Some(id))], true);
    let planned = world.plan(&leased(theirs), &[("main", theirs)]).unwrap();
    assert_eq!(planned.updates[0].lost, Some(1));
    let planned = world.plan(&leased(unknown), &[("main", unknown)]).unwrap();
    assert_eq!(planned.updates[0].lost, None);
    for (expected, server) in [(first, vec![("main", theirs)]), (theirs, vec![])] {
        let refused = world.plan(&leased(expected), &server).err();
        assert!(matches!(refused, Some(GitError::Stale { .. })), "{refused:?}");
    }
    let absent = push(&[(Some("HEAD"), None, Some(Oid::ZERO_SHA1))], false);
    assert!(world.plan(&absent, &[]).is_ok());
    assert!(matches!(world.plan(&absent, &[("main", first)]), Err(GitError::Stale { .. })));
    // A graft that has the server's commit among the ancestors of ours.
    let grafts = world.repository.path().join("info/grafts");
    fs::create_dir_all(grafts.parent().unwrap()).unwrap();
    fs::write(&grafts, format!("{ours} {theirs}\n")).unwrap();
    let grafted = Repository::open(world.repository.path()).unwrap();
    let listed = [Listed { name: GitRefName::parse("main").unwrap(), id: theirs }];
    assert!(matches!(Planned::of(&grafted, &plain, &listed), Err(GitError::NotFastForward(_))));
    fs::remove_file(grafts).unwrap();
    let tag = push(&[(Some("HEAD"), Some("refs/tags/v1"), None)], false);
    assert!(matches!(world.plan(&tag, &[("refs/tags/v1", first)]), Err(GitError::TagExists(_))));
}

#[test]
fn a_base_that_the_server_lacks_hides_no_change() {
    let world = World::new();
    let first = world.commit(&[], "1\n");
    let hidden = world.commit(&[], "2\n");
    let ours = world.commit(&[first], "2\n");
    world.at(ours);
    // Grafts that have the same files among those of the server.
    let grafts = world.repository.path().join("info/grafts");
    fs::create_dir_all(grafts.parent().unwrap()).unwrap();
    fs::write(&grafts, format!("{first} {hidden}\n{ours} {hidden}\n")).unwrap();
    let grafted = Repository::open(world.repository.path()).unwrap();
    let topic = push(&[(Some("HEAD"), Some("topic"), None)], false);
    let listed = [Listed { name: GitRefName::parse("main").unwrap(), id: first }];
    let planned = Planned::of(&grafted, &topic, &listed).unwrap();
    assert_eq!(planned.updates[0].base, None);
    assert!(planned.updates[0].diff(&grafted).unwrap().unwrap().deltas().len() > 0);
}

#[test]
fn a_reviewer_sees_ids_commits_and_changes() {
    let world = World::new();
    let first = world.commit(&[], "1\n");
    let second = world.commit(&[first], "2\n");
    world.at(second);
    let planned = world.plan(&push(&[(Some("HEAD"), None, None)], false), &[("main", first)]).unwrap();
    let mut output = Output::new(16 * 1024);
    planned.updates[0].describe(&world.repository, &mut output).unwrap();
    planned.updates[0].patches(&world.repository, &mut output).unwrap();
    let text = output.into_result(GitResult::default()).output;
    for part in [
        "update refs/heads/main".to_owned(),
        format!("from {first}"),
        format!("to   {second}"),
        "1 commit\n".to_owned(),
        "say 2".to_owned(),
        "-1\n+2\n".to_owned(),
    ] {
        assert!(text.contains(&part), "{part}: {text}");
    }
}

#[test]
fn a_commit_that_the_server_has_changes_nothing() {
    let world = World::new();
    let pointer =
        format!("version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 5\n", "4d".repeat(32));
    let first = world.commit(&[], &pointer);
    let second = world.commit(&[first], &pointer);
    world.at(first);
    let tag = push(&[(Some("HEAD"), Some("refs/tags/v1"), None)], false);
    let planned = world.plan(&tag, &[("main", second)]).unwrap();
    assert_eq!(planned.updates[0].base, Some(first));
    assert!(matches!(world.plan(&tag, &[]), Err(GitError::Lfs(_))));
}

#[test]
fn attributes_of_the_agent_hide_no_text() {
    let world = World::new();
    let first = world.commit(&[], "1\n");
    let second = world.commit(&[first], "2\n");
    world.at(second);
    fs::create_dir_all(world.repository.path().join("info")).unwrap();
    fs::write(world.repository.path().join("info/attributes"), "* -diff\n").unwrap();
    let planned = world.plan(&push(&[(Some("HEAD"), None, None)], false), &[("main", first)]).unwrap();
    let mut output = Output::new(16 * 1024);
    planned.updates[0].patches(&plain(&world.repository).unwrap(), &mut output).unwrap();
    let text = output.into_result(GitResult::default()).output;
    assert!(text.contains("-1\n+2\n"), "{text}");
}

#[test]
fn a_tag_leads_to_a_commit_and_its_message_is_shown() {
    let world = World::new();
    let first = world.commit(&[], "1\n");
    world.at(first);
    let who = Signature::now("a", "a@example.org").unwrap();
    let object = world.repository.find_object(first, None).unwrap();
    world.repository.tag("v1", &object, &who, "the message", false).unwrap();
    let tag = push(&[(Some("v1"), Some("refs/tags/v1"), None)], false);
    let planned = world.plan(&tag, &[("main", first)]).unwrap();
    let mut output = Output::new(16 * 1024);
    planned.updates[0].describe(&world.repository, &mut output).unwrap();
    let text = output.into_result(GitResult::default()).output;
    assert!(text.contains("  tag v1\n") && text.contains("    the message\n"), "{text}");
    let blob = world.repository.blob(b"hidden").unwrap().to_string();
    let tag = push(&[(Some(&blob), Some("refs/tags/v2"), None)], false);
    assert!(matches!(world.plan(&tag, &[]), Err(GitError::NoRevision(_))));
}

#[test]
fn a_file_of_lfs_is_not_pushed() {
    let world = World::new();
    let first = world.commit(&[], "1\n");
    let pointer =
        format!("version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 5\n", "4d".repeat(32));
    world.at(world.commit(&[first], &pointer));
    let refused = world.plan(&push(&[(Some("HEAD"), None, None)], false), &[("main", first)]).err();
    assert!(matches!(refused, Some(GitError::Lfs(_))), "{refused:?}");
}

#[test]
fn grafts_are_refused_as_long_as_the_file_has_content() {
    let world = World::new();
    let commit = world.commit(&[], "1");
    assert!(demand_no_grafts(&world.repository).is_ok());
    let grafts = world.repository.path().join("info/grafts");
    fs::create_dir_all(grafts.parent().unwrap()).unwrap();
    fs::write(&grafts, format!("{commit}\n")).unwrap();
    assert!(matches!(demand_no_grafts(&world.repository), Err(GitError::ChangedHistory(_))));
    fs::write(&grafts, "").unwrap();
    assert!(demand_no_grafts(&world.repository).is_ok());
}

#[test]
fn a_history_that_is_cut_hides_no_commit_that_is_here() {
    let world = World::new();
    let first = world.commit(&[], "1");
    let middle = world.commit(&[first], "secret");
    let last = world.commit(&[middle], "1");
    world.at(last);
    fs::write(world.repository.path().join("shallow"), format!("{last}\n")).unwrap();
    let cut = Repository::open(world.repository.path()).unwrap();
    let topic = push(&[(Some("HEAD"), Some("topic"), None)], false);
    let plan = |known: Oid| {
        Planned::of(&cut, &topic, &[Listed { name: GitRefName::parse("main").unwrap(), id: known }])
    };
    let planned = plan(first).err();
    assert!(matches!(planned, Some(GitError::ChangedHistory(_))), "{planned:?}");
    // The server has the commit before the cut.
    assert_eq!(plan(middle).unwrap().updates[0].commits.count(), 1);
    // Those before a cut at the server's own commit are absent from many clones.
    let unknown = Oid::from_str(&"7".repeat(40)).unwrap();
    assert!(plan(unknown).is_err());
    fs::remove_file(loose(&world.repository, middle)).unwrap();
    let cut = Repository::open(world.repository.path()).unwrap();
    let listed = [Listed { name: GitRefName::parse("main").unwrap(), id: unknown }];
    assert!(Planned::of(&cut, &topic, &listed).is_ok());
}

/// Returns the file of an object.
fn loose(repository: &Repository, id: Oid) -> std::path::PathBuf {
    let digits = id.to_string();
    repository.path().join("objects").join(&digits[..2]).join(&digits[2..])
}

#[test]
fn a_push_that_was_not_sent_is_not_doubted() {
    let doubt = |error| GitError::of_push(error).to_string().contains("may be pushed");
    assert!(!doubt(git_remote::RemoteError::Grafted));
    assert!(doubt(git_remote::RemoteError::TimedOut));
}

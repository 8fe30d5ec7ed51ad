//! The tree of forks that a run belongs to.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};
use wire::v1::Run;

use super::super::elements::{run_link, state};
use super::super::figures;

/// Runs of a tree that are shown.
const MOST: usize = 200;

/// Returns the tree that `id` belongs to, if it has more than this run.
pub(super) fn render(runs: &[Run], id: &str) -> Option<Markup> {
    let known: BTreeMap<&str, &Run> = runs.iter().map(|run| (run.run_id.as_str(), run)).collect();
    let mut forks = BTreeMap::<&str, Vec<&str>>::new();
    for run in runs {
        if let Some(origin) = origin(run) {
            forks.entry(origin).or_default().push(&run.run_id);
        }
    }
    let root = root(&known, id);
    if !forks.contains_key(root) {
        return None;
    }
    // Forks are shown beneath their origin, depth first.
    let (mut rows, mut seen, mut left) = (Vec::new(), BTreeSet::new(), vec![(root, 0_usize)]);
    while let Some((run, depth)) = left.pop() {
        if rows.len() >= MOST || !seen.insert(run) {
            continue;
        }
        rows.push((run, depth));
        left.extend(forks.get(run).into_iter().flatten().map(|fork| (*fork, depth + 1)));
    }
    Some(html! {
        ul.tree {
            @for (run, depth) in &rows {
                li.{ "depth-" ((*depth).min(8)) } {
                    @if *run == id { strong aria-current="page" { (run_link(run)) } } @else { (run_link(run)) }
                    " "
                    @match known.get(run) {
                        Some(run) => (state(&figures::word(run.state().as_str_name()))),
                        None => (state("deleted")),
                    }
                    @if *depth > 0 { span.visually-hidden { " fork of depth " (depth) } }
                }
            }
        }
        @if rows.len() >= MOST { p.note { "More runs of this tree are not shown." } }
    })
}

fn origin(run: &Run) -> Option<&str> {
    run.forked_from.as_ref().map(|from| from.run_id.as_str()).filter(|from| !from.is_empty())
}

/// Returns the first run of the tree. It may have been deleted.
fn root<'a>(known: &BTreeMap<&'a str, &'a Run>, id: &'a str) -> &'a str {
    let (mut root, mut seen) = (id, BTreeSet::new());
    while let Some(from) = known.get(root).and_then(|run| origin(run)) {
        if !seen.insert(root) {
            break;
        }
        root = from;
    }
    root
}

#[cfg(test)]
mod tests {
    use wire::v1::ForkedFrom;

    use super::super::super::foreign::tests::HOSTILE;
    use super::*;

    fn id(number: u32) -> String {
        format!("0198a1b2-0000-7000-8000-{number:012}")
    }

    fn run(number: u32, from: Option<u32>) -> Run {
        let forked_from = from.map(|from| ForkedFrom { run_id: id(from), ..Default::default() });
        Run { run_id: id(number), forked_from, ..Default::default() }
    }

    #[test]
    fn forks_are_beneath_their_origin() {
        let runs = [run(3, Some(2)), run(2, Some(1)), run(4, Some(1)), run(9, None)];
        let shown = render(&runs, &id(3)).unwrap().0;
        assert!(shown.contains("deleted"), "the first run is not among those that are known: {shown}");
        let place = |number| shown.find(&format!("/runs/{}", id(number))).unwrap();
        assert!(place(1) < place(2) && place(2) < place(3));
        assert!(shown.contains("depth-2") && shown.contains("aria-current"));
        assert!(render(&runs, &id(9)).is_none());
    }

    #[test]
    fn circles_and_large_trees_end() {
        let circle = [run(1, Some(2)), run(2, Some(1))];
        assert!(render(&circle, &id(1)).is_some());
        let many: Vec<Run> = (2..1_000).map(|number| run(number, Some(1))).collect();
        assert!(render(&many, &id(1)).unwrap().0.contains("not shown"));
        let hostile = Run {
            run_id: HOSTILE.to_owned(),
            forked_from: Some(ForkedFrom { run_id: HOSTILE.to_owned(), ..Default::default() }),
            ..Default::default()
        };
        super::super::super::foreign::tests::assert_harmless(&render(&[hostile], HOSTILE).unwrap());
    }
}

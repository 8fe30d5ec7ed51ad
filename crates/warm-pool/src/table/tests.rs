use super::*;

type Pool = Table<&'static str, u32>;

fn configured(key: &str, min: usize, max: usize, entry: (&str, Option<&str>)) -> Configured<&'static str> {
    Configured {
        key: key.to_owned(),
        name: key.to_owned(),
        make: "configured",
        bounds: Bounds { min, max },
        entry: named(entry.0, entry.1),
    }
}

fn named(profile: &str, image: Option<&str>) -> Named {
    (profile.to_owned(), image.map(str::to_owned))
}

fn pool(min: usize, max: usize) -> Pool {
    let mut pool = Pool::default();
    assert!(pool.replace(vec![configured("own", min, max, ("open", None))], true).is_empty());
    pool
}

/// A run that needs this kind, and gets a new container if none waits.
fn run(pool: &mut Pool, key: &str, image: &str, now: Instant) -> Result<u32, NoneWaits> {
    let taken = pool.take(key, now, |_| true);
    if taken.is_err() {
        pool.add(key, named("open", Some(image)), now, || (key.to_owned(), "added"));
    }
    taken
}

/// Makes containers until none is missing. Returns how many wait of each kind.
fn fill(pool: &mut Pool, now: Instant) -> BTreeMap<String, usize> {
    let mut number = 0;
    while let Some((key, _)) = pool.missing(now, true) {
        number += 1;
        assert!(number < 1_000, "it never ends");
        pool.put(&key, number, now).unwrap();
    }
    waiting(pool)
}

fn waiting(pool: &Pool) -> BTreeMap<String, usize> {
    let ready = pool.kinds.iter().filter(|(_, kind)| !kind.ready.is_empty());
    ready.map(|(key, kind)| (key.clone(), kind.ready.len())).collect()
}

fn counts<const N: usize>(counts: [(&str, usize); N]) -> BTreeMap<String, usize> {
    counts.map(|(key, count)| (key.to_owned(), count)).into()
}

#[test]
fn the_target_follows_demand_within_its_bounds_and_falls_again() {
    let begin = Instant::now();
    let at = |seconds| begin + Duration::from_secs(seconds);
    let mut pool = pool(2, 4);
    assert_eq!(fill(&mut pool, begin), counts([("own", 2)]));
    for asked in 1..=10 {
        let _ = pool.take("own", at(asked), |_| true);
    }
    assert_eq!(fill(&mut pool, at(10)), counts([("own", 4)]));
    assert_eq!(pool.needless(at(67), true, |_| true).len(), 1);
    assert_eq!(pool.needless(at(67), true, |_| true).len(), 0, "three were asked for lately");
    assert_eq!(pool.needless(at(100), true, |_| true).len(), 1);
    assert_eq!(pool.needless(at(100), true, |_| true).len(), 0, "the minimum stays");
}

#[test]
fn the_second_run_of_an_image_finds_a_container_of_it() {
    let now = Instant::now();
    let mut pool = pool(1, 3);
    fill(&mut pool, now);
    assert_eq!(run(&mut pool, "other", "other:1", now), Err(NoneWaits::Unknown));
    assert_eq!(pool.missing(now, true), Some(("other".to_owned(), "added")));
    assert_eq!(fill(&mut pool, now), counts([("other", 1), ("own", 1)]));
    assert!(run(&mut pool, "other", "other:1", now).is_ok());
    assert_eq!(run(&mut pool, "other", "other:1", now), Err(NoneWaits::Taken));
    // Runs of a profile without an entry leave nothing.
    pool.add("third", named("strict", None), now, || unreachable!());
    assert_eq!(pool.take("third", now, |_| true), Err(NoneWaits::Unknown));
}

#[test]
fn kinds_share_the_bound_and_the_least_asked_for_goes_first() {
    let begin = Instant::now();
    let at = |seconds| begin + Duration::from_secs(seconds);
    let mut pool = pool(1, 4);
    for (key, times) in [("a", 5), ("b", 2), ("c", 1)] {
        for _ in 0..times {
            let _ = run(&mut pool, key, key, begin);
        }
    }
    assert_eq!(fill(&mut pool, begin), counts([("a", 1), ("b", 1), ("c", 1), ("own", 1)]));
    // One more kind that was asked for more often than the last.
    for _ in 0..3 {
        let _ = run(&mut pool, "d", "d", at(1));
    }
    let gone = pool.needless(at(1), true, |_| true);
    assert_eq!(gone.len(), 1);
    assert_eq!(fill(&mut pool, at(1)), counts([("a", 1), ("b", 1), ("d", 1), ("own", 1)]));
    // A minute later only the minimum is left, and the kinds are forgotten.
    for _ in 0..5 {
        pool.needless(at(120), true, |_| true);
    }
    assert_eq!(waiting(&pool), counts([("own", 1)]));
    assert_eq!(pool.kinds.len(), 1);
}

#[test]
fn shares_are_within_the_bound_and_begin_with_the_minimum() {
    let claim = |(min, asked)| Claim { min, asked, last: None };
    for (max, claims, expected) in [
        (0, vec![(0, 9)], vec![0]),
        (4, vec![(5, 0)], vec![4]),
        (4, vec![(2, 0), (0, 9)], vec![2, 2]),
        (5, vec![(0, 1), (0, 9), (0, 3)], vec![1, 2, 2]),
        (2, vec![(0, 1), (0, 9), (0, 3)], vec![0, 1, 1]),
        (9, vec![(1, 1), (0, 2)], vec![1, 2]),
    ] {
        let found = shares(max, claims.iter().copied().map(claim).collect());
        assert_eq!(found, expected, "{max} {claims:?}");
    }
}

#[test]
fn without_memory_only_the_minimum_waits() {
    let now = Instant::now();
    let mut pool = pool(1, 8);
    for _ in 0..4 {
        let _ = run(&mut pool, "a", "a", now);
    }
    fill(&mut pool, now);
    for _ in 0..8 {
        pool.needless(now, false, |_| true);
    }
    assert_eq!(waiting(&pool), counts([("own", 1)]));
    assert_eq!(pool.missing(now, false), None);
    assert_eq!(pool.missing(now, true).unwrap().0, "a");
}

#[test]
fn a_kind_that_cannot_be_made_delays_no_other() {
    let now = Instant::now();
    let mut pool = pool(1, 4);
    let _ = run(&mut pool, "bad", "bad", now);
    let _ = run(&mut pool, "bad", "bad", now);
    assert_eq!(pool.missing(now, true).unwrap().0, "bad");
    pool.postpone("bad", now + PAUSE);
    assert_eq!(fill(&mut pool, now), counts([("own", 1)]));
    pool.needless(now, true, |_| true);
    assert_eq!(pool.kinds.len(), 1, "it is forgotten");
    pool.postpone("own", now + PAUSE);
    pool.take("own", now, |_| true).unwrap();
    assert_eq!(pool.missing(now, true), None);
    assert_eq!(pool.missing(now + PAUSE / 2, true), None);
    assert_eq!(pool.missing(now + PAUSE, true).unwrap().0, "own");
}

#[test]
fn entries_of_an_image_and_equal_kinds_keep_their_bounds() {
    let now = Instant::now();
    let mut pool = Pool::default();
    let entries = || {
        vec![
            configured("own", 1, 2, ("open", None)),
            configured("own", 1, 2, ("build", None)),
            configured("image", 0, 1, ("open", Some("a:1"))),
        ]
    };
    pool.replace(entries(), true);
    assert_eq!(fill(&mut pool, now), counts([("own", 2)]), "equal kinds add up");
    // Lower limits with the image of an entry: within the bounds of that entry.
    pool.add("limited", named("open", Some("a:1")), now, || ("limited".to_owned(), "added"));
    let _ = pool.take("image", now, |_| true);
    let _ = pool.take("image", now, |_| true);
    assert_eq!(pool.kinds["limited"].bounds, "image");
    assert_eq!(fill(&mut pool, now).values().sum::<usize>(), 3);
    // What runs have added outlives a look at the images, and no change of the policy.
    assert!(pool.replace(entries(), false).is_empty());
    assert!(pool.kinds.contains_key("limited"));
    let before = waiting(&pool).values().sum::<usize>();
    let gone = pool.replace(entries(), true).len();
    assert!(!pool.kinds.contains_key("limited"));
    assert_eq!(before - gone, waiting(&pool).values().sum::<usize>());
    assert_eq!(pool.replace(Vec::new(), true).len(), before - gone);
}

#[test]
fn added_kinds_are_bounded_and_lost_containers_are_taken_out() {
    let begin = Instant::now();
    let mut pool = pool(0, 2);
    for number in 0..200 {
        let now = begin + Duration::from_millis(number);
        let _ = run(&mut pool, &format!("kind-{number:03}"), "a", now);
    }
    assert_eq!(pool.kinds.len(), MOST_ADDED + 1);
    assert!(pool.kinds.contains_key("kind-199") && !pool.kinds.contains_key("kind-000"));
    let now = begin + Duration::from_secs(1);
    let waiting = fill(&mut pool, now);
    assert_eq!(waiting.values().sum::<usize>(), 2);
    assert_eq!(pool.needless(now, true, |_| false).len(), 2);
    assert_eq!(pool.put("kind-000", 7, now), Err(7));
}

#[test]
fn claims_refills_and_the_age_of_the_oldest_are_counted() {
    let begin = Instant::now();
    let at = |seconds| begin + Duration::from_secs(seconds);
    let mut pool = pool(2, 2);
    assert_eq!(pool.levels(begin).oldest, None);
    pool.put("own", 1, at(1)).unwrap();
    pool.put("own", 2, at(5)).unwrap();
    assert_eq!(pool.levels(at(9)).oldest, Some(Duration::from_secs(8)));
    assert_eq!(pool.take("own", at(9), |_| true), Ok(1));
    assert_eq!(pool.levels(at(9)).oldest, Some(Duration::from_secs(4)));
    assert_eq!(pool.take("own", at(9), |_| false), Err(NoneWaits::Taken));
    assert_eq!(pool.take("none", at(9), |_| true), Err(NoneWaits::Unknown));
    let Levels { fills, counts, .. } = pool.levels(at(9));
    assert_eq!(counts, Counts { claimed: 1, missed: 1, refilled: 2 });
    assert_eq!(fills, [Fill { name: "own".to_owned(), ready: 1, target: 2 }]);
}

use std::collections::BTreeSet;

use super::*;

fn name(number: usize) -> HostName {
    HostName::parse(&format!("n{number}.example.org")).unwrap()
}

fn pool(block: &str) -> Pool {
    Pool::new(block.parse().unwrap()).unwrap()
}

fn assign(pool: &mut Pool, number: usize) -> Result<Ipv4Addr, NoAddress> {
    pool.assign(&name(number), Source::Named, 1, Duration::ZERO)
}

#[test]
fn every_name_has_an_address_of_its_own_and_keeps_it() {
    let mut pool = pool("11.200.0.0/16");
    let mut seen = BTreeSet::from([pool.resolver()]);
    for number in 0..Pool::MOST {
        let address = assign(&mut pool, number).unwrap();
        assert!(seen.insert(address), "{address}");
        assert!(pool.block().contains(&address) && ![0, 255].contains(&address.octets()[3]), "{address}");
        assert_eq!(pool.name_of(address), Some(&name(number)));
    }
    assert_eq!(assign(&mut pool, Pool::MOST), Err(NoAddress::Full));
    assert_eq!(assign(&mut pool, 0), Ok([11, 200, 0, 2].into()));
    assert_eq!(assign(&mut pool, 253), Ok([11, 200, 1, 1].into()));
    for address in
        [pool.resolver(), [11, 200, 0, 0].into(), [11, 200, 0, 255].into(), [11, 199, 255, 254].into()]
    {
        assert_eq!(pool.name_of(address), None, "{address}");
    }
    assert_eq!(pool.name_of([11, 200, 255, 254].into()), None, "beyond the last name");
}

#[test]
fn a_small_block_is_full_early() {
    let mut pool = pool("11.200.0.0/24");
    assert!((0..253).all(|number| assign(&mut pool, number).is_ok()));
    assert_eq!(assign(&mut pool, 253), Err(NoAddress::Full));
    assert_eq!(pool.address_of(&name(252)), Some([11, 200, 0, 254].into()));
}

#[test]
fn new_names_of_wildcards_are_bounded_in_every_minute() {
    let mut pool = pool("11.200.0.0/16");
    let mut ask = |number, second| {
        let now = Duration::from_secs(second);
        pool.assign(&name(number), Source::Wildcard, 2, now).map(|_| ())
    };
    assert_eq!(ask(0, 0), Ok(()));
    assert_eq!(ask(1, 59), Ok(()));
    assert_eq!(ask(2, 59), Err(NoAddress::TooManyNew));
    assert_eq!(ask(0, 59), Ok(()), "a known name is not new");
    assert_eq!(ask(2, 60), Ok(()));
    assert_eq!(ask(3, 61), Err(NoAddress::TooManyNew));
    assert!(assign(&mut pool, 4).is_ok(), "a name of a rule is not bounded");
    assert_eq!(pool.names().len(), 4);
}

#[test]
fn a_stored_pool_has_the_same_addresses() {
    let mut pool = pool("127.192.0.0/16");
    let addresses: Vec<_> = (0..300).map(|number| assign(&mut pool, number).unwrap()).collect();
    let stored = serde_json::to_string(&pool).unwrap();
    let mut again: Pool = serde_json::from_str(&stored).unwrap();

    assert!((0..300).all(|number| again.address_of(&name(number)) == Some(addresses[number])));
    assert_eq!(assign(&mut again, 300), assign(&mut pool, 300));
}

#[test]
fn blocks_and_stored_pools_that_cannot_be_used_are_refused() {
    for (block, error) in [
        ("11.200.0.0/25", BadPool::Block),
        ("11.0.0.0/7", BadPool::Block),
        ("11.200.0.1/16", BadPool::Block),
        ("10.0.0.0/16", BadPool::Range),
        ("198.18.0.0/15", BadPool::Range),
        ("100.64.0.0/16", BadPool::Range),
    ] {
        assert_eq!(Pool::new(block.parse().unwrap()).unwrap_err(), error, "{block}");
    }
    for stored in [
        r#"{"block":"11.200.0.0/16","names":["a.example.org","A.example.org"]}"#,
        r#"{"block":"11.200.0.0/16","names":["127.0.0.1"]}"#,
        r#"{"block":"10.0.0.0/16","names":[]}"#,
    ] {
        assert!(serde_json::from_str::<Pool>(stored).is_err(), "{stored}");
    }
}

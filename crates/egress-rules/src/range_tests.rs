use super::*;

fn judged(address: &str, networks: &[&str]) -> Result<(), Kind> {
    let networks: Vec<IpNet> = networks.iter().map(|network| network.parse().unwrap()).collect();
    check(address.parse().unwrap(), &networks, Some("11.200.0.0/16".parse().unwrap()))
        .map_err(|range| range.kind)
}

#[test]
fn addresses_that_no_public_server_has_are_refused() {
    for (kind, addresses) in [
        (Kind::Unspecified, &["0.0.0.0", "0.1.2.3", "::"][..]),
        (Kind::Loopback, &["127.0.0.1", "127.255.255.255", "::1"]),
        (Kind::Private, &["10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.0.1", "fc00::1", "fdff::1"]),
        (Kind::LinkLocal, &["169.254.1.1", "fe80::1", "febf::1"]),
        (Kind::SiteLocal, &["fec0::1", "feff::1"]),
        (
            Kind::Metadata,
            &[
                "169.254.169.254",
                "169.254.170.2",
                "168.63.129.16",
                "100.100.100.200",
                "192.0.0.192",
                "fd00:ec2::254",
                "fd20:ce::254",
            ],
        ),
        (Kind::SharedByCarrier, &["100.64.0.1", "100.127.255.255"]),
        (Kind::Multicast, &["224.0.0.1", "239.255.255.255", "ff02::1"]),
        (Kind::Broadcast, &["255.255.255.255"]),
        (Kind::Documentation, &["192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"]),
        (Kind::Benchmarking, &["198.18.0.1", "198.19.255.255", "2001:2::1"]),
        (Kind::Protocol, &["192.0.0.1", "192.88.99.1", "2001:10::1", "2001:20::1", "2001:1::1"]),
        (Kind::Reserved, &["240.0.0.1", "255.255.255.254", "100::1", "4000::1", "5f00::1", "fe00::1"]),
        (Kind::Mapped, &["::ffff:10.0.0.1", "::ffff:93.184.216.34", "::ffff:169.254.169.254"]),
        (Kind::Nat64, &["64:ff9b::10.0.0.1", "64:ff9b::93.184.216.34"]),
        (
            Kind::Embedded,
            &[
                "::93.184.216.34",
                "::ffff:0:93.184.216.34",
                "64:ff9b:1::1",
                "2002:7f00:1::1",
                "2001:0:7f00:1::1",
            ],
        ),
        (Kind::Pool, &["11.200.0.1", "11.200.255.255"]),
    ] {
        for address in addresses {
            assert_eq!(judged(address, &[]), Err(kind), "{address}");
        }
    }
}

#[test]
fn public_addresses_next_to_a_refused_range_pass() {
    for address in [
        "1.0.0.0",
        "9.255.255.255",
        "11.0.0.0",
        "11.201.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "169.253.255.255",
        "172.15.255.255",
        "172.32.0.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "2001:200::1",
        "2600::1",
        "2a00:1450::1",
        "3ffe::1",
    ] {
        assert_eq!(judged(address, &[]), Ok(()), "{address}");
    }
}

#[test]
fn an_exception_opens_the_range_that_it_is_in_and_no_other() {
    for (network, open, closed) in [
        ("10.20.0.0/16", "10.20.1.2", "10.21.0.1"),
        ("10.0.0.0/8", "10.1.2.3", "::ffff:10.1.2.3"),
        ("10.0.0.0/8", "10.1.2.3", "64:ff9b::10.1.2.3"),
        ("127.0.0.0/8", "127.0.0.1", "::1"),
        ("::1/128", "::1", "127.0.0.1"),
        ("169.254.0.0/16", "169.254.1.1", "169.254.169.254"),
        ("169.254.169.254/32", "169.254.169.254", "169.254.1.1"),
        ("fc00::/7", "fd01::1", "fd00:ec2::254"),
        ("100.64.0.0/10", "100.64.0.1", "100.100.100.200"),
        ("64:ff9b::/96", "64:ff9b::93.184.216.34", "64:ff9b::10.1.2.3"),
        ("64:ff9b::/96", "64:ff9b::93.184.216.34", "64:ff9b::169.254.169.254"),
        ("::ffff:0:0/96", "::ffff:93.184.216.34", "::ffff:127.0.0.1"),
    ] {
        assert_eq!(judged(open, &[network]), Ok(()), "{network} {open}");
        assert!(judged(closed, &[network]).is_err(), "{network} {closed}");
        assert_eq!(problem_of_exception(network.parse().unwrap()), None, "{network}");
    }
}

#[test]
fn both_forms_of_an_embedded_address_need_an_exception() {
    assert_eq!(judged("64:ff9b::10.1.2.3", &["64:ff9b::/96", "10.0.0.0/8"]), Ok(()));
    assert_eq!(judged("::ffff:11.200.0.1", &["::ffff:0:0/96"]), Err(Kind::Pool));
}

#[test]
fn exceptions_without_an_effect_are_reported_and_open_nothing() {
    for (network, address) in [
        ("0.0.0.0/0", "10.0.0.1"),
        ("0.0.0.0/0", "169.254.169.254"),
        ("8.0.0.0/5", "10.0.0.1"),
        ("::/0", "fd00::1"),
        ("::/0", "64:ff9b::1"),
        ("::/0", "4000::1"),
        ("0.0.0.0/8", "0.0.0.0"),
        ("224.0.0.0/4", "224.0.0.1"),
        ("255.255.255.255/32", "255.255.255.255"),
        ("::/96", "::93.184.216.34"),
        ("2002::/16", "2002:7f00:1::1"),
        ("11.200.0.0/16", "11.200.0.1"),
    ] {
        assert!(problem_of_exception(network.parse().unwrap()).is_some(), "{network}");
        assert!(judged(address, &[network]).is_err(), "{network} {address}");
    }
    let host_bits = problem_of_exception("10.0.0.1/8".parse().unwrap());
    assert_eq!(host_bits.as_deref(), Some("the address has bits beyond its prefix; write `10.0.0.0/8`"));
}

#[test]
fn a_refusal_names_the_range_and_its_source() {
    let range = check("10.1.2.3".parse().unwrap(), &[], None).unwrap_err();
    assert_eq!(range.to_string(), "a private address (10.0.0.0/8, RFC 1918)");
    let range = check("169.254.169.254".parse().unwrap(), &[], None).unwrap_err();
    assert_eq!(
        range.to_string(),
        "the address of a cloud's metadata service (169.254.169.254/32, instance metadata)"
    );
}

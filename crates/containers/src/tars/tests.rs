use tar::{Builder, EntryType, Header};

use super::*;

fn header(name: &str, kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(size);
    header.set_cksum();
    header
}

fn file(tar: &mut Builder<Vec<u8>>, name: &str, content: &[u8]) {
    tar.append(&header(name, EntryType::Regular, content.len() as u64), content).unwrap();
}

fn link(tar: &mut Builder<Vec<u8>>, name: &str, kind: EntryType, target: &str) {
    let mut header = header(name, kind, 0);
    header.set_link_name_literal(target).unwrap();
    header.set_cksum();
    tar.append(&header, &[][..]).unwrap();
}

fn made(fill: impl FnOnce(&mut Builder<Vec<u8>>)) -> Vec<u8> {
    let mut tar = Builder::new(Vec::new());
    fill(&mut tar);
    tar.into_inner().unwrap()
}

fn reference() -> ImageReference {
    ImageReference::parse("tools:1").unwrap()
}

fn filesystem(tar: &[u8]) -> Result<Vec<u8>, String> {
    let mut passed = Vec::new();
    pass_filesystem(tar, &mut passed).map(|()| passed).map_err(|error| error.to_string())
}

fn context(tar: &[u8]) -> Result<Vec<u8>, String> {
    let mut passed = Vec::new();
    pass_context(tar, &mut passed).map(|()| passed).map_err(|error| error.to_string())
}

fn archive(tar: &[u8]) -> Result<Vec<u8>, String> {
    let mut passed = Vec::new();
    pass_archive(tar, &mut passed, &reference(), None).map(|()| passed).map_err(|error| error.to_string())
}

const DIGEST: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn digest(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    format!("sha256:{}", hex::encode(sha2::Sha256::digest(bytes)))
}

/// A configuration with the digest of this layer.
fn config(layer: &[u8]) -> String {
    format!(r#"{{"rootfs": {{"type":"layers","diff_ids":["{}"]}}}}"#, digest(layer))
}

/// An archive of one image with this manifest and layer.
fn saved(manifest: &str, layer: &[u8]) -> Vec<u8> {
    made(|tar| {
        tar.append(&header(&format!("{DIGEST}/"), EntryType::Directory, 0), &[][..]).unwrap();
        file(tar, &format!("{DIGEST}.json"), config(layer).as_bytes());
        file(tar, &format!("{DIGEST}/layer.tar"), layer);
        file(tar, "manifest.json", manifest.as_bytes());
        file(tar, "repositories", b"{\"debian\":{\"12\":\"x\"}}");
    })
}

fn manifest() -> String {
    format!(r#"[{{"Config":"{DIGEST}.json","RepoTags":["debian:12"],"Layers":["{DIGEST}/layer.tar"]}}]"#)
}

fn small_layer() -> Vec<u8> {
    made(|tar| file(tar, "etc/motd", b"hello"))
}

/// The members that a reader finds in a tar.
fn read(tar: &[u8]) -> Vec<(String, u8, Option<String>, Vec<u8>)> {
    let mut tar = tar::Archive::new(tar);
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let members = tar.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let link = entry.link_name_bytes().map(|link| shown(&link));
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (shown(&entry.path_bytes()), entry.header().entry_type().as_byte(), link, content)
    });
    members.collect()
}

/// A member with an extended header before it.
fn extended(tar: &mut Builder<Vec<u8>>, records: &[(&str, &str)], name: &str, content: &[u8]) {
    let records: Vec<u8> =
        records.iter().flat_map(|(key, value)| pax::render(key.as_bytes(), value.as_bytes())).collect();
    tar.append(&header("pax", EntryType::XHeader, records.len() as u64), records.as_slice()).unwrap();
    file(tar, name, content);
}

fn long(tar: &mut Builder<Vec<u8>>, kind: EntryType, text: &str) {
    let text = [text.as_bytes(), b"\0"].concat();
    tar.append(&header("././@LongLink", kind, text.len() as u64), text.as_slice()).unwrap();
}

#[test]
fn a_file_system_passes_with_all_metadata_of_its_members() {
    let deep = "d/".repeat(80) + "file";
    let tar = made(|tar| {
        file(tar, "./etc/motd", b"hello");
        tar.append(&header("dev/null", EntryType::Char, 0), &[][..]).unwrap();
        link(tar, "lib", EntryType::Symlink, "/usr/lib");
        link(tar, "bin/more", EntryType::Link, "bin/less");
        let mut long_name = Header::new_gnu();
        long_name.set_size(2_000);
        long_name.set_mode(0o755);
        tar.append_data(&mut long_name, &deep, &[7; 2_000][..]).unwrap();
        long(tar, EntryType::GNULongLink, &deep);
        link(tar, "to", EntryType::Symlink, "short");
        extended(tar, &[("path", &deep.replace("file", "ä")), ("mtime", "1.5")], "cut", b"x");
    });
    let passed = filesystem(&tar).unwrap();
    assert_eq!(read(&passed), read(&tar));
    assert_eq!(passed.len(), tar.len());
    assert_eq!(filesystem(&passed).unwrap(), passed, "what is written is written so again");
    assert_eq!(form_of(&mut tar.as_slice()).unwrap().0, TarForm::RootFilesystem);
}

/// Writers differ in the device numbers of what is no device. A layer that keeps them keeps its digest, and the image its id.
#[test]
fn ordinary_headers_are_written_as_they_came() {
    for (magic, device) in [
        (&b"ustar\x0000"[..], &b""[..]),
        (b"ustar\x0000", b"0000000\x000000000\0"),
        (b"ustar  \0", b""),
        (b"ustar  \0", b"0000000\x000000000\0"),
    ] {
        let tar = made(|tar| {
            let mut member = header("etc/motd", EntryType::Regular, 5);
            member.set_uid(0);
            member.set_gid(0);
            member.set_mtime(1_700_000_000);
            let block = member.as_mut_bytes();
            block[257..265].copy_from_slice(magic);
            block[329..345].fill(0);
            block[329..329 + device.len()].copy_from_slice(device);
            member.set_cksum();
            // The usual form of a checksum, which the crate does not write.
            let sum = format!("{:06o}\0 ", member.cksum().unwrap());
            member.as_mut_bytes()[148..156].copy_from_slice(sum.as_bytes());
            tar.append(&member, &b"hello"[..]).unwrap();
        });
        assert_eq!(filesystem(&tar).unwrap(), tar, "{magic:?} {device:?}");
    }
}

#[test]
fn no_header_of_a_client_s_gets_to_the_engine() {
    let (odd, comment) = ("user.cofferdam=7", "never written");
    let tar = made(|tar| {
        let global = pax::render(b"comment", comment.as_bytes());
        tar.append(&header("g", EntryType::XGlobalHeader, global.len() as u64), global.as_slice()).unwrap();
        let records = [
            ("comment", comment),
            ("SCHILY.xattr.security.capability", "caps"),
            ("SCHILY.xattr.trusted.overlay.opaque", "y"),
            ("SCHILY.xattr.user.note", odd),
        ];
        extended(tar, &records, "a", b"x");
        let mut noted = header("b", EntryType::Regular, 0);
        // After the end of a name, of which readers take nothing.
        noted.as_mut_bytes()[50..63].copy_from_slice(comment.as_bytes());
        noted.set_cksum();
        tar.append(&noted, &[][..]).unwrap();
    });
    let passed = filesystem(&tar).unwrap();
    let has = |text: &str| passed.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(has("SCHILY.xattr.security.capability=caps") && has(odd));
    assert!(!has(comment) && !has("trusted"), "only what was understood");
    assert_eq!(read(&passed).len(), 2);
}

#[test]
fn ambiguous_tars_are_refused() {
    let is_odd = |fill: &dyn Fn(&mut Builder<Vec<u8>>), why: &str| {
        let tar = made(|tar| fill(tar));
        let refused = filesystem(&tar).unwrap_err();
        assert!(refused.contains(why), "{why}: {refused}");
        let refused = archive(&saved(&manifest(), &tar)).unwrap_err();
        assert!(refused.contains(why), "in a layer, {why}: {refused}");
        assert!(context(&tar).is_err());
    };
    let two = "two extended headers";
    let pax = |tar: &mut Builder<Vec<u8>>, record: &str| {
        tar.append(&header("pax", EntryType::XHeader, record.len() as u64), record.as_bytes()).unwrap();
    };
    is_odd(&|tar| (pax(tar, "10 path=a\n"), extended(tar, &[("mtime", "1")], "b", b"x")).1, two);
    is_odd(
        &|tar| (long(tar, EntryType::GNULongName, "a"), extended(tar, &[("mtime", "1")], "b", b"")).1,
        two,
    );
    is_odd(
        &|tar| (pax(tar, "10 path=a\n"), long(tar, EntryType::GNULongName, "b"), file(tar, "c", b"")).2,
        two,
    );
    is_odd(
        &|tar| (pax(tar, "10 path=a\n"), long(tar, EntryType::GNULongLink, "b"), file(tar, "c", b"")).2,
        two,
    );
    is_odd(
        &|tar| {
            (0..2).for_each(|_| long(tar, EntryType::GNULongName, "a"));
            file(tar, "b", b"x");
        },
        two,
    );
    is_odd(&|tar| extended(tar, &[("path", "a"), ("path", "../b")], "c", b"x"), "a key twice");
    is_odd(&|tar| extended(tar, &[("path", "")], "c", b"x"), "an invalid name");
    is_odd(&|tar| extended(tar, &[("size", "+1")], "c", b"x"), "an invalid number");
    is_odd(&|tar| extended(tar, &[("size", "3000000000")], "c", b"x"), "two sizes");
    is_odd(&|tar| (pax(tar, "0010 path=\n"), file(tar, "c", b"")).1, "damaged");
    is_odd(&|tar| file(tar, "c/", b"x"), "name of a directory");
    let with = |kind, size, change: &dyn Fn(&mut Header)| {
        made(|tar| {
            let mut odd = header("odd", kind, size);
            change(&mut odd);
            odd.set_cksum();
            tar.append(&odd, &b"x"[..usize::try_from(size).unwrap()]).unwrap();
        })
    };
    let magic = with(EntryType::Regular, 1, &|header| header.as_mut_bytes()[257..265].fill(0));
    let prefix = with(EntryType::Regular, 1, &|header| header.as_mut_bytes()[345] = b'p');
    let sized = with(EntryType::Directory, 1, &|_| {});
    let typed = with(EntryType::Regular, 1, &|header| header.set_mode(0o120_644));
    let sparse = with(EntryType::GNUSparse, 1, &|_| {});
    for (tar, why) in [
        (magic, "neither POSIX's nor GNU's"),
        (prefix, "more fields"),
        (sized, "is not a file"),
        (typed, "contradict each other"),
        (sparse, "sparse"),
    ] {
        let refused = [filesystem(&tar).unwrap_err(), archive(&saved(&manifest(), &tar)).unwrap_err()];
        assert!(refused.iter().all(|refused| refused.contains(why)), "{why}: {refused:?}");
    }
    let more = [small_layer(), small_layer()].concat();
    assert!(filesystem(&more).unwrap_err().contains("follows its end"));
}

/// A layer that changes on its way has other digests, and its configuration says so.
#[test]
fn rewritten_layer_has_its_digest_in_the_configuration() {
    let tidy = filesystem(&small_layer()).unwrap();
    let untidy = made(|tar| extended(tar, &[("comment", "x"), ("path", "etc/motd")], "m", b"hello"));
    for (layer, changes) in [(tidy, false), (untidy, true)] {
        let config = config(&layer);
        let passed = read(&archive(&saved(&manifest(), &layer)).unwrap());
        let content = |end: &str| {
            let (_, _, _, content) = passed.iter().find(|(name, ..)| name.ends_with(end)).unwrap();
            content.clone()
        };
        let written = content("/layer.tar");
        assert_eq!(written.len(), layer.len());
        assert_eq!(read(&written), read(&filesystem(&layer).unwrap()));
        let manifest: serde_json::Value = serde_json::from_slice(&content("manifest.json")).unwrap();
        let found = content(manifest[0]["Config"].as_str().unwrap());
        let image: serde_json::Value = serde_json::from_slice(&found).unwrap();
        assert_eq!(image["rootfs"]["diff_ids"], serde_json::json!([digest(&written)]));
        assert_eq!((written != layer, found != config.as_bytes()), (changes, changes));
    }
    let other = made(|tar| {
        file(tar, &format!("{DIGEST}/layer.tar"), &small_layer());
        file(tar, &format!("{DIGEST}.json"), config(b"another").as_bytes());
        file(tar, "manifest.json", manifest().as_bytes());
    });
    assert!(archive(&other).unwrap_err().contains("another digest"));
}

#[test]
fn an_archive_gets_the_given_name_instead_of_its_own() {
    let content = filesystem(&small_layer()).unwrap();
    let tar = saved(&manifest(), &content);
    assert_eq!(form_of(&mut tar.as_slice()).unwrap().0, TarForm::DockerArchive);
    let passed = read(&archive(&tar).unwrap());
    let (config, layer) = (config(&content), format!("{DIGEST}/layer.tar"));
    let config_name = format!("{}.json", digest(config.as_bytes()).replace("sha256:", ""));
    let names: Vec<_> = passed.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, [layer.as_str(), &config_name, "manifest.json"], "nothing else gets to the engine");
    assert_eq!(passed[1].3, config.as_bytes());
    let manifest: serde_json::Value = serde_json::from_slice(&passed[2].3).unwrap();
    let wanted = serde_json::json!([{ "Config": config_name, "RepoTags": ["tools:1"], "Layers": [layer] }]);
    assert_eq!(manifest, wanted);
}

/// Names of parts are kept until the end, and a member may have one of 1 MiB.
#[test]
fn long_names_of_parts_are_refused() {
    let name = |length: usize| format!("{DIGEST}/{}", "n".repeat(length - DIGEST.len() - 1));
    let with = |name: &str| {
        let tar = made(|tar| {
            long(tar, EntryType::GNULongName, name);
            file(tar, "cut", b"");
            file(tar, "manifest.json", b"[]");
        });
        archive(&tar).unwrap_err()
    };
    assert!(with(&name(1_025)).contains("too long"));
    assert!(!with(&name(1_024)).contains("too long"));
    let tar = made(|tar| {
        long(tar, EntryType::GNULongLink, &format!("../{}", name(1_024)));
        link(tar, &format!("{DIGEST}/layer.tar"), EntryType::Symlink, "cut");
    });
    assert!(archive(&tar).unwrap_err().contains("too long"));
}

#[test]
fn an_announced_image_is_passed_on_and_any_other_has_no_manifest() {
    let content = filesystem(&small_layer()).unwrap();
    let untidy = made(|tar| extended(tar, &[("comment", "x"), ("path", "etc/motd")], "m", b"hello"));
    let announced = |layer: &[u8], id: &str| {
        let mut passed = Vec::new();
        let id = ImageId::parse(id).unwrap();
        let tar = saved(&manifest(), layer);
        let how = pass_archive(tar.as_slice(), &mut passed, &reference(), Some(&id));
        (how.map_err(|error| error.to_string()), passed)
    };
    let own = |layer: &[u8]| digest(config(layer).as_bytes());
    let (how, passed) = announced(&content, &own(&content));
    assert_eq!(how, Ok(()));
    assert_eq!(passed, archive(&saved(&manifest(), &content)).unwrap());
    for (layer, id) in [(&content, digest(b"another")), (&untidy, own(&untidy))] {
        let (how, passed) = announced(layer, &id);
        assert!(how.unwrap_err().contains(&id));
        // The tar has no end yet, and is not loaded.
        let mut whole = passed;
        whole.extend([0; 1024]);
        assert!(read(&whole).iter().all(|(name, ..)| name.ends_with("layer.tar")));
    }
}

#[test]
fn names_and_links_that_lead_out_are_refused() {
    for name in ["../x", "a/../../x", "/etc/passwd", ".."] {
        let tar = made(|tar| file(tar, name, b"x"));
        assert!(filesystem(&tar).unwrap_err().contains("leads out"), "{name}");
    }
    let hard = made(|tar| link(tar, "a", EntryType::Link, "../../etc/shadow"));
    assert!(filesystem(&hard).unwrap_err().contains("leads out"));
    for (name, target, stays) in [
        ("a", "b/c", true),
        ("d/a", "../b", true),
        ("d/a", "../../b", false),
        ("a", "/etc/passwd", false),
        ("a", "..", false),
        ("d/e/", "../../x", false),
    ] {
        let tar = made(|tar| link(tar, name, EntryType::Symlink, target));
        assert_eq!(context(&tar).is_ok(), stays, "{name} -> {target}");
        assert!(filesystem(&tar).is_ok(), "links of an image mean places of the image");
    }
    let device = made(|tar| tar.append(&header("null", EntryType::Char, 0), &[][..]).unwrap());
    assert!(context(&device).is_err());
}

#[test]
fn lengths_that_are_not_there_and_damaged_headers_are_refused() {
    let tar = made(|tar| file(tar, "a", &[7; 5_000]));
    // The last is where the next member could begin.
    for end in [1, 511, 512, 513, 2_000, 5_511, 5_632] {
        assert!(filesystem(&tar[..end]).is_err(), "cut at {end}");
    }
    let mut lying = header("big", EntryType::Regular, 1 << 60).as_bytes().to_vec();
    lying.extend([0; 1024]);
    assert!(filesystem(&lying).unwrap_err().contains("truncated"));
    let mut bent = tar.clone();
    bent[0] ^= 1;
    assert!(filesystem(&bent).unwrap_err().contains("checksum"));
    let packed = [&[0x1f, 0x8b, 8, 0][..], &tar].concat();
    assert!(form_of(&mut packed.as_slice()).unwrap_err().to_string().contains("decompress"));
    for nothing in [&b""[..], &[0; 1024], b"no tar", &[7; 4096]] {
        assert!(filesystem(nothing).is_err());
    }
}

#[test]
fn sparse_and_compressed_members_are_refused() {
    let sparse = made(|tar| tar.append(&header("hole", EntryType::GNUSparse, 0), &[][..]).unwrap());
    assert!(filesystem(&sparse).unwrap_err().contains("sparse"));
    let content = "27 GNU.sparse.size=1000000\n";
    let pax = made(|tar| {
        tar.append(&header("pax", EntryType::XHeader, content.len() as u64), content.as_bytes()).unwrap();
        file(tar, "hole", b"x");
    });
    assert!(filesystem(&pax).unwrap_err().contains("sparse"));
    assert!(
        archive(&saved(&manifest(), &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0])).unwrap_err().contains("compressed")
    );
    assert!(archive(&saved(&manifest(), &sparse)).unwrap_err().contains("sparse"), "also within a layer");
    let climbs = made(|tar| file(tar, "../../etc/cron.d/x", b"x"));
    assert!(archive(&saved(&manifest(), &climbs)).unwrap_err().contains("leads out"));
}

#[test]
fn a_long_name_takes_bounded_memory() {
    let mut tar = header("././@LongLink", EntryType::GNULongName, 8 << 30).as_bytes().to_vec();
    tar.extend([b'x'; 4096]);
    assert!(filesystem(&tar).unwrap_err().contains("1 MiB"));
    // Nor do many of them, or a length beyond all lengths.
    let many = made(|tar| {
        for _ in 0..10 {
            let mut long = vec![b'x'; 1 << 20];
            long[(1 << 20) - 1] = 0;
            tar.append(&header("././@LongLink", EntryType::GNULongName, 1 << 20), long.as_slice()).unwrap();
        }
    });
    assert!(filesystem(&many).unwrap_err().contains("two extended headers"));
    let mut endless = header("a", EntryType::Regular, 0);
    endless.as_mut_bytes()[124..136]
        .copy_from_slice(&[0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    endless.set_cksum();
    assert!(filesystem(endless.as_bytes()).unwrap_err().contains("truncated"));
}

#[test]
fn an_archive_has_one_image_and_only_its_parts() {
    let one = |manifest: &str| archive(&saved(manifest, &small_layer()));
    let part = manifest();
    let inner = &part[1..part.len() - 1];
    for bad in [
        "[]".to_owned(),
        "{}".to_owned(),
        "nothing".to_owned(),
        format!("[{inner},{inner}]"),
        part.replace(&format!("{DIGEST}/layer.tar"), "../../etc/passwd"),
        part.replace(&format!("{DIGEST}.json"), "/etc/passwd"),
    ] {
        assert!(one(&bad).is_err(), "{bad}");
    }
    let none = made(|tar| file(tar, &format!("{DIGEST}.json"), b"{}"));
    assert!(archive(&none).unwrap_err().contains("manifest.json"));
    let odd = made(|tar| link(tar, "manifest.json", EntryType::Symlink, "/etc/passwd"));
    assert!(archive(&odd).is_err());
    let mut twice = Builder::new(Vec::new());
    file(&mut twice, "manifest.json", part.as_bytes());
    file(&mut twice, "manifest.json", part.as_bytes());
    assert!(archive(&twice.into_inner().unwrap()).unwrap_err().contains("two"));
}

#[test]
fn a_tar_that_is_too_long_is_refused_by_its_received_length() {
    let tar = made(|tar| file(tar, "a", &[7; 5_000]));
    let mut meter = Meter::new(tar.as_slice(), tar.len() as u64);
    pass_filesystem(&mut meter, io::sink()).unwrap();
    assert_eq!(meter.read_bytes(), tar.len() as u64);
    assert_eq!(meter.sha256().len(), 64);
    let short = Meter::new(tar.as_slice(), tar.len() as u64 - 1);
    assert!(matches!(pass_filesystem(short, io::sink()), Err(BadTar::TooLong(_))));
}

/// The engine's side goes away.
#[test]
fn a_reader_that_leaves_ends_the_walk() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let tar = made(|tar| file(tar, "a", b"x"));
    assert!(matches!(pass_filesystem(tar.as_slice(), Full), Err(BadTar::Io(_))));
}

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
    pass_archive(tar, &mut passed, &reference()).map(|()| passed).map_err(|error| error.to_string())
}

const DIGEST: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// An archive of one image with this manifest and layer.
fn saved(manifest: &str, layer: &[u8]) -> Vec<u8> {
    made(|tar| {
        tar.append(&header(&format!("{DIGEST}/"), EntryType::Directory, 0), &[][..]).unwrap();
        file(tar, &format!("{DIGEST}/layer.tar"), layer);
        file(tar, &format!("{DIGEST}.json"), b"{}");
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

#[test]
fn a_file_system_passes_byte_for_byte() {
    let long = "d/".repeat(80) + "file";
    let tar = made(|tar| {
        file(tar, "./etc/motd", b"hello");
        tar.append(&header("dev/null", EntryType::Char, 0), &[][..]).unwrap();
        link(tar, "lib", EntryType::Symlink, "/usr/lib");
        link(tar, "bin/more", EntryType::Link, "bin/less");
        let mut long_name = Header::new_gnu();
        long_name.set_size(2_000);
        tar.append_data(&mut long_name, &long, &[7; 2_000][..]).unwrap();
    });
    assert_eq!(filesystem(&tar).unwrap(), tar);
    assert_eq!(form_of(&mut tar.as_slice()).unwrap().0, TarForm::RootFilesystem);
}

#[test]
fn an_archive_gets_the_one_name_and_loses_its_own() {
    let tar = saved(&manifest(), &small_layer());
    assert_eq!(form_of(&mut tar.as_slice()).unwrap().0, TarForm::DockerArchive);
    let passed = archive(&tar).unwrap();
    let mut names = Vec::new();
    for entry in tar::Archive::new(passed.as_slice()).entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        if name == "manifest.json" {
            let found: serde_json::Value = serde_json::from_reader(&mut entry).unwrap();
            assert_eq!(found[0]["RepoTags"], serde_json::json!(["tools:1"]));
            assert_eq!(found[0]["Layers"], serde_json::json!([format!("{DIGEST}/layer.tar")]));
        }
        names.push(name);
    }
    assert_eq!(
        names,
        [
            format!("{DIGEST}/"),
            format!("{DIGEST}/layer.tar"),
            format!("{DIGEST}.json"),
            "manifest.json".to_owned()
        ]
    );
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
    assert!(filesystem(&lying).unwrap_err().contains("cut"));
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
fn what_is_larger_unpacked_is_refused() {
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
            let long = vec![b'x'; 1 << 20];
            tar.append(&header("././@LongLink", EntryType::GNULongName, 1 << 20), long.as_slice()).unwrap();
        }
    });
    assert!(filesystem(&many).unwrap_err().contains("4 MiB"));
    let mut endless = header("a", EntryType::Regular, 0);
    endless.as_mut_bytes()[124..136]
        .copy_from_slice(&[0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    endless.set_cksum();
    assert!(filesystem(endless.as_bytes()).unwrap_err().contains("cut"));
}

#[test]
fn an_archive_is_of_one_image_with_parts_of_its_own() {
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
fn a_tar_that_is_too_long_is_refused_as_such_and_measured_as_it_came() {
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

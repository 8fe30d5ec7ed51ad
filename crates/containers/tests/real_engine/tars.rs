//! Tests generated tars, valid and unusual ones: the engine reads each accepted tar as this crate does.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use cofferdam_containers::pass_filesystem;
use tar::EntryType;

use crate::support::TestImage;

const BLOCK: usize = 512;
/// Tars that the engine gets in one go.
const AT_ONCE: u64 = 250;

/// A file, a link or a directory, by its name: kind, target of a link, content.
type Members = BTreeMap<String, (char, String, Vec<u8>)>;

/// Numbers that are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn is(&mut self, one_in: u64) -> bool {
        self.roll(one_in) == 0
    }
}

/// A header, of which every field can be bent.
#[derive(Clone)]
struct Header {
    magic: [u8; 8],
    flag: u8,
    name: Vec<u8>,
    prefix: Vec<u8>,
    link: Vec<u8>,
    mode: u32,
    size: Vec<u8>,
    rest: Vec<u8>,
}

impl Header {
    fn new(is_gnu: bool, flag: u8, name: &[u8], size: usize) -> Self {
        Self {
            magic: if is_gnu { *b"ustar  \0" } else { *b"ustar\x0000" },
            flag,
            name: name[..name.len().min(100)].to_vec(),
            prefix: Vec::new(),
            link: Vec::new(),
            mode: 0o644,
            size: format!("{size:011o}\0").into_bytes(),
            rest: Vec::new(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        let mode = format!("{:07o}\0", self.mode).into_bytes();
        let rest = 512 - self.rest.len();
        let fields: [(usize, &[u8]); 11] = [
            (0, &self.name),
            (100, &mode),
            (108, b"0000000\0"),
            (116, b"0000000\0"),
            (124, &self.size),
            (136, b"14000000000\0"),
            (148, b"        "),
            (157, &self.link),
            (257, &self.magic),
            (345, &self.prefix),
            (rest, &self.rest),
        ];
        for (at, bytes) in fields {
            block[at..at + bytes.len()].copy_from_slice(bytes);
        }
        block[156] = self.flag;
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        block
    }
}

fn with_content(tar: &mut Vec<u8>, header: &Header, content: &[u8]) {
    tar.extend(header.bytes());
    tar.extend(content);
    tar.resize(tar.len().next_multiple_of(BLOCK), 0);
}

fn pax(tar: &mut Vec<u8>, records: &[(&str, &str)]) {
    let mut content = String::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        let length = (rest..rest + 10).find(|length| *length == rest + length.to_string().len()).unwrap();
        writeln!(content, "{length} {key}={value}").unwrap();
    }
    with_content(tar, &Header::new(false, b'x', b"PaxHeaders/x", content.len()), content.as_bytes());
}

fn long(tar: &mut Vec<u8>, flag: u8, text: &str) {
    with_content(
        tar,
        &Header::new(true, flag, b"././@LongLink", text.len() + 1),
        format!("{text}\0").as_bytes(),
    );
}

/// A tar whose names begin with `top`; what it has, and whether one of its members is odd.
fn generate(dice: &mut Dice, top: &str) -> (Vec<u8>, Members, bool) {
    let (mut tar, mut members, mut files) = (Vec::new(), Members::new(), Vec::new());
    let count = 1 + dice.roll(4);
    let odd = dice.is(2).then(|| dice.roll(count));
    for number in 0..count {
        let stem = match dice.roll(5) {
            0 => format!("{}m{number}", "long-directory/".repeat(8)),
            1 => format!("{}m{number}", "d/".repeat(60)),
            2 => format!("ä-{}-m{number}", "ö".repeat(usize::try_from(dice.roll(80)).unwrap())),
            3 => format!("{}m{number}", "x".repeat(90 + usize::try_from(dice.roll(120)).unwrap())),
            _ => format!("m{number}"),
        };
        let name = format!("{top}/{stem}");
        let (kind, link, content): (char, String, Vec<u8>) = match dice.roll(6) {
            0 => ('d', String::new(), Vec::new()),
            1 => (
                'l',
                format!("../{}target", "somewhere/".repeat(usize::try_from(dice.roll(14)).unwrap())),
                Vec::new(),
            ),
            2 if !files.is_empty() => {
                let at = usize::try_from(dice.roll(files.len() as u64)).unwrap();
                let target: &(String, Vec<u8>) = &files[at];
                ('h', target.0.clone(), target.1.clone())
            }
            _ => (
                'f',
                String::new(),
                vec![b'0' + u8::try_from(number).unwrap(); usize::try_from(dice.roll(2_000)).unwrap()],
            ),
        };
        let mode = [0o644, 0o755, 0o4755, 0o600][usize::try_from(dice.roll(4)).unwrap()];
        // An odd one may have another name in the end.
        if kind == 'f' && odd != Some(number) {
            files.push((name.clone(), content.clone()));
        }
        let odd = (odd == Some(number)).then(|| dice.roll(ODDITIES));
        member(dice, &mut tar, (&name, kind, &link, mode), if kind == 'h' { b"" } else { &content }, odd);
        let link = if kind == 'l' { link } else { String::new() };
        let kind = if kind == 'h' { 'f' } else { kind };
        members.insert(name, (kind, link, content));
    }
    tar.extend([0; 2 * BLOCK]);
    (tar, members, odd.is_some())
}

const ODDITIES: u64 = 20;

/// Appends a member in one of the three forms. An odd one has something that no writer makes.
fn member(
    dice: &mut Dice,
    tar: &mut Vec<u8>,
    (name, kind, link, mode): (&str, char, &str, u32),
    content: &[u8],
    odd: Option<u64>,
) {
    let flag = match kind {
        'd' => b'5',
        'l' => b'2',
        'h' => b'1',
        _ => b'0',
    };
    let is_gnu = dice.is(2);
    let mut header = Header::new(is_gnu, flag, name.as_bytes(), content.len());
    header.mode = mode;
    header.link = link.as_bytes()[..link.len().min(100)].to_vec();
    let other = format!("{name}-other");
    let before = odd.filter(|_| dice.is(2));
    let bend = |tar: &mut Vec<u8>, odd: Option<u64>| match odd {
        Some(0) => pax(tar, &[("path", &other)]),
        Some(1) => long(tar, b'L', &other),
        Some(2) => long(tar, b'K', &other),
        Some(3) => pax(tar, &[("size", "512")]),
        Some(4) => pax(tar, &[("path", &other), ("path", name)]),
        Some(5) => pax(tar, &[("GNU.sparse.realsize", "70000"), ("GNU.sparse.numblocks", "0")]),
        Some(6) => pax(tar, &[("linkpath", &other)]),
        Some(7) => pax(tar, &[("path", ""), ("size", "")]),
        Some(8) => {
            with_content(tar, &Header::new(true, b'L', b"long", 4), other.get(..4).unwrap().as_bytes());
        }
        _ => {}
    };
    bend(tar, before);
    let is_plain = name.len() <= 100 && link.len() <= 100;
    if is_gnu && !is_plain {
        if link.len() > 100 {
            long(tar, b'K', link);
        }
        if name.len() > 100 {
            long(tar, b'L', name);
        }
    } else if !is_plain || dice.is(3) && !is_gnu {
        let mut records = vec![("path", name), ("comment", "generated"), ("mtime", "1600000000.25")];
        if !link.is_empty() {
            records.push(("linkpath", link));
        }
        pax(tar, &records);
    }
    bend(tar, odd.filter(|_| before.is_none()));
    let bytes = |size: usize| u64::try_from(size).unwrap().to_be_bytes();
    match odd {
        Some(9) => header.magic = [0; 8],
        Some(10) => header.prefix = b"prefix".to_vec(),
        Some(11) => header.rest = b"tar\0".to_vec(),
        Some(12) => {
            header.flag = [b'S', b'V', b'M', b'D', b'A', b'X'][usize::try_from(dice.roll(6)).unwrap()];
        }
        Some(13) => header.mode |= 0o120_000,
        Some(14) => header.size = [&[0x80, 0, 0, 0], &bytes(content.len())[..]].concat(),
        Some(15) => header.size = b"        0000".to_vec(),
        Some(16) => header.size = b"00000000 10\0".to_vec(),
        Some(17) => header.flag = [0, b'7'][usize::try_from(dice.roll(2)).unwrap()],
        Some(18) => header.name.extend_from_slice(if header.name.len() < 90 { b"\0/../x" } else { b"" }),
        Some(19) => header.size = format!("{:011o}\0", content.len() + 600).into_bytes(),
        _ => {}
    }
    with_content(tar, &header, content);
}

/// The members that a reader finds in a tar, of all beneath directories that are named so. `None`: the engine
/// refuses the whole tar, since a hard link leads to no earlier file, or a file is in the way of another.
fn members_of(tar: &[u8]) -> Option<Members> {
    let mut found = Members::new();
    for entry in tar::Archive::new(tar).entries().unwrap() {
        let mut entry = entry.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('/').to_owned();
        let name = text(&entry.path_bytes());
        if !name.starts_with("generated-") {
            continue;
        }
        let link = entry.link_name_bytes().map(|link| text(&link)).unwrap_or_default();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        let member = match entry.header().entry_type() {
            EntryType::Directory => ('d', String::new(), content),
            EntryType::Symlink => ('l', link, content),
            EntryType::Link => ('f', String::new(), found.get(&link)?.2.clone()),
            EntryType::Regular | EntryType::Continuous => ('f', String::new(), content),
            other => panic!("{name} is {other:?}"),
        };
        found.insert(name, member);
    }
    let is_in_the_way = |name: &str| {
        let mut above = std::path::Path::new(name).ancestors().skip(1).filter_map(|path| path.to_str());
        above.any(|path| found.get(path).is_some_and(|member| member.0 != 'd'))
    };
    let is_refused = found.keys().any(|name| is_in_the_way(name));
    (!is_refused).then_some(found)
}

fn docker(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut docker = Command::new("docker");
    let docker = docker.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut docker = docker.spawn().unwrap();
    let (mut stdin, input) = (docker.stdin.take().unwrap(), input.to_vec());
    let writing = std::thread::spawn(move || stdin.write_all(&input));
    let output = docker.wait_with_output().unwrap();
    let _ = writing.join().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Ten thousand of them with `COFFERDAM_LONG`.
#[tokio::test]
async fn the_engine_unpacks_each_accepted_tar_as_parsed() {
    let image = TestImage::new().await;
    let count = if std::env::var_os("COFFERDAM_LONG").is_some() { 10_000 } else { 500 };
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let (mut odd_passed, mut refused) = (0, 0);
    for first in (0..count).step_by(usize::try_from(AT_ONCE).unwrap()) {
        let (mut joined, mut understood) = (Vec::new(), Members::new());
        for number in first..first + AT_ONCE {
            let (tar, meant, is_odd) = generate(&mut dice, &format!("generated-{number}"));
            let mut passed = Vec::new();
            match pass_filesystem(tar.as_slice(), &mut passed) {
                Ok(()) => {}
                Err(error) if is_odd => {
                    assert!(!error.to_string().is_empty());
                    refused += 1;
                    continue;
                }
                Err(error) => panic!("{number} is in order: {error}"),
            }
            odd_passed += u64::from(is_odd);
            let Some(found) = members_of(&passed) else {
                assert!(is_odd, "{number}");
                continue;
            };
            if !is_odd {
                assert_eq!(found, meant, "{number}");
            }
            understood.extend(found);
            joined.extend(passed.strip_suffix(&[0; 2 * BLOCK]).unwrap());
        }
        joined.extend([0; 2 * BLOCK]);
        let created = docker(&["create", image.reference.as_str(), "/none"], b"");
        let container = String::from_utf8(created).unwrap().trim().to_owned();
        let exported = std::panic::catch_unwind(|| {
            docker(&["cp", "-", &format!("{container}:/")], &joined);
            docker(&["export", &container], b"")
        });
        docker(&["rm", &container], b"");
        let mut found = members_of(&exported.unwrap()).unwrap();
        // Directories on the way are members of no tar.
        found.retain(|name, member| member.0 != 'd' || understood.contains_key(name));
        let differs = understood.iter().find(|(name, member)| found.get(*name) != Some(member));
        assert_eq!(differs, None, "the engine has {:?}", differs.map(|(name, _)| found.get(name)));
        let more: Vec<_> = found.keys().filter(|name| !understood.contains_key(*name)).collect();
        assert!(more.is_empty(), "only the engine has {more:?}");
    }
    println!("{count} tars: {refused} refused, {odd_passed} odd ones passed");
    assert!(refused > count / 5 && odd_passed > 0);
}

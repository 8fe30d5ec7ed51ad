//! What real wrappers run is seen: command lines put together from their names, options and values, run by the programs
//! of this machine in a place where `rm` only leaves a mark.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use crate::Seen;
use crate::testing::{exec, is_refused};

/// Those that every machine has. What is missing is not found by the command line either.
const PROGRAMS: [&str; 11] =
    ["env", "nice", "timeout", "xargs", "nohup", "stdbuf", "setsid", "find", "ionice", "sh", "flock"];

const PIECES: [&str; 73] = [
    "rm",
    "rm",
    "rm",
    "rm x",
    "env",
    "env",
    "nice",
    "timeout",
    "xargs",
    "nohup",
    "stdbuf",
    "setsid",
    "find",
    "ionice",
    "sh",
    "flock",
    "-i",
    "-",
    "--",
    "-u",
    "-uX",
    "X",
    "A=1",
    "A=a;b rm",
    "A=> rm x",
    "-S",
    "-vS",
    "-iSA=1 rm",
    "--split-string",
    "--split-string=rm x",
    "--split=nice rm",
    "A=1 rm x",
    "nice\\_rm",
    "'rm' x",
    "r\\c m",
    "\"A=b c\" rm",
    "# rm",
    "A=# rm",
    "$",
    "${X}",
    "-C",
    ".",
    "--chdir=.",
    "--chdir",
    "-n",
    "5",
    "-n5",
    "-5",
    "--adjustment",
    "-k",
    "1",
    "-k1",
    "-s",
    "TERM",
    "--foreground",
    "-0",
    "-n1",
    "-I",
    "{}",
    "-I{}",
    "-i",
    "-r",
    "--max-args=1",
    "-o",
    "L",
    "-oL",
    "-w",
    "-exec",
    ";",
    "+",
    "-c",
    "-maxdepth",
    "0",
];

struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { directory: tempfile::tempdir().unwrap() };
        let programs = place.programs();
        fs::create_dir_all(&programs).unwrap();
        let work = place.directory.path().join("work");
        fs::create_dir(&work).unwrap();
        let remover = format!("#!/bin/sh\n: > {}\n", place.mark().display());
        fs::write(programs.join("rm"), &remover).unwrap();
        fs::set_permissions(programs.join("rm"), fs::Permissions::from_mode(0o755)).unwrap();
        for program in PROGRAMS {
            let real = ["/bin", "/usr/bin"]
                .iter()
                .map(|bin| Path::new(bin).join(program))
                .find(|path| path.exists());
            if let Some(real) = real {
                symlink(real, programs.join(program)).unwrap();
            }
        }
        place
    }

    fn programs(&self) -> std::path::PathBuf {
        self.directory.path().join("bin")
    }

    fn mark(&self) -> std::path::PathBuf {
        self.directory.path().join("mark")
    }

    /// Runs the command line; whether it got as far as `rm`.
    fn removes(&self, argv: &[&str]) -> bool {
        let Ok(mut child) = Command::new(self.programs().join(argv[0]))
            .args(&argv[1..])
            .env_clear()
            .env("PATH", self.programs())
            .current_dir(self.directory.path().join("work"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
        else {
            return false;
        };
        let began = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if began.elapsed() > Duration::from_secs(5) {
                child.kill().unwrap();
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        fs::remove_file(self.mark()).is_ok()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn commands_of_real_wrappers_are_seen(
        first in prop::sample::select(PROGRAMS.to_vec()),
        rest in prop::collection::vec(prop::sample::select(PIECES.to_vec()), 1..9),
    ) {
        let argv: Vec<&str> = std::iter::once(first).chain(rest).collect();
        let denied = is_refused(Seen::of_command(&exec(&argv)));
        prop_assert!(denied || !Place::new().removes(&argv), "{:?}", argv);
    }
}

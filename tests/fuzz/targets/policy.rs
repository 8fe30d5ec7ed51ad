//! Any text is no policy, with reasons that name the file, or a policy that is the same when it is written out and
//! loaded again. Never a long wait, never much memory.
//!
//! Input: a policy file, or two with a byte 0xFF between them.

#![no_main]

use fuzz::text;
use libfuzzer_sys::fuzz_target;
use policy::Policy;

const FILES: [&str; 2] = ["a.yaml", "b.yaml"];

fuzz_target!(|data: &[u8]| {
    let files = FILES.into_iter().zip(data.splitn(2, |byte| *byte == 0xff).map(text));
    match Policy::from_files(files) {
        Ok(policy) => {
            assert!(policy.profile_names().count() > 0 && policy.role_names().count() > 0);
            let written = policy.to_yaml().expect("a policy can be written");
            let again = Policy::from_files([("again.yaml", &written)]);
            assert_eq!(
                again.map(|again| again.digest().to_owned()).as_deref(),
                Ok(policy.digest()),
                "{written}"
            );
        }
        Err(problems) => {
            assert!((1..=2 * 101 + 2).contains(&problems.0.len()));
            for problem in &problems.0 {
                assert!(FILES.contains(&problem.file.as_str()) || problem.file == "policy", "{problem:?}");
                assert!(!problem.message.is_empty());
            }
        }
    }
});

//! Of each rule: what fires it, and what comes near and does not.

use policy::{AnomalyRule, AnomalySetting};

use super::testing::{Tape, ended, of_file, shipped, with_input};
use crate::seen::{Denial, Ended, Ending, Kind, What};

const SECOND: u64 = 1_000;

/// `threshold` of `what` by one agent fire, one less does not, nor half of them each by two, nor a window that has passed.
fn fires_at_its_threshold(rule: AnomalyRule, what: &What) {
    let setting = shipped(rule);
    let tape = |count: u64, step: u64| {
        let mut tape = Tape::default();
        tape.times(count, |tape| {
            tape.add("alice", what.clone()).wait(step);
        });
        tape
    };
    let threshold = setting.threshold;
    assert_eq!(tape(threshold, SECOND).fires(rule, &setting), [threshold], "{rule:?}");
    assert_eq!(tape(threshold + 1, SECOND).fires(rule, &setting), [threshold, threshold + 1]);
    assert_eq!(tape(threshold - 1, SECOND).fires(rule, &setting), [0; 0], "one less");

    let window = setting.window_s * 1_000;
    let mut passed = tape(threshold - 1, 0);
    assert_eq!(passed.clone().wait(window - 1).add("alice", what.clone()).fires(rule, &setting), [threshold]);
    let late = passed.wait(window).add("alice", what.clone());
    assert_eq!(late.fires(rule, &setting), [0; 0], "the window has just passed");

    let mut halves = Tape::default();
    for who in ["alice", "bob"] {
        halves.times(threshold - 1, |tape| {
            tape.add(who, what.clone());
        });
    }
    assert_eq!(halves.fires(rule, &setting), [0; 0], "two agents, each for itself");
}

#[test]
fn denials() {
    fires_at_its_threshold(
        AnomalyRule::Denials,
        &What::Ended(ended(Kind::Delete, Ending::Denied(Denial::Other))),
    );
}

#[test]
fn denied_commands() {
    fires_at_its_threshold(
        AnomalyRule::DeniedCommands,
        &What::Ended(ended(Kind::Command, Ending::Denied(Denial::Command))),
    );
    let mut others = Tape::default();
    others.times(99, |tape| {
        tape.ended("alice", ended(Kind::Command, Ending::Failed));
    });
    assert_eq!(others.fires(AnomalyRule::DeniedCommands, &shipped(AnomalyRule::DeniedCommands)), [0; 0]);
}

#[test]
fn escape_attempts() {
    fires_at_its_threshold(AnomalyRule::EscapeAttempts, &What::Ended(ended(Kind::Read, Ending::Escape)));
}

#[test]
fn permission_escalation() {
    let rule = AnomalyRule::PermissionEscalation;
    fires_at_its_threshold(rule, &What::Escalated);
    // What a role does not have, a team denies, or was revoked; not what the profile or a reviewer says no to.
    let denied = |denial| What::Ended(ended(Kind::Change, Ending::Denied(denial)));
    fires_at_its_threshold(rule, &denied(Denial::NotHeld));
    let mut others = Tape::default();
    others.times(99, |tape| {
        tape.add("alice", denied(Denial::Other)).add("alice", denied(Denial::Command));
    });
    assert_eq!(others.fires(rule, &shipped(rule)), [0; 0]);
}

#[test]
fn rate_limit_abuse() {
    let rule = AnomalyRule::RateLimitAbuse;
    fires_at_its_threshold(rule, &What::Ended(ended(Kind::Command, Ending::OverLimit)));
    let mut excused = Tape::default();
    excused.times(99, |tape| {
        tape.ended("alice", ended(Kind::Command, Ending::Excused));
    });
    assert_eq!(excused.fires(rule, &shipped(rule)), [0; 0], "a full daemon is nobody's abuse");
}

#[test]
fn a_run_over_its_quota_and_a_nearly_full_disk_fire_at_once() {
    let mut tape = Tape::default();
    tape.add("alice", What::DiskQuota).wait(SECOND).add("alice", What::DiskLow);
    assert_eq!(tape.fires(AnomalyRule::DiskQuota, &shipped(AnomalyRule::DiskQuota)), [1]);
    assert_eq!(tape.fires(AnomalyRule::DiskLow, &shipped(AnomalyRule::DiskLow)), [2]);
}

#[test]
fn loops() {
    fires_at_its_threshold(AnomalyRule::Loop, &What::Ended(with_input(Kind::Read, "a.rs")));
    let setting = AnomalySetting { threshold: 4, ..shipped(AnomalyRule::Loop) };
    let fires = |tape: &Tape| tape.fires(AnomalyRule::Loop, &setting);

    // A test after each edit is work; an edit that is always the same is none.
    let mut work = Tape::default();
    for edit in 0..20 {
        work.ended("alice", with_input(Kind::Change, &format!("edit {edit}")));
        work.ended("alice", with_input(Kind::Command, "cargo test"));
    }
    assert_eq!(fires(&work), [0; 0]);
    let mut flip = Tape::default();
    flip.times(4, |tape| {
        tape.ended("alice", with_input(Kind::Change, "on")).ended("alice", with_input(Kind::Change, "off"));
    });
    assert_eq!(fires(&flip), [7, 8]);
    // A change that failed is none.
    let mut failing = Tape::default();
    failing.times(4, |tape| {
        let failed = Ended { ending: Ending::Failed, ..with_input(Kind::Change, "x") };
        tape.ended("alice", with_input(Kind::Command, "make")).ended("alice", failed);
    });
    assert_eq!(fires(&failing), [7, 8]);
    // Others in between do not hide it, other arguments are another call, and so is another run.
    let mut hidden = Tape::default();
    hidden.times(4, |tape| {
        tape.ended("alice", with_input(Kind::Read, "a")).ended("alice", with_input(Kind::Read, "b"));
    });
    assert_eq!(fires(&hidden), [7, 8]);
    let mut runs = Tape::default();
    for run in ["1", "2", "1", "2", "1", "2"] {
        runs.add_in("alice", run, What::Ended(with_input(Kind::Read, "a")));
    }
    assert_eq!(fires(&runs), [0; 0]);
}

#[test]
fn repeated_failures() {
    let rule = AnomalyRule::RepeatedFailures;
    let setting = shipped(rule);
    let fires = |endings: &str| {
        let mut tape = Tape::default();
        for ending in endings.chars() {
            let ending = match ending {
                'f' => Ending::Failed,
                'd' => Ending::Denied(Denial::Other),
                'x' => Ending::Excused,
                'l' => Ending::OverLimit,
                _ => Ending::Succeeded,
            };
            tape.wait(SECOND).ended("alice", ended(Kind::Command, ending));
        }
        tape.fires(rule, &setting)
    };
    assert_eq!(fires("ffffddff"), [8]);
    assert_eq!(fires("fffffff"), [0; 0]);
    assert_eq!(fires(".ff.ffffff"), [10]);
    assert_eq!(fires(".ff.ff..fff"), [0; 0], "seven of the last ten");
    assert_eq!(fires("ffffffxxxxxxxxxxf"), [0; 0], "what nobody is to blame for counts neither way");
    assert_eq!(fires("ffffffxxxxff"), [12]);
    assert_eq!(fires("fffffffllllllllll"), [0; 0], "what came too often is another rule's");
    assert_eq!(fires("ffffffff."), [8], "a success fires nothing");

    let mut slow = Tape::default();
    slow.times(8, |tape| {
        tape.wait(setting.window_s * 1_000 / 7).ended("alice", ended(Kind::Command, Ending::Failed));
    });
    assert_eq!(slow.fires(rule, &setting), [8], "just within the window");
    slow.seen[0].at -= 2;
    assert_eq!(slow.fires(rule, &setting), [0; 0], "the first just outside");
    let mut two = Tape::default();
    two.times(5, |tape| {
        for who in ["alice", "bob"] {
            tape.ended(who, ended(Kind::Command, Ending::Failed));
        }
    });
    assert_eq!(two.fires(rule, &setting), [0; 0]);
}

#[test]
fn spikes() {
    let rule = AnomalyRule::Spike;
    let setting = AnomalySetting { factor: Some(1), ..shipped(rule) };
    let tape = |count: u64| {
        let mut tape = Tape::default();
        tape.times(count, |tape| {
            tape.wait(SECOND).add("alice", What::Asked);
        });
        tape
    };
    // The seed's own rule: over 50 in five minutes.
    assert_eq!(tape(51).fires(rule, &setting), [51]);
    assert_eq!(tape(50).fires(rule, &setting), [0; 0]);
    let mut slow = Tape::default();
    slow.times(200, |tape| {
        tape.wait(6 * SECOND).add("alice", What::Asked);
    });
    assert_eq!(slow.fires(rule, &setting), [0; 0], "50 in every five minutes, for ever");
    let mut two = Tape::default();
    two.times(50, |tape| {
        tape.add("alice", What::Asked).add("bob", What::Asked);
    });
    assert_eq!(two.fires(rule, &setting), [0; 0]);

    // One that is new is taken to make 50; four times that is too much for it.
    let setting = shipped(rule);
    assert_eq!(tape(200).fires(rule, &setting), [0; 0]);
    assert_eq!(tape(201).fires(rule, &setting), [201]);
}

#[test]
fn a_spike_is_measured_against_the_agents_baseline() {
    let rule = AnomalyRule::Spike;
    let setting = shipped(rule);
    let window = setting.window_s * 1_000;
    // Four windows of so many calls, the last of which ends now; then a fifth.
    let after = |usual: u64, then: u64| {
        let mut tape = Tape::default();
        for index in 0..4 {
            tape.now = index * window;
            tape.times(usual, |tape| {
                tape.wait(10).add("alice", What::Asked);
            });
        }
        tape.now = 5 * window;
        tape.times(then, |tape| {
            tape.add("alice", What::Asked);
        });
        tape.fires(rule, &setting).len()
    };
    assert_eq!(after(10, 50), 0, "not over 50");
    assert_eq!(after(10, 51), 1, "five times as many as usual");
    assert_eq!(after(100, 400), 0, "four times as many, and no more");
    assert_eq!(after(100, 401), 1);
}

#[test]
fn read_write_delete() {
    let rule = AnomalyRule::ReadWriteDelete;
    let setting = shipped(rule);
    let fires = |steps: &[(Kind, &str)]| {
        let mut tape = Tape::default();
        for (kind, file) in steps {
            tape.wait(SECOND).ended("alice", of_file(*kind, file));
        }
        tape.fires(rule, &setting)
    };
    assert_eq!(fires(&[(Kind::Read, "a"), (Kind::Change, "a"), (Kind::Delete, "a")]), [3]);
    assert_eq!(
        fires(&[
            (Kind::Read, "a"),
            (Kind::Read, "b"),
            (Kind::Change, "a"),
            (Kind::Change, "b"),
            (Kind::Delete, "a")
        ]),
        [5]
    );
    assert_eq!(fires(&[(Kind::Read, "a"), (Kind::Change, "b"), (Kind::Delete, "a")]), [0; 0], "another file");
    assert_eq!(
        fires(&[(Kind::Change, "a"), (Kind::Read, "a"), (Kind::Delete, "a")]),
        [0; 0],
        "made, looked at, thrown away"
    );
    assert_eq!(
        fires(&[
            (Kind::Read, "a"),
            (Kind::Change, "a"),
            (Kind::Delete, "a"),
            (Kind::Change, "a"),
            (Kind::Delete, "a")
        ]),
        [3]
    );
    let late = |gap: u64| {
        let mut tape = Tape::default();
        tape.ended("alice", of_file(Kind::Read, "a")).ended("alice", of_file(Kind::Change, "a"));
        tape.wait(gap).ended("alice", of_file(Kind::Delete, "a")).fires(rule, &setting).len()
    };
    assert_eq!((late(setting.window_s * 1_000 - 1), late(setting.window_s * 1_000)), (1, 0));
    let mut two = Tape::default();
    two.ended("alice", of_file(Kind::Read, "a"))
        .ended("alice", of_file(Kind::Change, "a"))
        .ended("bob", of_file(Kind::Delete, "a"));
    assert_eq!(two.fires(rule, &setting), [0; 0]);
    let mut failed = Tape::default();
    failed.ended("alice", of_file(Kind::Read, "a")).ended("alice", of_file(Kind::Change, "a"));
    failed.ended("alice", Ended { ending: Ending::Failed, ..of_file(Kind::Delete, "a") });
    assert_eq!(failed.fires(rule, &setting), [0; 0], "nothing was deleted");
}

#[test]
fn bursts_of_reading_writing_and_deleting() {
    let rule = AnomalyRule::ReadWriteDeleteBurst;
    let setting = AnomalySetting { threshold: 1, ..shipped(rule) };
    let fires = |steps: &str| {
        let mut tape = Tape::default();
        for step in steps.chars() {
            let kind = match step {
                'r' => Kind::Read,
                'w' => Kind::Change,
                'd' => Kind::Delete,
                _ => Kind::Look,
            };
            tape.wait(SECOND).ended("alice", ended(kind, Ending::Succeeded));
        }
        tape.fires(rule, &setting)
    };
    assert_eq!(fires("rwd"), [3]);
    assert_eq!(fires("r.w.d"), [5]);
    assert_eq!(fires("r..w.d"), [0; 0], "six calls");
    assert_eq!(fires("wrd"), [0; 0], "another order");
    assert_eq!(fires("rwrw"), [0; 0]);
    let shipped = shipped(rule);
    let mut twice = Tape::default();
    let mut burst = |tape: &mut Tape| {
        for kind in [Kind::Read, Kind::Change, Kind::Delete, Kind::Look, Kind::Look] {
            tape.ended("alice", ended(kind, Ending::Succeeded));
        }
    };
    assert_eq!(twice.times(2, &mut burst).fires(rule, &shipped), [0; 0]);
    assert_eq!(twice.times(1, &mut burst).fires(rule, &shipped), [13]);
}

#[test]
fn a_grant_and_a_command() {
    let rule = AnomalyRule::GrantThenExec;
    let setting = shipped(rule);
    let command = || ended(Kind::Command, Ending::Succeeded);
    let after = |gap: u64, who: &str, what: Ended| {
        let mut tape = Tape::default();
        tape.add("alice", What::Granted).wait(gap).ended(who, what).fires(rule, &setting).len()
    };
    assert_eq!(after(59_999, "alice", command()), 1);
    assert_eq!(after(60_000, "alice", command()), 0, "a minute is over");
    assert_eq!(after(0, "bob", command()), 0, "another agent");
    assert_eq!(after(0, "alice", ended(Kind::Command, Ending::Denied(Denial::Command))), 0, "it did not run");
    assert_eq!(after(0, "alice", ended(Kind::Read, Ending::Succeeded)), 0, "reading is none");
    let mut before = Tape::default();
    before.ended("alice", command()).add("alice", What::Granted);
    assert_eq!(before.fires(rule, &setting), [0; 0]);
}

#[test]
fn a_secret_and_a_command() {
    let rule = AnomalyRule::SecretThenExec;
    let setting = shipped(rule);
    let secret = || Ended { secret: true, ..ended(Kind::Read, Ending::Succeeded) };
    let command = || ended(Kind::Command, Ending::Failed);
    let after = |read: Ended, gap: u64| {
        let mut tape = Tape::default();
        tape.ended("alice", read).wait(gap).ended("alice", command()).fires(rule, &setting).len()
    };
    assert_eq!(after(secret(), setting.window_s * 1_000 - 1), 1);
    assert_eq!(after(secret(), setting.window_s * 1_000), 0);
    assert_eq!(after(ended(Kind::Read, Ending::Succeeded), 0), 0, "no secret");
    assert_eq!(after(Ended { ending: Ending::Denied(Denial::Other), ..secret() }, 0), 0, "it was not read");
    let mut elsewhere = Tape::default();
    elsewhere.add_in("alice", "1", What::Ended(secret())).add_in("alice", "2", What::Ended(command()));
    assert_eq!(elsewhere.fires(rule, &setting), [0; 0], "another run");
    // Each command followed another secret: the records are told in their order all the same.
    let mut twice = Tape::default();
    twice.times(2, |tape| {
        tape.ended("alice", secret()).ended("alice", command());
    });
    assert_eq!(twice.fires(rule, &AnomalySetting { threshold: 2, ..setting }), [4]);
}

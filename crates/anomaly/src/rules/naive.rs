//! The rules in their plain form, counted anew over the whole history at each event, for comparison with the incremental ones.

use std::collections::HashSet;

use policy::{AnomalyRule, AnomalySetting};

use super::{concerns, first_contact, followed, millis, repeat, spike, subject, volume};
use crate::seen::{Ending, Kind, Mark, Seen, What};

/// Returns the sequence numbers at which `rule` fires.
pub(super) fn fires(history: &[Seen], rule: AnomalyRule, setting: &AnomalySetting) -> Vec<u64> {
    let mut fired = Vec::new();
    for (index, now) in history.iter().enumerate() {
        let of_subject: Vec<&Seen> = history[..=index]
            .iter()
            .filter(|seen| concerns(rule, seen) && subject(rule, seen) == subject(rule, now))
            .collect();
        if concerns(rule, now) && holds(&of_subject, now, rule, setting) {
            fired.push(now.sequence);
        }
    }
    fired
}

/// Returns true if the condition holds at `now`, the last event that concerns the rule and the subject.
#[expect(clippy::too_many_lines, reason = "the reference has one arm for each rule")]
fn holds(all: &[&Seen], now: &Seen, rule: AnomalyRule, setting: &AnomalySetting) -> bool {
    let in_window = |seen: &&&Seen, now: &Seen| seen.at + millis(setting) > now.at;
    let enough = |those: Vec<&Seen>| {
        those.last().is_some_and(|last| last.sequence == now.sequence)
            && those.iter().filter(|seen| in_window(seen, now)).count() as u64 >= setting.threshold
    };
    match rule {
        AnomalyRule::Denials
        | AnomalyRule::DeniedCommands
        | AnomalyRule::EscapeAttempts
        | AnomalyRule::PermissionEscalation
        | AnomalyRule::RateLimitAbuse
        | AnomalyRule::DiskQuota
        | AnomalyRule::DiskLow
        | AnomalyRule::PlaceholderElsewhere
        | AnomalyRule::ModelBudget => enough(all.to_vec()),
        AnomalyRule::RepeatedFailures => {
            let of = usize::try_from(setting.of.unwrap()).unwrap();
            let last = &all[all.len().saturating_sub(of)..];
            enough(last.iter().copied().filter(|seen| !seen.ended().unwrap().succeeded()).collect())
        }
        AnomalyRule::Spike => {
            let slot = |seen: &Seen| seen.at / spike::slot(setting);
            let count = all.iter().filter(|seen| slot(seen) + 300 > slot(now)).count() as u64;
            let window = |seen: &Seen| seen.at / millis(setting);
            let past: Vec<u64> = (1..=spike::BASELINE_WINDOWS)
                .filter_map(|back| window(now).checked_sub(back))
                .map(|index| all.iter().filter(|seen| window(seen) == index).count() as u64)
                .filter(|count| *count > 0)
                .collect();
            spike::is_spike(count, past.iter().sum(), past.len() as u64, setting)
        }
        AnomalyRule::ReadWriteDelete => {
            let complete = |delete: &Seen| {
                let mark = delete.ended().unwrap().files[0];
                delete.ended().unwrap().kind == Kind::Delete && {
                    let of_file: Vec<&&Seen> = all
                        .iter()
                        .filter(|seen| seen.sequence < delete.sequence)
                        .filter(|seen| seen.ended().unwrap().files[0] == mark)
                        .collect();
                    let since = of_file
                        .iter()
                        .rposition(|seen| seen.ended().unwrap().kind == Kind::Delete)
                        .map_or(0, |at| at + 1);
                    let of_file = &of_file[since..];
                    let is = |seen: &Seen, kind| seen.ended().unwrap().kind == kind;
                    (0..of_file.len()).any(|write| {
                        is(of_file[write], Kind::Change)
                            && of_file[..write]
                                .iter()
                                .any(|read| is(read, Kind::Read) && in_window(read, delete))
                    })
                }
            };
            enough(all.iter().copied().filter(|seen| complete(seen)).collect())
        }
        AnomalyRule::ReadWriteDeleteBurst => {
            let is =
                |seen: &Seen, kind| seen.ended().unwrap().succeeded() && seen.ended().unwrap().kind == kind;
            let bursts = (0..all.len()).filter(|end| {
                let calls = &all[end.saturating_sub(4)..=*end];
                is(all[*end], Kind::Delete)
                    && (0..calls.len()).any(|read| {
                        is(calls[read], Kind::Read)
                            && in_window(&&calls[read], all[*end])
                            && calls[read..].iter().any(|write| is(write, Kind::Change))
                    })
            });
            enough(bursts.map(|end| all[end]).collect())
        }
        AnomalyRule::GrantThenExec | AnomalyRule::SecretThenExec => {
            let counts = |command: &Seen| {
                followed::follows(command)
                    && all.iter().any(|opens| {
                        !followed::follows(opens)
                            && opens.sequence < command.sequence
                            && in_window(&opens, command)
                    })
            };
            enough(all.iter().copied().filter(|seen| counts(seen)).collect())
        }
        AnomalyRule::Loop => {
            let input = |seen: &Seen| -> Option<Mark> { seen.ended().unwrap().input };
            let changes = |seen: &Seen| repeat::changes(seen.ended().unwrap().kind);
            let since = all
                .iter()
                .rposition(|seen| {
                    changes(seen) && seen.ended().unwrap().ending == Ending::Succeeded && !changes(now)
                })
                .map_or(0, |at| at + 1);
            enough(all[since..].iter().copied().filter(|seen| input(seen) == input(now)).collect())
        }
        AnomalyRule::EgressVolume => {
            let slot = |seen: &Seen| volume::slot(seen.at, setting);
            let sent = |seen: &&Seen| match seen.what {
                What::Sent(bytes) if volume::is_in_window(slot(seen), slot(now)) => bytes,
                _ => 0,
            };
            volume::is_much(all.iter().map(sent).sum(), setting)
        }
        AnomalyRule::EgressAfterSecret => {
            let counts = |contact: &Seen| {
                let before = || all.iter().filter(move |seen| seen.sequence < contact.sequence);
                let is_new = !before().any(|seen| {
                    seen.what == contact.what && first_contact::is_known(seen.at, contact.at, setting)
                });
                let reads = |seen: &&&Seen| followed::reads_secret(seen) && in_window(seen, contact);
                matches!(contact.what, What::Connected(_)) && is_new && before().any(|seen| reads(&seen))
            };
            enough(all.iter().copied().filter(|seen| counts(seen)).collect())
        }
        AnomalyRule::EgressRefusals => {
            let recent = all.iter().filter(|seen| in_window(seen, now));
            let hosts: HashSet<Mark> = recent
                .filter_map(|seen| match seen.what {
                    What::Unreached(host) => Some(host),
                    _ => None,
                })
                .collect();
            hosts.len() as u64 >= setting.threshold
        }
    }
}
